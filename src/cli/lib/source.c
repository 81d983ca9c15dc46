#include "cli/lib/source.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cli/lib/options.h"
#include "cli/lib/store_wait.h"
#include "net/client.h"
#include "store/factory.h"
#include "store/rados/rados_store.h"
#include "store/sqlite/sqlite_store.h"

struct direct {
    struct source source;
    struct dedup dedup;
    struct asker *asker;
};

static int direct_history(struct source *s, struct slice user, struct history *out, struct err *err)
{
    return asker_history(((struct direct *)s)->asker, user, out, err);
}

static int direct_why(struct source *s, struct slice user, struct slice item, struct place *places, struct err *err)
{
    struct direct *d = (struct direct *)s;
    return asker_why(d->asker, user, hash_id(d->dedup.seed, item), places, err);
}

static int direct_months(struct source *s, struct store_month_info *out, int max, struct err *err)
{
    return asker_months(((struct direct *)s)->asker, out, max, err);
}

static int direct_clock(struct source *s, enum source_clock what, struct store_clock *out, struct err *err)
{
    struct store *store = ((struct direct *)s)->dedup.store;
    if (strcmp(store->engine, "rados") == 0) {
        return err_set(err, ERR_ABSENT, "the clock of a pool is for its nodes to change: send CLOCK to one of them");
    }
    int rc = what == SOURCE_CLOCK_LOOK ? 0 : store_wait_clock(store, what == SOURCE_CLOCK_SET_BACK, err);
    store->ops->clock(store, out);
    return rc;
}

/* Not by store_wait.h, since progress is shown meanwhile. */
struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static void on_backup_done(struct store_backup *backup)
{
    struct waiting *w = backup->owner;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

static int direct_backup(struct source *s, const char *folder, struct source_backup *out, struct err *err)
{
    struct store *store = ((struct direct *)s)->dedup.store;
    if (store->admin->backup == NULL) {
        return err_set(err, ERR_ABSENT,
                       "the store \"%s\" has no folder to copy: unseen export makes a copy of its users",
                       store->engine);
    }
    struct waiting w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    struct store_backup backup = {.folder = folder, .done = on_backup_done, .owner = &w};
    store->admin->backup(store, &backup);
    pthread_mutex_lock(&w.mutex);
    while (!w.done) {
        clock_cond_wait_real(&w.wake, &w.mutex, SOURCE_POLL_MS);
        if (!w.done) {
            struct store_backup_state state;
            pthread_mutex_unlock(&w.mutex);
            store->admin->backup_state(store, &state);
            out->progress(out->arg, store_backup_phase_name(state.phase), state.done, state.total);
            pthread_mutex_lock(&w.mutex);
        }
    }
    pthread_mutex_unlock(&w.mutex);
    out->bytes = backup.bytes;
    out->problems = backup.problems;
    out->took_ms = backup.took_ms;
    return backup.err.code < 0 ? err_set(err, backup.err.code, "%s", backup.err.text) : 0;
}

static void direct_close(struct source *s)
{
    struct direct *d = (struct direct *)s;
    asker_close(d->asker);
    d->dedup.store->ops->close(d->dedup.store);
    free(d);
}

int source_direct(const struct config *cfg, struct source **source, struct err *err)
{
    static const struct source_ops ops = {direct_history, direct_why,    direct_months,
                                          direct_clock,   direct_backup, direct_close};
    struct direct *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    d->source.ops = &ops;
    struct store *store;
    const struct rados_store_options asks = {.use = RADOS_ASKS};
    int rc =
        cfg->store == STORE_ENGINE_RADOS ? rados_store_open(cfg, &asks, &store, err) : store_open(cfg, &store, err);
    if (rc < 0) {
        free(d);
        return rc;
    }
    dedup_init(&d->dedup, store, cfg);
    rc = asker_open(&d->dedup, &d->asker, err);
    if (rc < 0) {
        store->ops->close(store);
        free(d);
        return rc;
    }
    *source = &d->source;
    return 0;
}

static int ask_server(const struct config *cfg, const char *address, struct source **source, struct err *err)
{
    const char *password;
    int rc = client_prepare(cfg, &password, err);
    return rc < 0 ? rc : source_remote(address, password, source, err);
}

int source_open(const struct config *cfg, const char *to, struct source **source, struct err *err)
{
    char address[CONFIG_TEXT + 16];
    struct stat st;
    if (to != NULL) {
        return ask_server(cfg, to, source, err);
    }
    if (cfg->store == STORE_ENGINE_RADOS) {
        return source_direct(cfg, source, err);
    }
    int rc = cli_options_has_folder(cfg, err);
    if (rc < 0) {
        return rc;
    }
    if (stat(cfg->data, &st) < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_SYSTEM,
                       "data folder %s: %s (another is named with --data DIR or -c FILE)", cfg->data, strerror(errno));
    }
    if (!sqlite_store_holds_data(cfg->data)) {
        return err_set(err, ERR_NOTFOUND, "%s holds no data of Unseen", cfg->data);
    }
    rc = source_direct(cfg, source, err);
    if (rc == ERR_READONLY) {
        struct err why = *err;
        return err_set(err, rc,
                       "%s (opening it writes into it: copy both files into a folder of your own; unseen check "
                       "and unseen export only read)",
                       why.text);
    }
    if (rc != ERR_LOCKED) {
        return rc;
    }
    if (sqlite_store_address(cfg->data, address, sizeof address, err) < 0 || address[0] == '\0') {
        return err_set(err, ERR_LOCKED,
                       "data folder %s is in use by a process that answers no questions: it is starting, or an import",
                       cfg->data);
    }
    return ask_server(cfg, address, source, err);
}

int source_history(struct source *s, struct slice user, struct history *out, struct err *err)
{
    return s->ops->history(s, user, out, err);
}

int source_why(struct source *s, struct slice user, struct slice item, struct place places[PLACES_MAX], struct err *err)
{
    return s->ops->why(s, user, item, places, err);
}

int source_months(struct source *s, struct store_month_info *out, int max, struct err *err)
{
    return s->ops->months(s, out, max, err);
}

int source_clock(struct source *s, enum source_clock what, struct store_clock *out, struct err *err)
{
    return s->ops->clock(s, what, out, err);
}

int source_backup(struct source *s, const char *folder, struct source_backup *backup, struct err *err)
{
    return s->ops->backup(s, folder, backup, err);
}

void source_close(struct source *s)
{
    s->ops->close(s);
}
