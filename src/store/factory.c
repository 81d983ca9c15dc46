#include "store/factory.h"

#include "store/memory/memory_store.h"
#include "store/rados/rados_store.h"
#include "store/sqlite/sqlite_store.h"

static void on_progress(void *arg, uint64_t rows)
{
    store_progress *const *progress = arg;
    (*progress)(rows);
}

static int open_sqlite(const struct config *cfg, store_progress *progress, struct store **store, struct err *err)
{
    const struct sqlite_store_options options = {.progress = progress != NULL ? on_progress : NULL,
                                                 .arg = (void *)&progress};
    return sqlite_store_open(cfg, &options, store, err);
}

static int open_memory(const struct config *cfg, store_progress *progress, struct store **store, struct err *err)
{
    (void)progress;
    return memory_store_open(cfg, NULL, store, err);
}

static int open_later(const struct config *cfg, store_progress *progress, struct store **store, struct err *err)
{
    (void)progress;
    return memory_store_open(cfg, &(struct memory_store_options){.later = true}, store, err);
}

static int open_rados(const struct config *cfg, store_progress *progress, struct store **store, struct err *err)
{
    (void)progress;
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

int store_open(const struct config *cfg, store_progress *progress, struct store **store, struct err *err)
{
    return store_engines[cfg->store].open(cfg, progress, store, err);
}

const char *store_rados_version(const char *modules)
{
    return rados_library_version(modules);
}

const char *store_sqlite_version(void)
{
    return sqlite_store_library_version();
}
