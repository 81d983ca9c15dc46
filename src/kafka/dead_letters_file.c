/* The files of dead letters by name, lock and line: what service and import share. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "base/json_scan.h"
#include "base/owner.h"
#include "base/text.h"
#include "kafka/dead_letters_impl.h"

enum { PIECE = 64 * 1024 };

int dead_letters_error(const char *what, struct err *err)
{
    int code = errno == ENOSPC || errno == EDQUOT  ? ERR_FULL
               : errno == EROFS || errno == EACCES ? ERR_READONLY
               : errno == ENOMEM                   ? ERR_NOMEM
                                                   : ERR_IO;
    return err_set(err, code, "dead letters: can't %s: %s", what, strerror(errno));
}

bool dead_letters_is_sealed(const char *name, uint64_t *number, uint64_t *n)
{
    char again[NAME_MAX + 1];
    if (sscanf(name, "dead-letters.%" SCNu64 ".%" SCNu64 ".jsonl", number, n) != 2) {
        return false;
    }
    snprintf(again, sizeof again, "dead-letters.%" PRIu64 ".%" PRIu64 ".jsonl", *number, *n);
    return strcmp(again, name) == 0 && *number > 0;
}

/* The lowest number above `after`, or, if highest, the highest of all; 0: there is none. */
static int find_sealed(const char *folder, uint64_t after, bool highest, uint64_t *found, char path[PATH_MAX],
                       struct err *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return dead_letters_error("list the folder", err);
    }
    *found = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        uint64_t number, n;
        if (!dead_letters_is_sealed(entry->d_name, &number, &n) || number <= after) {
            continue;
        }
        if (*found == 0 || (highest ? number > *found : number < *found)) {
            *found = number;
            snprintf(path, PATH_MAX, "%s/%s", folder, entry->d_name);
        }
    }
    closedir(dir);
    return 0;
}

int dead_letters_recount(const char *path, uint64_t n, struct err *err)
{
    char to[PATH_MAX];
    uint64_t number, was;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (!dead_letters_is_sealed(name, &number, &was) || was == n) {
        return 0;
    }
    snprintf(to, sizeof to, "%.*sdead-letters.%" PRIu64 ".%" PRIu64 ".jsonl", (int)(name - path), path, number, n);
    return rename(path, to) < 0 ? dead_letters_error("rename a file", err) : 0;
}

int dead_letters_next(const char *folder, uint64_t after, uint64_t *number, char path[PATH_MAX], struct err *err)
{
    int code = find_sealed(folder, after, false, number, path, err);
    return code < 0 ? code : *number > 0;
}

int dead_letters_rename(const char *folder, uint64_t n, struct err *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    uint64_t highest;
    int code = find_sealed(folder, 0, true, &highest, to, err);
    if (code < 0) {
        return code;
    }
    snprintf(from, sizeof from, "%s/" DEAD_LETTERS_FILE, folder);
    snprintf(to, sizeof to, "%s/dead-letters.%" PRIu64 ".%" PRIu64 ".jsonl", folder, highest + 1, n);
    return rename(from, to) < 0 ? dead_letters_error("rename " DEAD_LETTERS_FILE, err) : folder_sync(folder, err);
}

/* Bytes of the file's last line, when no newline ends it. */
static int last_line(int fd, int64_t size, int64_t *len, struct err *err)
{
    char piece[PIECE];
    for (*len = 0; *len < size;) {
        int64_t left = size - *len, n = left < PIECE ? left : PIECE;
        if (pread(fd, piece, (size_t)n, left - n) != n) {
            return dead_letters_error("read " DEAD_LETTERS_FILE, err);
        }
        const char *newline = memrchr(piece, '\n', (size_t)n);
        if (newline != NULL) {
            *len += piece + n - newline - 1;
            return 0;
        }
        *len += n;
    }
    return 0;
}

/* An editor may have left the newline out; a crash never leaves a whole object without it but by the same chance. */
static int repair(int fd, int64_t *size, struct err *err)
{
    int64_t torn;
    char last = '\0';
    int code = last_line(fd, *size, &torn, err);
    if (code < 0 || torn == 0) {
        return code;
    }
    if (pread(fd, &last, 1, *size - 1) != 1) {
        return dead_letters_error("read " DEAD_LETTERS_FILE, err);
    }
    if (last == '}') {
        if (write(fd, "\n", 1) != 1) {
            return dead_letters_error("write " DEAD_LETTERS_FILE, err);
        }
        (*size)++;
        return 0;
    }
    *size -= torn;
    return ftruncate(fd, *size) < 0 ? dead_letters_error("cut " DEAD_LETTERS_FILE, err) : 0;
}

int dead_letters_lock(const char *folder, bool make, int *fd, int64_t *size, struct err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" DEAD_LETTERS_FILE, folder);
    for (;;) {
        struct stat named, opened;
        *fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
        if (*fd < 0) {
            return errno == ENOENT && !make ? 0 : dead_letters_error("open " DEAD_LETTERS_FILE, err);
        }
        owner_as_folder(path);
        int code =
            flock(*fd, LOCK_EX) < 0 || fstat(*fd, &opened) < 0 ? dead_letters_error("lock " DEAD_LETTERS_FILE, err) : 0;
        bool same = code == 0 && stat(path, &named) == 0 && named.st_ino == opened.st_ino;
        if (same) {
            *size = opened.st_size;
            code = repair(*fd, size, err);
        }
        if (same && code == 0) {
            return 0;
        }
        close(*fd); /* it was renamed in between */
        *fd = -1;
        if (code < 0) {
            return code;
        }
    }
}

