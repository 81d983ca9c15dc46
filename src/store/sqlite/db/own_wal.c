#include "store/sqlite/db/own_wal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/db/wal_form.h"

enum {
    FILE_HEADER = 100,
    PAGE_SIZE_AT = 16, /* 1 stands for 65536 */
    FORMAT_AT = 18,    /* 1: without a log; 2: with one */
    MARK_AT = 60,      /* user_version */
    PAGE_MAX = 65536,
};

/* The low half of each salt. */
static uint32_t mark_of(const uint8_t salts[8])
{
    return (wal_read_be32(salts) & 0xffff) | wal_read_be32(salts + 4) << 16;
}

/* Whether the log goes on where the one with that mark has ended. */
static bool is_next(const uint8_t salts[8], uint32_t mark)
{
    return (uint16_t)mark_of(salts) == (uint16_t)(mark + 1);
}

/* What a log's first commit has as mark when it begins behind a file with that mark, but with salts of its own. */
static uint32_t link_to(uint32_t mark)
{
    return mark ^ 0x55555555;
}

/* --- files that no process has open --- */

struct look {
    int file, log; /* descriptors; -1: there is none */
    uint32_t mark, page_size;
    uint8_t *frame, *page;
    uint8_t salts[8];
    struct wal_sum sum;
    int64_t next; /* where the next frame begins */
};

static int64_t size_of(int fd)
{
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    return end > 0 ? end : 0;
}

/* Whether that many bytes are there. */
static bool read_at(int fd, void *out, size_t n, int64_t at)
{
    return pread(fd, out, n, at) == (ssize_t)n;
}

static bool next_frame(struct look *l)
{
    size_t n = WAL_FRAME_HEADER + l->page_size;
    if (!read_at(l->log, l->frame, n, l->next)) {
        return false;
    }
    l->next += (int64_t)n;
    return wal_take_frame(&l->sum, l->frame, l->page_size, l->salts);
}

/* Whether the log goes as far as to where the file's mark was put into it: all behind that may be in the file alone. */
static bool holds_mark(struct look *l)
{
    bool marked = false;
    while (next_frame(l)) {
        if (wal_read_be32(l->frame) == 1) {
            marked = wal_read_be32(l->frame + WAL_FRAME_HEADER + MARK_AT) == l->mark;
        }
        if (marked && wal_frame_commits(l->frame)) {
            return true;
        }
    }
    return false;
}

/* Whether a log that has begun with new salts was begun behind this file, or was only about to. */
static bool is_linked(struct look *l)
{
    return !next_frame(l) || (wal_read_be32(l->frame) == 1 && wal_frame_commits(l->frame) &&
                              wal_read_be32(l->frame + WAL_FRAME_HEADER + MARK_AT) == link_to(l->mark));
}

/* Whether the file has the frame's page. */
static bool in_file(struct look *l)
{
    int64_t at = ((int64_t)wal_read_be32(l->frame) - 1) * l->page_size;
    return read_at(l->file, l->page, l->page_size, at) &&
           memcmp(l->page, l->frame + WAL_FRAME_HEADER, l->page_size) == 0;
}

/* A power cut may tear the header when the log begins again; then frames of the last one follow, which is in the file.
 * Whether that is so: the last commit that can be read is. The first frame's checksum can't be compared. */
static bool is_torn(struct look *l)
{
    size_t n = WAL_FRAME_HEADER + l->page_size;
    if (!read_at(l->log, l->frame, n, WAL_HEADER)) {
        return false;
    }
    memcpy(l->salts, l->frame + WAL_FRAME_SALTS, sizeof l->salts);
    if (mark_of(l->salts) != l->mark) {
        return false;
    }
    l->sum = (struct wal_sum){.big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__, /* as this machine writes them */
                              .at = {wal_read_be32(l->frame + 16), wal_read_be32(l->frame + 20)}};
    l->next = WAL_HEADER + (int64_t)n;
    bool committed = wal_frame_commits(l->frame), commit_in = in_file(l), in = committed && commit_in;
    while (next_frame(l)) {
        commit_in = in_file(l) && (committed || commit_in);
        committed = wal_frame_commits(l->frame);
        in = committed ? commit_in : in;
    }
    return in;
}

