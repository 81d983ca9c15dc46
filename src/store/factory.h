/* The engines that there are, and the one place that opens them. */
#ifndef UNSEEN_STORE_FACTORY_H
#define UNSEEN_STORE_FACTORY_H

#include "store/store.h"

/* Called now and then while what is staged is recovered, with how many rows have been read. */
typedef void store_progress(uint64_t rows);

struct store_engine {
    const char *name; /* as the option `store` says it */
    int (*open)(const struct config *cfg, store_progress *progress, struct store **store, struct err *err);
};
extern const struct store_engine store_engines[];
extern const size_t store_engines_count;

/* Opens the engine that the configuration names; progress may be NULL. cfg must outlive the store. Returns 0, or the
 * engine's error. Blocks. */
int store_open(const struct config *cfg, store_progress *progress, struct store **store, struct err *err);

/* Of the SQLite that runs, such as "3.40.1". */
const char *store_sqlite_version(void);

/* Of the librados that would be loaded, such as "3.0.0"; "not installed"; "not usable". modules: the option, or NULL.
 */
const char *store_rados_version(const char *modules);

#endif