int dead_letters_count(int fd, int64_t size, uint64_t *n, struct err *err)
{
    char piece[PIECE];
    *n = 0;
    for (int64_t at = 0; at < size;) {
        ssize_t got = pread(fd, piece, size - at < PIECE ? (size_t)(size - at) : PIECE, at);
        if (got <= 0) {
            return dead_letters_error("read " DEAD_LETTERS_FILE, err);
        }
        for (const char *nl = piece; (nl = memchr(nl, '\n', (size_t)(piece + got - nl))) != NULL; nl++) {
            (*n)++;
        }
        at += got;
        *n += at == size && piece[got - 1] == '}'; /* as repair() takes it */
    }
    return 0;
}

int dead_letters_seal(const char *folder, struct err *err)
{
    int fd;
    int64_t size;
    uint64_t n;
    int code = dead_letters_lock(folder, false, &fd, &size, err);
    if (code < 0 || fd < 0) {
        return code;
    }
    code = size > 0 ? dead_letters_count(fd, size, &n, err) : 0;
    if (code == 0 && size > 0) {
        code = dead_letters_rename(folder, n, err);
    }
    close(fd);
    return code;
}

/* --- a line --- */

enum letter_field { TOPIC, PARTITION, OFFSET, TIME, REASON, KEY, VALUE, TEXT, FIELDS };
static const char *const names[FIELDS] = {"topic", "partition", "offset", "unix_ms", "reason", "key", "value", "text"};

static int read_member(struct json_scan *j, struct slice fields[FIELDS])
{
    struct slice name;
    int code = json_scan_key(j, &name);
    for (size_t i = 0; code == 0 && i < FIELDS; i++) {
        bool number = i == PARTITION || i == OFFSET || i == TIME, whole = false;
        if (!slice_eq(name, slice_str(names[i]))) {
            continue;
        }
        if (fields[i].data != NULL) {
            return err_set(j->err, ERR_INVALID, "%s is given twice", names[i]);
        }
        if (json_scan_next_is(j, 'n') && (i == KEY || i == VALUE)) {
            break; /* null */
        }
        if (number ? json_scan_next_is(j, '"') : !json_scan_next_is(j, '"')) {
            return err_set(j->err, ERR_INVALID, "%s is no %s", names[i], number ? "number" : "string");
        }
        return number ? json_scan_number(j, &fields[i], &whole) : json_scan_string(j, &fields[i]);
    }
    return code < 0 ? code : json_scan_ignore(j, 0);
}

static int read_object(struct json_scan *j, struct slice fields[FIELDS])
{
    json_scan_skip_space(j);
    if (!json_scan_next_is(j, '{')) {
        return json_scan_bad(j, "expected \"{\"");
    }
    do {
        j->at++;
        json_scan_skip_space(j);
        int code = read_member(j, fields);
        if (code < 0) {
            return code;
        }
        json_scan_skip_space(j);
    } while (json_scan_next_is(j, ','));
    if (!json_scan_next_is(j, '}')) {
        return json_scan_bad(j, "expected \",\" or \"}\"");
    }
    j->at++;
    json_scan_skip_space(j);
    return j->at == j->end ? 0 : json_scan_bad(j, "text after the object");
}

static int read_whole(enum letter_field field, struct slice text, int64_t *value, struct err *err)
{
    char copy[24] = "", *end = copy;
    if (text.data == NULL) {
        return err_set(err, ERR_INVALID, "%s is missing", names[field]);
    }
    if (text.len < sizeof copy) {
        memcpy(copy, text.data, text.len);
        errno = 0;
        *value = strtoll(copy, &end, 10);
    }
    return end != copy && *end == '\0' && errno == 0 ? 0
                                                     : err_set(err, ERR_INVALID, "%s is no whole number", names[field]);
}

static int read_bytes(enum letter_field field, struct slice text, struct arena *arena, struct slice *out,
                      struct err *err)
{
    *out = slice_of(NULL, 0);
    if (text.data == NULL) {
        return 0;
    }
    char *bytes = arena_alloc(arena, text.len + 1);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *out = slice_of(bytes, 0);
    return base64_read(text, bytes, &out->len) ? 0 : err_set(err, ERR_INVALID, "%s is not in base64", names[field]);
}

int dead_letter_read(struct slice line, struct arena *arena, struct dead_letter *out, struct err *err)
{
    struct slice fields[FIELDS] = {{NULL, 0}};
    struct json_scan j = {.begin = line.data, .at = line.data, .end = line.data + line.len, .arena = arena, .err = err};
    int64_t partition = 0;
    *out = (struct dead_letter){.partition = 0};
    int code = read_object(&j, fields);
    code = code < 0 ? code : read_whole(PARTITION, fields[PARTITION], &partition, err);
    code = code < 0 ? code : read_whole(OFFSET, fields[OFFSET], &out->offset, err);
    code = code < 0 || fields[TIME].data == NULL ? code : read_whole(TIME, fields[TIME], &out->at_ms, err);
    code = code < 0 ? code : read_bytes(KEY, fields[KEY], arena, &out->key, err);
    code = code < 0 ? code : read_bytes(VALUE, fields[VALUE], arena, &out->value, err);
    if (code == 0 && (partition < 0 || partition > INT32_MAX)) {
        code = err_set(err, ERR_INVALID, "partition is out of range");
    }
    out->partition = (int32_t)partition;
    out->topic = fields[TOPIC];
    out->reason = fields[REASON];
    out->value = fields[TEXT].data != NULL ? fields[TEXT] : out->value;
    return code;
}
