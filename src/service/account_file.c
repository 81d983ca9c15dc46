#include "service/account_file.h"

#include <crypt.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "service/account_impl.h"

enum { FIELDS = 3, OTHERS = S_IROTH | S_IWOTH | S_IXOTH };

static const char blanks[] = " \t\r";

/* --- fields --- */

const struct account_role_name account_roles[] = {
    {ROLE_ASK, "ask"},   {ROLE_RECORD, "record"}, {ROLE_FORGET, "forget"},
    {ROLE_LOAD, "load"}, {ROLE_ADMIN, "admin"},   {ROLE_WATCH, "watch"},
    {0, NULL},
};

int account_check_name(struct slice name, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@";
    bool good = name.len > 0 && name.len <= ACCOUNT_NAME_MAX;
    for (size_t i = 0; good && i < name.len; i++) {
        good = name.data[i] != '\0' && strchr(allowed, name.data[i]) != NULL;
    }
    if (!good) {
        return err_set(err, ERR_INVALID,
                       "%s can't be an account's name, expected 1 to %d letters, digits, _, -, . or @", log_quote(name),
                       ACCOUNT_NAME_MAX);
    }
    if (slice_eq(name, slice_str(account_default.name))) {
        return err_set(err, ERR_INVALID, "the account default is not in the file: its password is requirepass");
    }
    return 0;
}

int account_roles_read(struct slice text, unsigned *roles, struct err *err)
{
    *roles = 0;
    const char *at = text.data, *end = text.data + text.len;
    while (at <= end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        struct slice word = slice_of(at, (size_t)((comma != NULL ? comma : end) - at));
        const struct account_role_name *row = account_roles;
        while (row->name != NULL && !slice_eq(word, slice_str(row->name))) {
            row++;
        }
        if (row->name == NULL) {
            return err_set(err, ERR_INVALID,
                           "there is no role %s, expected some of ask, record, forget, load, admin and watch, split by "
                           "commas",
                           log_quote(word));
        }
        *roles |= row->role;
        at += word.len + 1;
    }
    return 0;
}

void account_roles_write(unsigned roles, char out[ACCOUNT_ROLES_TEXT])
{
    out[0] = '\0';
    for (const struct account_role_name *row = account_roles; row->name != NULL; row++) {
        if ((roles & row->role) != 0) {
            strcat(out, out[0] != '\0' ? "," : "");
            strcat(out, row->name);
        }
    }
}

const char *account_library_version(void)
{
    return XCRYPT_VERSION_STR;
}

/* --- a set --- */

void account_set_free(struct account_set *set)
{
    for (size_t i = 0; set != NULL && i < set->n; i++) {
        free(set->accounts[i].hash);
    }
    if (set != NULL) {
        free(set->accounts);
        free(set);
    }
}

