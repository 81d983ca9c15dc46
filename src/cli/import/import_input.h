/* Where an import reads from: a file, a pipe or standard input; plain, gzip or zstd, told by its first bytes.
 *
 * Members or frames that follow each other are one input. One that is cut off in the middle is an error, never an end.
 */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_INPUT_H
#define UNSEEN_CLI_IMPORT_IMPORT_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct import_input;

/* "-" is standard input. path must outlive the input. Returns 0, ERR_NOTFOUND, ERR_IO, ERR_NOMEM. */
int import_input_open(const char *path, struct import_input **input, struct err *err);
void import_input_close(struct import_input *in);

/* The same for what --follow reads without end: a pipe that has a name is opened also while it has no writer. */
int import_input_follow(const char *path, struct import_input **input, struct err *err);

/* A pipe with a name: its end is only that of its writers. More may come of others, as a new input. */
bool import_input_again(struct import_input *in);

/* Puts up to size plain bytes into out; *n == 0: the input has ended. Returns 0; or ERR_IO, ERR_CORRUPT (damaged or
 * cut off), ERR_NOMEM, with the file and the offset in it. */
int import_input_read(struct import_input *in, char *out, size_t size, size_t *n, struct err *err);

/* Whether a read would not wait, at most so long: 1, also at the end or when the read will fail; 0 not yet. */
int import_input_wait(const struct import_input *in, int ms);

/* Whether it is one that can be read only once: "-", or a pipe. */
bool import_is_pipe(const char *path);

/* Whether a path can be an input, without opening it, since a pipe can be opened only once. 0 or an error. */
int import_input_check(const char *path, struct err *err);

const char *import_input_name(const struct import_input *in); /* the path; "stdin" */
bool import_input_regular(const struct import_input *in);     /* a file that can be read a second time */
uint64_t import_input_size(const struct import_input *in);    /* in bytes as stored; 0: not known */
uint64_t import_input_done(const struct import_input *in);    /* of those, read so far */

#endif