static enum own_wal judge_log(struct look *l)
{
    uint8_t header[WAL_HEADER];
    if (!read_at(l->log, header, sizeof header, 0)) {
        return OWN_WAL_MISSING;
    }
    if (!wal_take_header(&l->sum, header, l->page_size)) {
        struct wal_sum sum;
        bool other = wal_take_header(&sum, header, wal_read_be32(header + 8)); /* with pages of another size */
        return other ? OWN_WAL_OTHER : is_torn(l) ? OWN_WAL_GOOD : OWN_WAL_MISSING;
    }
    memcpy(l->salts, header + WAL_SALTS, sizeof l->salts);
    l->next = WAL_HEADER;
    if (is_next(l->salts, l->mark)) {
        return OWN_WAL_GOOD;
    }
    if (mark_of(l->salts) == l->mark) {
        return holds_mark(l) ? OWN_WAL_GOOD : OWN_WAL_MISSING;
    }
    return wal_read_be32(header + WAL_BEGUN) == 0 && is_linked(l) ? OWN_WAL_GOOD : OWN_WAL_OTHER;
}

static int judge(struct look *l, enum own_wal *out, struct err *err)
{
    uint8_t h[FILE_HEADER];
    bool log = size_of(l->log) > 0;
    if (!read_at(l->file, h, sizeof h, 0) || memcmp(h, "SQLite format 3", 16) != 0) {
        return 0; /* opening it says what it is */
    }
    if (h[FORMAT_AT] == 1) {
        *out = log ? OWN_WAL_LEFT_OVER : OWN_WAL_GOOD;
        return 0;
    }
    uint32_t page_size = (uint32_t)h[PAGE_SIZE_AT] << 8 | h[PAGE_SIZE_AT + 1];
    l->page_size = page_size == 1 ? PAGE_MAX : page_size;
    l->mark = wal_read_be32(h + MARK_AT);
    if (l->mark == 0 || l->page_size < 512) {
        return 0;
    }
    *out = OWN_WAL_MISSING;
    if (!log) {
        return 0;
    }
    l->frame = malloc(WAL_FRAME_HEADER + PAGE_MAX);
    l->page = malloc(PAGE_MAX);
    if (l->frame == NULL || l->page == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *out = judge_log(l);
    return 0;
}

/* -1: there is none. */
static int open_file(const char *folder, const char *name, const char *suffix, int *fd, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s.db%s", folder, name, suffix) >= (int)sizeof path) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    struct stat st;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for who writes it */
    if (*fd < 0) {
        return errno == ENOENT
                   ? 0
                   : err_set(err, errno == EACCES ? ERR_READONLY : ERR_IO, "can't open %s: %s", path, strerror(errno));
    }
    return fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) ? 0 : err_set(err, ERR_CORRUPT, "%s is no regular file", path);
}

int own_wal_look(const char *folder, const char *name, enum own_wal *out, struct err *err)
{
    struct look l = {.file = -1, .log = -1};
    int result = open_file(folder, name, "", &l.file, err);
    *out = OWN_WAL_GOOD;
    if (result == 0 && l.file >= 0 && (result = open_file(folder, name, "-wal", &l.log, err)) == 0) {
        result = judge(&l, out, err);
    }
    if (l.file >= 0) {
        close(l.file);
    }
    if (l.log >= 0) {
        close(l.log);
    }
    free(l.frame);
    free(l.page);
    return result;
}

/* --- a connection --- */