bool account_set_equal(const struct account_set *a, const struct account_set *b)
{
    if (a == NULL || b == NULL || a->n != b->n) {
        return a == b;
    }
    for (size_t i = 0; i < a->n; i++) {
        const struct account *x = &a->accounts[i], *y = &b->accounts[i];
        if (strcmp(x->name, y->name) != 0 || x->roles != y->roles || strcmp(x->hash, y->hash) != 0) {
            return false;
        }
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct account *x = a, *y = b;
    return strcmp(x->name, y->name);
}

const struct account *account_set_find(const struct account_set *set, struct slice name)
{
    struct account key = {.roles = 0};
    if (set == NULL || name.len > ACCOUNT_NAME_MAX || memchr(name.data, '\0', name.len) != NULL) {
        return NULL;
    }
    memcpy(key.name, name.data, name.len);
    return bsearch(&key, set->accounts, set->n, sizeof key, by_name);
}

/* --- the file --- */

static int read_all(int fd, const char *path, struct buf *bytes, struct err *err)
{
    ssize_t n = 1;
    while (n != 0 && bytes->len <= ACCOUNT_FILE_MAX) {
        char piece[4096];
        n = read(fd, piece, sizeof piece);
        if (n < 0 && errno != EINTR) {
            return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
        }
        buf_add(bytes, piece, n > 0 ? (size_t)n : 0);
    }
    buf_add(bytes, "", 1);
    if (bytes->failed) {
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    }
    bytes->len--;
    if (bytes->len > ACCOUNT_FILE_MAX) {
        return err_set(err, ERR_INVALID, "%s is larger than %d bytes, the most that is taken", path, ACCOUNT_FILE_MAX);
    }
    return 0;
}

int account_file_load(const char *path, struct buf *bytes, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int code = err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    int code = 0;
    if (!S_ISREG(st.st_mode)) {
        code = err_set(err, ERR_INVALID, "%s is no regular file", path);
    } else if ((st.st_mode & OTHERS) != 0) {
        code = err_set(err, ERR_INVALID, "%s is open to everybody on this machine (mode %04o), expected 0600 or 0640",
                       path, (unsigned)st.st_mode & 07777U);
    } else {
        code = read_all(fd, path, bytes, err);
    }
    close(fd);
    return code;
}

static size_t split(struct slice line, struct slice fields[FIELDS + 1])
{
    size_t n = 0;
    const char *at = line.data, *end = line.data + line.len;
    while (n <= FIELDS) {
        at += strspn(at, blanks);
        if (at >= end) {
            break;
        }
        fields[n] = slice_of(at, strcspn(at, " \t\r\n"));
        at += fields[n++].len;
    }
    return n;
}

static int check_hash(struct slice hash, struct account *account, struct err *err)
{
    account->hash = strndup(hash.data, hash.len);
    if (account->hash == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    if (crypt_checksalt(account->hash) != CRYPT_SALT_OK) {
        return err_set(err, ERR_INVALID,
                       "the hash of %s is none of libcrypt's strong ones, expected one such as $y$j9T$...",
                       account->name);
    }
    return 0;
}

static int parse_line(struct slice line, struct account_set *set, struct err *err)
{
    struct slice fields[FIELDS + 1];
    if (memchr(line.data, '\0', line.len) != NULL) {
        return err_set(err, ERR_INVALID, "the line holds a NUL byte");
    }
    size_t n = split(line, fields);
    if (n == 0 || fields[0].data[0] == '#') {
        return 0;
    }
    if (n != FIELDS) {
        return err_set(err, ERR_INVALID, "expected a name, roles and a hash, split by blanks");
    }
    int code = account_check_name(fields[0], err);
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (slice_eq(fields[0], slice_str(set->accounts[i].name))) {
            return err_set(err, ERR_INVALID, "the account %s is given twice", set->accounts[i].name);
        }
    }
    struct account *account = &set->accounts[set->n++];
    memcpy(account->name, fields[0].data, fields[0].len);
    code = account_roles_read(fields[1], &account->roles, err);
    return code < 0 ? code : check_hash(fields[2], account, err);
}

static size_t count_lines(struct slice bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes.len; i++) {
        n += bytes.data[i] == '\n';
    }
    return n;
}

static int parse(struct slice bytes, struct account_set *set, size_t *number, struct err *err)
{
    const char *at = bytes.data, *end = bytes.data + bytes.len;
    int code = 0;
    while (code == 0 && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        struct slice line = slice_of(at, (size_t)((newline != NULL ? newline : end) - at));
        ++*number;
        code = set->n < ACCOUNTS_MAX ? parse_line(line, set, err)
                                     : err_set(err, ERR_INVALID, "there are more than %d accounts", ACCOUNTS_MAX);
        at += line.len + 1;
    }
    return code;
}

int account_file_parse(const char *path, struct slice bytes, struct account_set **set, struct err *err)
{
    size_t most = count_lines(bytes), number = 0;
    most = most < ACCOUNTS_MAX ? most : ACCOUNTS_MAX;
    struct account_set *s = calloc(1, sizeof *s);
    if (s == NULL || (s->accounts = calloc(most, sizeof *s->accounts)) == NULL) {
        account_set_free(s);
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    }
    int code = parse(bytes, s, &number, err);
    if (code < 0) {
        account_set_free(s);
        return err_prefix(err, "%s:%zu", path, number);
    }
    qsort(s->accounts, s->n, sizeof *s->accounts, by_name);
    *set = s;
    return 0;
}

int account_file_read(const char *path, struct account_set **set, struct err *err)
{
    struct buf bytes = {0};
    int code = account_file_load(path, &bytes, err);
    code = code == 0 ? account_file_parse(path, buf_slice(&bytes), set, err) : err_prefix(err, "accounts");
    buf_free(&bytes);
    return code;
}
