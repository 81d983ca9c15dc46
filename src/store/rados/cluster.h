/* The seam to a cluster: one pool of it, and what the engine asks of that. Two implementations: librados
 * (module/librados.c, alone in unseen_rados.so), and a pool in memory for unit tests (tests/lib/memory_pool.h), with
 * the same rules.
 *
 * read and write are asynchronous. Each returns at once, and `done` is called once, on a thread of the implementation,
 * never from within the call. All that an operation points to is the caller's and lives until then. An operation is
 * atomic: of a write all or nothing is carried out; what a read gives is of one moment. Writes of one connection to one
 * object take effect in the order in which they were begun; other operations in any.
 *
 * Each operation ends: with an answer, or after the connection's time limit with CLUSTER_LATE. A write that ended so,
 * or with CLUSTER_FAILED, may have been carried out, or be carried out later; one with CLUSTER_FENCED may have been
 * carried out, and is not later.
 */
#ifndef UNSEEN_STORE_RADOS_CLUSTER_H
#define UNSEEN_STORE_RADOS_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct cluster; /* a connection to one pool */

enum cluster_result {
    CLUSTER_DONE,
    CLUSTER_ABSENT,  /* there is no such object */
    CLUSTER_EXISTS,  /* there is one, and it was to be made */
    CLUSTER_DIFFERS, /* a guard doesn't hold: nothing was done, or read */
    CLUSTER_LATE,    /* no answer in time */
    CLUSTER_FULL,    /* cluster or pool take nothing more */
    CLUSTER_FENCED,  /* this client is blocklisted, for good: another one has to connect (reconnect.h) */
    CLUSTER_NO_POOL, /* the pool was removed */
    CLUSTER_DENIED,  /* the client's key doesn't allow it */
    CLUSTER_LARGE,   /* a value is longer than the reader takes it: see length, most */
    CLUSTER_NOMEM,
    CLUSTER_CLOSED, /* it was cancelled */
    CLUSTER_FAILED, /* anything else: see code */
};

struct cluster_pair {
    struct slice key, value;
};

struct cluster_op {
    const char *object;
    enum cluster_result result;
    int code;            /* the cluster's own: a positive errno */
    uint64_t version;    /* of the object, as it was read or written; rises with each write, also over a removal */
    size_t length, most; /* of CLUSTER_LARGE: a value's bytes, and how many it may have */
    void (*done)(struct cluster_op *op);
    void *owner;                         /* the caller's */
    void *own;                           /* the implementation's, while it is under way */
    void *by;                            /* reconnect.c's, while it is under way; */
    void (*then)(struct cluster_op *op); /* and what done was */
};

/* Keys that begin with `prefix`, in the order of their bytes behind `after`. */
struct cluster_range {
    const char *prefix, *after; /* "": no bound */
    uint32_t max;               /* at most CLUSTER_PAGE count */
    bool more;                  /* out: there are more */
};

/* An OSD gives so many in one go (osd_max_omap_entries_per_request). */
enum { CLUSTER_PAGE = 1024, CLUSTER_RANGES = 6, CLUSTER_ADDRESS = 128 };
/* Nor does it take more in one write (osd_max_write_size). */
enum { CLUSTER_WRITE = 90 << 20 };
/* Of a monitor's answer: a map of ten thousand OSDs has some 20 MiB. */
enum { CLUSTER_ANSWER = 64 << 20 };

struct cluster_read {
    struct cluster_op op; /* first */
    const struct slice *keys;
    size_t n_keys;
    struct cluster_range ranges[CLUSTER_RANGES];
    size_t n_ranges;
    const struct cluster_pair *below; /* a guard: this key's value, "" if it is absent, sorts below that; NULL: none */
    /* How long the key's value may be, for one that keeps values: their sizes aren't known before they are there. One
     * that is longer ends the read with CLUSTER_LARGE. NULL: as long as it is. */
    size_t (*most)(struct slice key);
    /* Each pair, before done: keys that there are, in any order, with range = -1; then each range's in its order. The
     * slices live until it returns. Not called again in a read whose result is no CLUSTER_DONE. */
    void (*pair)(struct cluster_read *read, int range, struct slice key, struct slice value);
};

