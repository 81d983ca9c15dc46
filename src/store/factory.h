/* The engines that there are, and the one place that opens them. */
#ifndef UNSEEN_STORE_FACTORY_H
#define UNSEEN_STORE_FACTORY_H

#include "store/store.h"

struct store_engine {
    const char *name;                                                             /* as the option `store` says it */
    int (*open)(const struct config *cfg, struct store **store, struct err *err); /* store_begin() */
};
extern const struct store_engine store_engines[];
extern const size_t store_engines_count;

/* Opens the engine that the configuration names, so that it takes batches; store_recover() must follow. cfg must
 * outlive the store. Returns 0, or the engine's error. Blocks. */
int store_begin(const struct config *cfg, struct store **store, struct err *err);

/* ops->recover(), where the engine has it. */
int store_recover(struct store *store, store_progress *progress, void *arg, struct err *err);

/* Both; a store that can't be recovered is closed. */
int store_open(const struct config *cfg, struct store **store, struct err *err);

/* Of the SQLite that runs, such as "3.40.1". */
const char *store_sqlite_version(void);

/* Of the librados that would be loaded, such as "3.0.0"; "not installed"; "not usable". modules: the option, or NULL.
 */
const char *store_rados_version(const char *modules);

#endif
