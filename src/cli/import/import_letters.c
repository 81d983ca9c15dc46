/* Lines that stay are written to FILE.new as they are read, and in the end that file takes the place of FILE. */
#include "cli/import/import_letters.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/folder_sync.h"
#include "kafka/dead_letters.h"

struct import_letters {
    struct message_rules *rules;
    char path[PATH_MAX], new_path[PATH_MAX + 8];
    FILE *in, *out; /* out NULL: nothing changes */
    char *line;
    size_t room;
    ssize_t len;
    uint64_t number, taken, kept;
    struct arena arena; /* of one letter */
};

static int failed(const char *what, const char *path, struct err *err)
{
    int code = errno == ENOENT                     ? ERR_NOTFOUND
               : errno == EWOULDBLOCK              ? ERR_LOCKED
               : errno == ENOMEM                   ? ERR_NOMEM
               : errno == ENOSPC                   ? ERR_FULL
               : errno == EACCES || errno == EROFS ? ERR_READONLY
                                                   : ERR_IO;
    return code == ERR_LOCKED ? err_set(err, code, "%s: another import has it", path)
                              : err_set(err, code, "%s: can't %s: %s", path, what, strerror(errno));
}

/* The new file belongs to whom the old one does, so that the service's user can read what root imported. */
static int open_new(struct import_letters *l, const struct stat *old, struct err *err)
{
    snprintf(l->new_path, sizeof l->new_path, "%s.new", l->path);
    int fd = open(l->new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return failed("make it", l->new_path, err);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fchmod(fd, old->st_mode & 0777) < 0 ||
        fchown(fd, old->st_uid, old->st_gid) < 0 || (l->out = fdopen(fd, "w")) == NULL) {
        int code = failed("make it", l->new_path, err);
        close(fd);
        unlink(l->new_path);
        return code;
    }
    return 0;
}

int import_letters_open(const char *path, bool change, struct message_rules *rules, struct import_letters **letters,
                        struct err *err)
{
    struct stat opened, named;
    struct import_letters *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    l->rules = rules;
    snprintf(l->path, sizeof l->path, "%s", path);
    l->in = fopen(path, "re");
    int code = l->in == NULL ? failed("open it", path, err) : 0;
    if (code == 0 && (flock(fileno(l->in), LOCK_EX | LOCK_NB) < 0 || fstat(fileno(l->in), &opened) < 0)) {
        code = failed("lock it", path, err);
    }
    if (code == 0 && (stat(path, &named) < 0 || named.st_ino != opened.st_ino)) {
        code = err_set(err, ERR_LOCKED, "%s: another import has it", path);
    }
    if (code == 0 && change) {
        code = open_new(l, &opened, err);
    }
    if (code < 0) {
        import_letters_close(l);
        return code;
    }
    *letters = l;
    return 0;
}

void import_letters_close(struct import_letters *l)
{
    if (l == NULL) {
        return;
    }
    if (l->out != NULL) {
        unlink(l->new_path); /* there if it was not ended; before the lock goes, or it were the next import's */
        fclose(l->out);
    }
    if (l->in != NULL) {
        fclose(l->in);
    }
    free(l->line);
    arena_free(&l->arena);
    free(l);
}

uint64_t import_letters_line(const struct import_letters *l)
{
    return l->number;
}

static int keep_line(struct import_letters *l, struct err *err)
{
    l->kept++;
    if (l->out == NULL) {
        return 0;
    }
    size_t len = (size_t)l->len;
    bool whole = len > 0 && l->line[len - 1] == '\n';
    bool good = fwrite(l->line, 1, len, l->out) == len && (whole || fputc('\n', l->out) != EOF);
    return good ? 0 : failed("write it", l->new_path, err);
}

int import_letters_keep(struct import_letters *l, struct err *err)
{
    l->taken--;
    return keep_line(l, err);
}

static int read_letter(struct import_letters *l, struct message_event *out, struct err *err)
{
    struct dead_letter letter;
    size_t len = (size_t)l->len - (l->len > 0 && l->line[l->len - 1] == '\n');
    int code = dead_letter_read(slice_of(l->line, len), &l->arena, &letter, err);
    if (code < 0) {
        return code;
    }
    const struct message message = {letter.key, letter.value};
    code = kafka_message_read(l->rules, &message, &l->arena, out, err);
    if (code > 0 && !out->has_at && letter.at_ms == 0) {
        return err_set(err, ERR_INVALID, "time is missing, and Kafka had none");
    }
    if (code > 0 && !out->has_at) {
        out->has_at = true;
        out->at_ms = letter.at_ms;
    }
    return code;
}

int import_letters_next(struct import_letters *l, struct message_event *out, struct err *err)
{
    arena_reset(&l->arena);
    *out = (struct message_event){.n = 0};
    errno = 0;
    l->len = getline(&l->line, &l->room, l->in);
    if (l->len < 0) {
        return feof(l->in) ? 0 : failed("read it", l->path, err);
    }
    l->number++;
    int code = read_letter(l, out, err);
    if (code < 0) {
        int kept = code == ERR_INVALID ? keep_line(l, err) : code;
        return kept < 0 ? kept : code;
    }
    l->taken++;
    return 1;
}

static int replace(struct import_letters *l, struct err *err)
{
    bool good = fflush(l->out) == 0 && fsync(fileno(l->out)) == 0;
    int code = good ? 0 : failed("write it", l->new_path, err);
    if (code == 0 && (l->kept > 0 ? rename(l->new_path, l->path) : unlink(l->path)) < 0) {
        code = failed("replace it", l->path, err);
    }
    return code;
}

int import_letters_end(struct import_letters *l, uint64_t *taken, uint64_t *kept, struct err *err)
{
    int code = l->out != NULL && l->taken > 0 ? replace(l, err) : 0;
    if (code == 0 && l->out != NULL) {
        code = l->kept > 0 ? dead_letters_recount(l->path, l->kept, err) : 0;
        code = code < 0 ? code : folder_sync_name(l->path, err);
    }
    *taken += l->taken;
    *kept += l->kept;
    return code;
}
