/* What a loop's connections want recorded, gathered into batches for the store.
 *
 * All writes of one turn of the loop share a batch. It is handed in at the end of the turn, or when it is large; the
 * answer comes back through the queue and is passed to each connection in the order of its writes. For an engine whose
 * batches are answered in any order (store.by_user) a batch is of one user: none waits for another one's.
 *
 * When the store says that the disk does not answer (store_ops.stalled), those who wait are told: their writes may
 * become durable, or not. Further ones are refused until it answers.
 */
#ifndef UNSEEN_SERVICE_RECORDER_H
#define UNSEEN_SERVICE_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "store/store.h"

struct batch;
struct conn;
struct sent_record;
struct service_loop;

enum { RECORDER_BATCH_BYTES = 1024 * 1024 };

struct recorder {
    struct batch *filling;
    struct batch *spare;
    struct batch *first, **end; /* with the store, in their order; end NULL: none ever was */
    size_t under_way;           /* as many */
    struct err stalled;         /* code ERR_BUSY: the store is stalled, as of the last look */
};

/* One command's event. */
struct recorded {
    enum store_kind kind;
    int64_t at_ms;
    enum store_time time;
    struct slice user;
    const struct slice *items;
    const uint64_t *hashes;
    const uint64_t *groups; /* as store_batch_add_groups() takes them */
    size_t n;
    struct sent_record *sent; /* told what becomes of it, once it was added; NULL: it is no question's answer */
};

/* Whether so many bytes of items may be recorded now. Else the connection waits in line for that, and is kicked. */
bool recorder_has_room(struct service_loop *l, struct conn *c, size_t item_bytes);

/* Appends one command's event, which takes *bytes. conn_ops.recorded() follows later, never from within. Returns 0;
 * ERR_NOMEM; or ERR_BUSY as recorder_has_room(), unless that was asked. */
int recorder_add(struct service_loop *l, struct conn *c, const struct recorded *r, bool has_room, size_t *bytes);

/* Now and then: whether the store is stalled. */
void recorder_look(struct service_loop *l);

void recorder_submit(struct service_loop *l);
void recorder_free(struct recorder *r);

#endif
