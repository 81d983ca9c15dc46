/* What a worker's connections want recorded, gathered into batches for the store.
 *
 * All writes of one turn of the loop share a batch. It is handed in at the end of the turn, or when it is large; the
 * answer comes back through the queue and is passed to each connection in the order of its writes.
 */
#ifndef UNSEEN_NET_RECORDER_H
#define UNSEEN_NET_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "store/store.h"

struct batch;
struct conn;
struct worker;

enum { RECORDER_BATCH_BYTES = 1024 * 1024 };

struct recorder {
    struct batch *filling;
    struct batch *spare;
    size_t under_way; /* batches with the store */
};

/* Appends one command's event, of *bytes. conn_ops.recorded() follows later, never from within. Returns 0; ERR_NOMEM;
 * or ERR_BUSY when the memory for requests is used up: try again when kicked (the connection was put among the
 * starved). */
int worker_record(struct worker *w, struct conn *c, enum store_kind kind, int64_t at_ms, struct slice user,
                  const struct slice *items, const uint64_t *hashes, size_t n, size_t *bytes);

void recorder_submit(struct worker *w);
void recorder_free(struct worker *w);

#endif
