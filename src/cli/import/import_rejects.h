/* The file of --rejects: each line that was not loaded, with its place and why, so that it can be mended and imported.
 *
 *   FILE:LINE<tab>why<tab>the line as it came
 *
 * What was added is on disk once import_rejects_sync() has returned. A group of lines that is to come again (a server
 * was away) is taken back by import_rejects_drop(). One thread.
 */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_REJECTS_H
#define UNSEEN_CLI_IMPORT_IMPORT_REJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct import_rejects;

/* append: behind what is in the file; else there must be none with anything in it. max: more are an error. path must
 * outlive it. ERR_IO, ERR_NOMEM. */
int import_rejects_open(const char *path, bool append, uint64_t max, struct import_rejects **rejects, struct err *err);
void import_rejects_close(struct import_rejects *r);

/* Whether that path is the same file. */
bool import_rejects_is(const struct import_rejects *r, const char *path);

/* raw: as it came; empty where the input is gone. A failure shows at the next import_rejects_good(). */
void import_rejects_add(struct import_rejects *r, const char *file, uint64_t line, const char *why, struct slice raw);

/* 0; ERR_INVALID: there were more than max; ERR_NOMEM; ERR_IO. */
int import_rejects_good(struct import_rejects *r, struct err *err);

int import_rejects_sync(struct import_rejects *r, struct err *err);
void import_rejects_drop(struct import_rejects *r); /* those since the last sync */

#endif
