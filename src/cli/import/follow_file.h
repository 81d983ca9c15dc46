/* A file that grows, as `tail -F` reads it: by name. It may be missing for a while, be renamed while another takes its
 * name (then it is read to its end first), or be cut to nothing and written again.
 *
 * The state file says which file was read, how far, and how many lines that were. It is replaced as a whole, and
 * durable when follow_file_save() returns. If the file was renamed since, it is looked for in its folder by its inode
 * and its beginning: a new file may get the inode of one that was deleted. A file that was cut and has grown beyond the
 * offset again is told from one that has grown at the next start, if it begins otherwise; while it is open, only if
 * the program looked in between. What was renamed twice between two looks is not found: only the file that was read is
 * read to its end, and the one that has the name now.
 *
 * One process at a time has a state file. The lock is flock() on a file beside it, which stays.
 */
#ifndef UNSEEN_CLI_IMPORT_FOLLOW_FILE_H
#define UNSEEN_CLI_IMPORT_FOLLOW_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { FOLLOW_HEAD = 1024 };

struct follow_file {
    const char *path;
    char state[PATH_MAX];
    int fd; /* -1: it is not there yet */
    uint64_t dev, ino;
    uint64_t offset; /* read so far; those before it are the caller's */
    uint64_t head;   /* hash of its first bytes ... */
    uint64_t head_n; /* ... so many: at most FOLLOW_HEAD, and none beyond the saved offset */
    int lock;        /* on the state; -1: none */
    bool known;      /* a state was read, and what it means is not found yet */
    bool missing;    /* said so */
    bool judged;     /* its first bytes are those of plain text */
};

/* state NULL: beside the file. Reads the state, if there is one; *line: which line comes next. ERR_INVALID: it is no
 * state; ERR_BUSY: another process follows with it; ERR_IO, ERR_RANGE (a path is too long). */
int follow_file_open(struct follow_file *f, const char *path, const char *state, uint64_t *line, struct err *err);
void follow_file_close(struct follow_file *f);

enum follow_news {
    FOLLOW_BYTES,  /* *n were read, or none for now */
    FOLLOW_ENDED,  /* another file has the name: what was read of this one is all. follow_file_next() */
    FOLLOW_BEGINS, /* it was cut: what was read and not taken is gone, and all begins again */
};
/* Never waits. ERR_IO; ERR_INVALID: it is no regular file, or packed with gzip or zstd. */
int follow_file_read(struct follow_file *f, char *out, size_t size, size_t *n, enum follow_news *news, struct err *err);
void follow_file_next(struct follow_file *f); /* on to the file that has the name now */

/* All before this offset of the file is acknowledged, and `line` comes next. 0 or ERR_IO. */
int follow_file_save(struct follow_file *f, uint64_t offset, uint64_t line, struct err *err);

#endif
