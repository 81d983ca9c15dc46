/* Scroll sessions over a restart: a table of staging.db that is filled at a clean stop, and emptied again by the next
 * start, in one transaction each. The stager does it, since it alone writes the file; the caller waits.
 */
#include "store/saved_sessions.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

struct kept_call {
    struct store_call call;                             /* first: answered like any other when the store closes */
    bool (*next)(void *arg, struct store_session *out); /* NULL: take them */
    void (*each)(void *arg, const struct store_session *kept);
    void *arg;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static void on_done(struct store_call *call)
{
    struct kept_call *c = (struct kept_call *)call;
    pthread_mutex_lock(&c->mutex);
    c->done = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

static int keep(struct db *db, struct kept_call *c, struct err *err)
{
    struct store_session session;
    int result = 0;
    while (result == 0 && c->next(c->arg, &session)) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_SESSION_INSERT, err);
        if (stmt != NULL) {
            db_bind_id(stmt, 1, session.name);
            sqlite3_bind_blob64(stmt, 2, session.ids.data, session.ids.len, SQLITE_STATIC);
            sqlite3_bind_int64(stmt, 3, session.used_ms);
        }
        result = db_run(db, stmt, err);
    }
    return result;
}

static int take(struct db *db, struct kept_call *c, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_SESSIONS_ALL, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct store_session session = {
            db_column_bytes(stmt, 0),
            db_column_bytes(stmt, 1),
            sqlite3_column_int64(stmt, 2),
        };
        c->each(c->arg, &session);
    }
    return result;
}

void kept_work(struct sqlite_store *s, struct store_message *m)
{
    struct kept_call *c = (struct kept_call *)m;
    struct db *db = &s->stager.db;
    struct err *err = &c->call.err;
    int result = db_begin(db, err);
    if (result == 0) {
        result = c->next != NULL ? db_run(db, db_stmt(db, SQL_SESSIONS_DELETE, err), err) : take(db, c, err);
        if (result == 0) {
            result = c->next != NULL ? keep(db, c, err) : db_run(db, db_stmt(db, SQL_SESSIONS_DELETE, err), err);
        }
        if (result == 0) {
            db_commit(db, err);
        } else {
            db_rollback(db);
        }
    }
    c->call.done(&c->call);
}

static int call_stager(struct store *base, struct kept_call *c, struct err *err)
{
    struct store_message *m = &c->call.message;
    m->kind = STORE_CALL;
    m->what = WANTS_SESSIONS;
    c->call.done = on_done;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->wake, NULL);
    thread_queue_put(&sqlite_store(base)->stager.queue, m);
    pthread_mutex_lock(&c->mutex);
    while (!c->done) {
        pthread_cond_wait(&c->wake, &c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    return c->call.err.code < 0 ? err_set(err, c->call.err.code, "%s", c->call.err.text) : 0;
}

int kept_put(struct store *base, bool (*next)(void *arg, struct store_session *out), void *arg, struct err *err)
{
    struct kept_call call = {.next = next, .arg = arg};
    return call_stager(base, &call, err);
}

int kept_take(struct store *base, void (*each)(void *arg, const struct store_session *kept), void *arg, struct err *err)
{
    struct kept_call call = {.each = each, .arg = arg};
    return call_stager(base, &call, err);
}