/* Of an implementation: whether the pair is handed over. */
static inline bool cluster_takes(struct cluster_read *read, struct slice key, struct slice value)
{
    size_t most = read->most != NULL ? read->most(key) : value.len;
    if (value.len > most) {
        read->op.result = CLUSTER_LARGE;
        read->op.length = value.len;
        read->op.most = most;
    }
    return value.len <= most;
}

/* Guards first; then clear, set, remove, in this order; or destroy. The object is made unless it exists, but a guard or
 * clear of one that doesn't is CLUSTER_ABSENT. */
struct cluster_write {
    struct cluster_op op;              /* first */
    bool exclusive;                    /* guard: the object doesn't exist. CLUSTER_EXISTS */
    uint64_t version;                  /* guard: it has this one; 0: none */
    const struct cluster_pair *equals; /* guards: each of these keys has this value; "": it is absent */
    size_t n_equals;
    bool clear;                     /* the whole omap */
    const struct cluster_pair *set; /* of equal keys the last counts */
    size_t n_set;
    const struct slice *remove;
    size_t n_remove;
    bool destroy; /* the object goes */
    /* While the cluster is full a write waits, up to the time limit; but: */
    bool must;    /* it is carried out, since it makes room */
    bool attempt; /* one that makes the object is CLUSTER_FULL at once; any other is carried out */
};

struct cluster_options {
    const char *conf; /* path; "": where Ceph looks */
    const char *user; /* "client.unseen" */
    const char *pool;
    int64_t timeout_ms; /* of each operation, and of the connection */
};

/* A piece of the pool's hash space as it is listed. */
struct cluster_listing;

/* Any thread may call any function. What blocks ends within the time limit. */
struct cluster_ops {
    const char *(*version)(void); /* of the library, such as "3.0.0" */

    /* Blocks. ERR_NOTFOUND: no such pool, or no configuration; ERR_NOPERM; ERR_LATE: no monitor answers; ERR_SYSTEM. */
    int (*connect)(const struct cluster_options *options, struct cluster **cluster, struct err *err);
    /* Under which address the cluster knows this client, such as osd blocklist add takes; "": none. */
    void (*address)(struct cluster *cluster, char *out, size_t size);
    /* Blocks. Nothing is under way any more. */
    void (*disconnect)(struct cluster *cluster);

    /* ERR_NOMEM: it was not begun, and done isn't called. */
    int (*read)(struct cluster *cluster, struct cluster_read *read);
    int (*write)(struct cluster *cluster, struct cluster_write *write);
    /* Of an operation whose done has not begun, while it can't: ends it soon, with CLUSTER_CLOSED or its own result. */
    void (*cancel)(struct cluster *cluster, struct cluster_op *op);

    /* Blocks. Asks the monitors: a command as JSON. The answer is the caller's, to be freed. ERR_NOPERM, ERR_LATE,
     * ERR_IO with the monitor's own words, ERR_LARGE beyond CLUSTER_ANSWER, ERR_NOMEM. */
    int (*command)(struct cluster *cluster, const char *json, char **text, size_t *len, struct err *err);

    /* Blocks. An advisory lock on an object, which is made; it ends by itself after so many seconds. 1: it is ours, or
     * was and is renewed; 0: another has it; or ERR_LATE, ERR_IO. */
    int (*lock)(struct cluster *cluster, const char *object, const char *cookie, int seconds, struct err *err);
    int (*unlock)(struct cluster *cluster, const char *object, const char *cookie, struct err *err);

    /* The objects of the i-th of n pieces. list_next blocks: calls `name` for at most `max` objects; 1: go on; 0: that
     * was the end; or ERR_LATE, ERR_IO, ERR_NOMEM. An object that is made or removed meanwhile is listed or not; any
     * other exactly once. */
    int (*list)(struct cluster *cluster, size_t i, size_t n, struct cluster_listing **listing, struct err *err);
    int (*list_next)(struct cluster_listing *listing, size_t max, void (*name)(void *arg, const char *object),
                     void *arg, struct err *err);
    void (*list_end)(struct cluster_listing *listing);
};

#endif
