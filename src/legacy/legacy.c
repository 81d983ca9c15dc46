/* The migration's interface: its start and end, and what any thread may ask. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "legacy/migration_impl.h"

int legacy_start(const struct dedup *dedup, struct legacy **legacy, struct err *err)
{
    *legacy = NULL;
    if (config_legacy(dedup->cfg)[0] == '\0') {
        return 0;
    }
    if (dedup->store->migration == NULL || dedup->store->bulk == NULL) {
        return store_lacks(dedup->store, "users who are to come from another Redis (legacy_redis)", err);
    }
    struct legacy *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the migration");
    }
    l->dedup = dedup;
    l->cfg = dedup->cfg;
    l->store = dedup->store;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_mutex_init(&l->reader_mutex, NULL);
    task_init(&l->task, &l->mutex);
    priority_users_init(&l->first);
    migration_state_init(&l->state);
    migration_disconnect(l); /* makes all spare */
    int rc = migration_batch_new(l->store, &l->task.heartbeat, &l->batch, err);
    if (rc == 0) {
        rc = l->store->ops->reader_open(l->store, &l->reader, err);
    }
    if (rc == 0) {
        rc = l->store->ops->reader_open(l->store, &l->problems_reader, err);
    }
    rc = rc < 0 ? rc : task_start(&l->task, "migration", TASK_BEATS, migration_main, l, err);
    if (rc < 0) {
        if (l->reader != NULL) {
            l->store->ops->reader_close(l->reader);
        }
        if (l->problems_reader != NULL) {
            l->store->ops->reader_close(l->problems_reader);
        }
        legacy_free(l);
        return rc;
    }
    *legacy = l;
    return 0;
}

void legacy_stop(struct legacy *l)
{
    if (l == NULL) {
        return;
    }
    task_ask_stop(&l->task);
    pthread_mutex_lock(&l->mutex);
    if (l->redis != NULL) {
        redis_interrupt(l->redis);
    }
    pthread_mutex_unlock(&l->mutex);
    task_stop(&l->task);
    l->store->ops->reader_close(l->reader);
    l->store->ops->reader_close(l->problems_reader);
}

void legacy_free(struct legacy *l)
{
    if (l != NULL) {
        migration_batch_free(l->batch);
        arena_free(&l->arena);
        priority_users_free(&l->first);
        migration_state_free(&l->state);
        task_destroy(&l->task);
        pthread_mutex_destroy(&l->mutex);
        pthread_mutex_destroy(&l->reader_mutex);
        free(l);
    }
}

void legacy_wake(struct legacy *l)
{
    if (l != NULL) {
        pthread_mutex_lock(&l->mutex);
        task_wake(&l->task);
        pthread_mutex_unlock(&l->mutex);
    }
}

void legacy_first(struct legacy *l, int64_t key, struct slice user)
{
    if (l != NULL) {
        priority_users_put(&l->first, key, user, clock_real_us());
    }
}

void legacy_state(struct legacy *l, struct legacy_state *out)
{
    migration_state_get(&l->state, out);
    l->store->migration->state(l->store, &out->users_to_migrate);
}

int legacy_problems(struct legacy *l, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    pthread_mutex_lock(&l->reader_mutex);
    int n = l->store->migration->problems(l->problems_reader, out, max, arena, err);
    pthread_mutex_unlock(&l->reader_mutex);
    return n;
}
