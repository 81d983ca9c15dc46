/* The engine on Ceph RADOS: users are objects of a pool (layout.h), and any number of nodes serve them, none of which
 * keeps anything. docs/rados.md is for those who run it. */
#ifndef UNSEEN_STORE_RADOS_RADOS_STORE_H
#define UNSEEN_STORE_RADOS_RADOS_STORE_H

#include "store/export.h"
#include "store/rados/cluster.h"
#include "store/store.h"

/* What a pool is opened for. A command opens it beside the nodes that serve it, and does none of their work. */
enum rados_store_use {
    RADOS_SERVES, /* a node: merges what it sees, and walks at night */
    RADOS_LOADS,  /* brings users and plays in; no nightly walk */
    RADOS_ASKS,   /* reads alone: all that would write is ERR_READONLY, and the key needs no right to */
};

struct rados_store_options {
    const struct cluster_ops *ops; /* NULL: those of the module unseen_rados.so */
    int64_t built_ms;              /* no clock before it is believed; 0: clock_built_ms() */
    enum rados_store_use use;
};

/* cfg must outlive the store. Blocks, rados_timeout at most. ERR_ABSENT: the module is not there; ERR_NOTFOUND: no
 * pool, or no meta in it: rados_store_init() makes it; ERR_SEED; ERR_VERSION; ERR_INVALID: error_rate is not the
 * pool's; and those of cluster_ops.connect. */
int rados_store_open(const struct config *cfg, const struct rados_store_options *options, struct store **store,
                     struct err *err);

/* Makes `meta` in a pool that has none, with cfg's hash_seed or a drawn one, and its error_rate. Two that do so at once
 * end with one meta. 1: made; 0: there was one, which fits cfg; or an error, also ERR_CORRUPT: users are there, and no
 * meta. Blocks. */
int rados_store_init(const struct config *cfg, const struct cluster_ops *ops, struct err *err);

/* Walks all users now, as the nodes do in four weeks of nights: merges, seals, takes out what is past retention. Blocks
 * for as long as that takes. ERR_CLOSED; or the first user's error: the others were walked. */
int rados_store_walk(struct store *store, struct err *err);

/* Packs users (store/codec/user_snapshot.h) out of a pool, in the order of their keys: those whose key is from .. to
 * and that wanted() takes. Nodes may serve it meanwhile: nothing is written to it. Each user is as at one moment, and
 * all that was acknowledged before the call is there; two users may be of different moments. A user of whom nothing is
 * left but when they were forgotten is packed as well. What can't be read is left out, marked in the snapshot, and
 * reported to damaged(). An object that is there and isn't answered for ends it. Ids of all users are sorted in a
 * temporary file, if they are many. */
struct rados_export {
    const struct cluster_ops *ops; /* as in the options above */
    uint64_t rate;                 /* users a second; 0: no limit */
    struct slice only;             /* this user alone; data NULL: all */
};

/* Returns 0; what begin() or snapshot() returned; or an error. Blocks. */
int rados_export_pool(const struct config *cfg, const struct rados_export *of, const struct store_export *e,
                      struct err *err);

/* Reads a pool through, and changes nothing: whether each object is one that Unseen writes, each key and value of it
 * is sound, and they fit each other: filters and the directory, the generation, tombstones, deliveries and their hash;
 * and when the nightly walk came by last. Calls found() with a sentence for each problem. */
struct rados_check {
    const struct cluster_ops *ops;
    uint64_t rate; /* objects a second; 0: no limit */
    void (*found)(void *arg, const char *problem);
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
};
struct rados_checked {
    uint64_t objects, users; /* users: of whom there is something */
    uint64_t forgotten;      /* of whom there is nothing but when they were forgotten */
    uint64_t plays, waiting; /* in filters; and not yet */
};

/* Returns 0 once it has read everything, with problems or not; or an error. Blocks. */
int rados_check_pool(const struct config *cfg, const struct rados_check *order, struct rados_checked *out,
                     struct err *err);

/* Of librados, which counts otherwise than Ceph: "3.0.0", "not installed", "not usable". folder: of the modules, or
 * NULL. */
const char *rados_library_version(const char *folder);

#endif
