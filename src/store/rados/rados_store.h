/* The engine on Ceph RADOS: users are objects of a pool (layout.h), and any number of nodes serve them, none of which
 * keeps anything. docs/rados.md is for those who run it. */
#ifndef UNSEEN_STORE_RADOS_RADOS_STORE_H
#define UNSEEN_STORE_RADOS_RADOS_STORE_H

#include "store/rados/cluster.h"
#include "store/store.h"

struct rados_store_options {
    const struct cluster_ops *ops; /* NULL: those of the module unseen_rados.so */
    int64_t built_ms;              /* no clock before it is believed; 0: clock_built_ms() */
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

/* Of librados, which counts otherwise than Ceph: "3.0.0", "not installed", "not usable". folder: of the modules, or
 * NULL. */
const char *rados_library_version(const char *folder);

#endif
