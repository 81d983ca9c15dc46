#include "store/factory.h"

#include "store/memory/memory_store.h"
#include "store/rados/rados_store.h"
#include "store/sqlite/sqlite_store.h"

static int open_sqlite(const struct config *cfg, struct store **store, struct err *err)
{
    return sqlite_store_begin(cfg, NULL, store, err);
}

static int open_memory(const struct config *cfg, struct store **store, struct err *err)
{
    return memory_store_open(cfg, NULL, store, err);
}

static int open_later(const struct config *cfg, struct store **store, struct err *err)
{
    return memory_store_open(cfg, &(struct memory_store_options){.later = true}, store, err);
}

static int open_rados(const struct config *cfg, struct store **store, struct err *err)
{
    return rados_store_open(cfg, NULL, store, err);
}

/* The order of enum config_store. */
const struct store_engine store_engines[] = {
    {"sqlite", open_sqlite},
    {"memory", open_memory},
    {"memory:later", open_later},
    {"rados", open_rados},
};
const size_t store_engines_count = sizeof store_engines / sizeof *store_engines;

int store_begin(const struct config *cfg, struct store **store, struct err *err)
{
    return store_engines[cfg->store].open(cfg, store, err);
}

int store_recover(struct store *store, store_progress *progress, void *arg, struct err *err)
{
    return store->ops->recover != NULL ? store->ops->recover(store, progress, arg, err) : 0;
}

int store_open(const struct config *cfg, struct store **store, struct err *err)
{
    int rc = store_begin(cfg, store, err);
    if (rc == 0 && (rc = store_recover(*store, NULL, NULL, err)) < 0) {
        (*store)->ops->close(*store);
        *store = NULL;
    }
    return rc;
}

const char *store_rados_version(const char *modules)
{
    return rados_library_version(modules);
}

const char *store_sqlite_version(void)
{
    return sqlite_store_library_version();
}