static int write_mark(struct db *db, uint32_t mark, struct err *err)
{
    char sql[64];
    int result = db_begin(db, err);
    if (result < 0) {
        return result == ERR_BUSY ? 1 : result;
    }
    snprintf(sql, sizeof sql, "PRAGMA user_version = %" PRId32, (int32_t)mark);
    if ((result = db_exec(db, sql, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

/* Bytes of one of the connection's files. 1, or 0: it has not that many, or an error. */
static int read_from(struct db *db, int pointer, void *out, int n, int64_t at, struct err *err)
{
    sqlite3_file *file = NULL;
    int rc = sqlite3_file_control(db->handle, "main", pointer, &file);
    if (rc == SQLITE_OK && (file == NULL || file->pMethods == NULL)) {
        return 0;
    }
    rc = rc == SQLITE_OK ? file->pMethods->xRead(file, out, n, at) : rc;
    return rc == SQLITE_OK ? 1
           : rc == SQLITE_IOERR_SHORT_READ
               ? 0
               : err_set(err, ERR_IO, "%s: reading its mark: %s", db->path, sqlite3_errstr(rc));
}

int own_wal_mark(struct db *db, struct err *err)
{
    /* The log may begin again with what is written here: then once more. */
    for (int i = 0; i < 2; i++) {
        uint8_t header[WAL_HEADER];
        int64_t mark = 0;
        int result = read_from(db, SQLITE_FCNTL_JOURNAL_POINTER, header, sizeof header, 0, err);
        if (result <= 0 || (result = db_int(db, "PRAGMA user_version", &mark, err)) < 0 ||
            mark == (int32_t)mark_of(header + WAL_SALTS)) {
            return result;
        }
        if ((result = write_mark(db, mark_of(header + WAL_SALTS), err)) != 0) {
            return result;
        }
    }
    return 0;
}

/* What the file itself has, whatever the log says. */
static int read_mark(struct db *db, uint32_t *mark, struct err *err)
{
    uint8_t bytes[4];
    int result = read_from(db, SQLITE_FCNTL_FILE_POINTER, bytes, sizeof bytes, MARK_AT, err);
    *mark = result > 0 ? wal_read_be32(bytes) : 0;
    return result < 0 ? result : 0;
}

int own_wal_link(struct db *db, struct err *err)
{
    uint32_t mark;
    uint8_t header[WAL_HEADER];
    int result = read_mark(db, &mark, err);
    if (result < 0 || mark == 0 || (result = db_wal_empty(db, err)) <= 0 ||
        (result = read_from(db, SQLITE_FCNTL_JOURNAL_POINTER, header, sizeof header, 0, err)) <= 0) {
        return result; /* where there is no log, the one that is needed is missing */
    }
    result = write_mark(db, link_to(mark), err);
    return result <= 0 ? result : err_set(err, ERR_BUSY, "%s: another program holds its write lock", db->path);
}

int own_wal_begin(struct db *db, struct err *err)
{
    uint32_t mark;
    int result = read_mark(db, &mark, err);
    if (result < 0 || mark != 0) {
        return result < 0 ? result : own_wal_clear(db, err);
    }
    result = db_checkpoint(db, SQLITE_CHECKPOINT_PASSIVE, err);
    return result < 0 ? result : 0; /* a reader is in the way: with the next one */
}

int own_wal_enter(struct db *db, struct err *err)
{
    uint8_t format = 0;
    int result = read_from(db, SQLITE_FCNTL_FILE_POINTER, &format, 1, FORMAT_AT, err);
    return result < 0 || format != 1 ? (result < 0 ? result : 0) : own_wal_clear(db, err);
}

int own_wal_clear(struct db *db, struct err *err)
{
    int64_t mark = 0;
    int result = db_int(db, "PRAGMA user_version", &mark, err);
    if (result < 0 || mark == 0 || (result = write_mark(db, 0, err)) <= 0) {
        return result;
    }
    return err_set(err, ERR_BUSY, "%s: another program holds its write lock", db->path);
}
