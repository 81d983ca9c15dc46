/* Loads events into a running server: PLAYEDAT, pipelined, the items of a user and time that follow each other in one
 * command. One thread.
 */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_REMOTE_H
#define UNSEEN_CLI_IMPORT_IMPORT_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/import/import_reader.h"
#include "cli/import/import_tally.h"
#include "cli/lib/progress.h"

struct import_remote;

struct import_remote_how {
    const char *address, *password; /* these outlive the import */
    bool once;                      /* the caller sends all of it again after any error (cli/lib/pipeline.h) */
    struct progress *progress;      /* what is drawn meanwhile, or NULL */
};

/* Connects, waits while the server is loading, and asks for its retention. Returns 0, or an error that names the
 * address. */
int import_remote_open(const struct import_remote_how *how, struct import_remote **remote, int64_t *retention,
                       struct err *err);
void import_remote_close(struct import_remote *r);

/* Adds an event of file:line, whose ids must live until import_remote_flush(). What the server refuses is counted in
 * the tally when its answer comes. What the server is too busy for, or had not answered when it went away, is sent
 * again. Returns 0; or an error that ends the import: the server stays away, or takes nothing. */
int import_remote_add(struct import_remote *r, const struct import_event *event, const char *file, uint64_t line,
                      struct import_tally *tally, struct err *err);

/* The same for a delivery of n items, which the server takes as of now. They may go at once. */
int import_remote_deliver(struct import_remote *r, struct slice user, const struct slice *items, size_t n,
                          const char *file, uint64_t line, struct import_tally *tally, struct err *err);

/* Hands on what was added, so that its ids may go. */
int import_remote_flush(struct import_remote *r, struct import_tally *tally, struct err *err);

/* Flushes, and waits for every answer: everything added and not refused is durable then. What the server has dropped
 * meanwhile, of this import or another writer, because it was not newer than a forget, leaves the tally's events; not
 * where the account may not ask for that. */
int import_remote_end(struct import_remote *r, struct import_tally *tally, struct err *err);

#endif
