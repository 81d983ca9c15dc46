/* Events for what bypasses staging: of each user whom an import or a bulk load has brought, once history has them
 * durably, and before those who wait are told. A crash in between is told to none: the import is repeated, and so is a
 * load. */
#include <string.h>

#include "base/log.h"
#include "store/codec/user_snapshot.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { CHUNK_USERS = 1024 }; /* of one transaction; plays wait for it */

int feed_transaction(struct sqlite_store *s,
                     int (*add)(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err), void *arg,
                     uint64_t *last, struct err *err)
{
    struct stager *st = &s->stager;
    uint64_t from = st->next_id, id = from;
    int result = st->db.lost ? db_reopen(&st->db, err) : 0;
    if (result < 0 || (result = db_begin(&st->db, err)) < 0) {
        return result;
    }
    result = stager_undo(s, err);
    if (result == 0) {
        result = add(s, arg, &id, err);
    }
    if (result == 0) {
        result = feed_before_commit(s, err);
    }
    st->next_id = id;
    if (result == 0) {
        result = db_commit(&st->db, err);
    } else {
        db_rollback(&st->db);
    }
    if (result < 0) {
        feed_failed(s);
        stager_undo_later(s, from, id);
        return result;
    }
    st->undo_from = 0;
    *last = id - 1;
    store_raise_left(s, id - 1); /* before the import is answered: it was never in memory */
    feed_committed(s, id - 1);
    return 0;
}

/* --- an import --- */

static int add_imported(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err)
{
    const struct store_import *import = arg;
    struct arena arena = {0};
    int result = 0;
    for (size_t i = 0; i < import->n && result == 0; i++) {
        struct user_snapshot p;
        bool joined = import->verdicts[i] == IMPORT_DONE || import->verdicts[i] == IMPORT_OVER;
        if (joined && (result = user_snapshot_decode(import->snapshots[i].data, import->snapshots[i].len, &arena, &p,
                                                     err)) == 0) {
            result = feed_add_user(s, p.user, (*id)++, err);
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    return result;
}

void import_feed(struct sqlite_store *s, struct store_message *m)
{
    struct store_import *import = (struct store_import *)m;
    feed_transaction(s, add_imported, import, &import->seq, &import->call.err);
    import_answer(s, import);
}

/* --- a bulk load --- */

/* Its users, some at a time; the load waits for it. */
struct load_users {
    struct store_call call; /* first */
    struct staged_walk walk;
    bool at_end;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static int add_loaded(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err)
{
    struct load_users *load = arg;
    int result = 0;
    for (int i = 0; i < CHUNK_USERS && result == 0 && !load->at_end; i++) {
        int at = staged_walk_next(&load->walk);
        if (at < 0) {
            return err_set(err, ERR_NOMEM, "out of memory while users are noted for replicas");
        }
        load->at_end = at == 0;
        result = at == 1 ? feed_add_user(s, load->walk.user, (*id)++, err) : 0;
    }
    return result;
}

void load_feed(struct sqlite_store *s, struct store_message *m)
{
    struct load_users *load = (struct load_users *)m;
    uint64_t last;
    if (feed_transaction(s, add_loaded, load, &last, &load->call.err) == 0 && !load->at_end) {
        thread_queue_put(&s->stager.queue, m); /* behind what came meanwhile */
        return;
    }
    load->call.done(&load->call);
}

static void on_done(struct store_call *call)
{
    struct load_users *load = (struct load_users *)call;
    pthread_mutex_lock(&load->mutex);
    load->done = true;
    pthread_cond_signal(&load->wake);
    pthread_mutex_unlock(&load->mutex);
}

int feed_loaded(struct sqlite_store *s, const struct staged *index, struct err *err)
{
    struct load_users load = {.call = {.message = {.kind = STORE_CALL, .what = WANTS_LOADED}, .done = on_done}};
    if (!feed_takes(s)) {
        return 0;
    }
    pthread_mutex_init(&load.mutex, NULL);
    pthread_cond_init(&load.wake, NULL);
    staged_walk_begin(&load.walk, index, INT64_MIN);
    thread_queue_put(&s->stager.queue, &load.call.message);
    pthread_mutex_lock(&load.mutex);
    while (!load.done) {
        pthread_cond_wait(&load.wake, &load.mutex);
    }
    pthread_mutex_unlock(&load.mutex);
    staged_walk_free(&load.walk);
    pthread_cond_destroy(&load.wake);
    pthread_mutex_destroy(&load.mutex);
    return load.call.err.code < 0 ? err_set(err, load.call.err.code, "%s", load.call.err.text) : 0;
}
