/* Meta's rows are node, role, term, promoted, leader and leader_address; they are written in one transaction, and
 * memory follows once that is durable. */
#include "store/sqlite/staging/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/state.h"

struct run {
    uint64_t run, first; /* no seq of it is lower */
};

struct node {
    pthread_mutex_t mutex; /* guards: */
    struct store_node now;
    struct run runs[NODE_RUNS_MAX];
    int n;
};

static int random_id(uint64_t *id, struct err *err)
{
    do {
        if (getrandom(id, sizeof *id, 0) != sizeof *id) {
            return err_set(err, ERR_SYSTEM, "can't get a random number for the name of this node");
        }
    } while (*id == 0);
    return 0;
}

/* --- reading --- */

static int read_text(struct db *db, const char *name, char *out, size_t size, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    }
    int result = db_step(db, stmt, err);
    out[0] = '\0';
    if (result == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        snprintf(out, size, "%s", text != NULL ? text : "");
        sqlite3_reset(stmt);
    }
    return result < 0 ? result : 0;
}

static int read_self(struct db *db, struct store_node *out, struct err *err)
{
    int64_t node, role, term, promoted, leader;
    int result = db_meta_int(db, "node", 0, INT64_MIN, INT64_MAX, &node, err);
    if (result < 0 || (result = db_meta_int(db, "role", NODE_PRIMARY, 0, NODE_ROLES - 1, &role, err)) < 0 ||
        (result = db_meta_int(db, "term", 1, 1, INT64_MAX / 2, &term, err)) < 0 ||
        (result = db_meta_int(db, "promoted", 0, 0, 1, &promoted, err)) < 0 ||
        (result = db_meta_int(db, "leader", 0, INT64_MIN, INT64_MAX, &leader, err)) < 0 ||
        (result = read_text(db, "leader_address", out->address, sizeof out->address, err)) < 0) {
        return result;
    }
    if (slice_has_control(slice_str(out->address))) { /* it is shown, in lines that end with CR LF */
        return err_set(err, ERR_CORRUPT, "%s: leader_address in meta is no address", db->path);
    }
    out->node = (uint64_t)node;
    out->role = (enum node_role)role;
    out->term = (uint64_t)term;
    out->promoted = promoted != 0;
    out->leader = (uint64_t)leader;
    return 0;
}

static int read_runs(struct db *db, struct node *n, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_RUNS_ALL, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (n->n == NODE_RUNS_MAX) {
            memmove(n->runs, n->runs + 1, (NODE_RUNS_MAX - 1) * sizeof *n->runs);
            n->n--;
        }
        n->runs[n->n++] =
            (struct run){(uint64_t)sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 1)};
    }
    return result;
}

/* --- writing --- */

static int write_text(struct db *db, const char *name, const char *text, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_SET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, text, -1, SQLITE_STATIC);
    }
    return db_run(db, stmt, err);
}

static int write_self(struct db *db, const struct store_node *to, struct err *err)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {
        {"node", (int64_t)to->node},     {"role", to->role}, {"term", (int64_t)to->term}, {"promoted", to->promoted},
        {"leader", (int64_t)to->leader},
    };
    int result = write_text(db, "leader_address", to->address, err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && result == 0; i++) {
        result = db_meta_set_int(db, rows[i].name, rows[i].value, err);
    }
    return result;
}

static int add_run(struct db *db, const struct run *run, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_RUN_PUT, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)run->run);
        sqlite3_bind_int64(stmt, 2, (int64_t)run->first);
    }
    int result = db_run(db, stmt, err);
    if (result == 0 && (stmt = db_stmt(db, SQL_RUNS_TRIM, err)) != NULL) {
        sqlite3_bind_int(stmt, 1, NODE_RUNS_MAX);
    }
    return result < 0 ? result : db_run(db, stmt, err);
}

/* With a new run, if one is given, and, when `fresh`, without the old ones and without remote consumers. */
static int write_all(struct db *db, const struct store_node *to, const struct run *run, bool fresh, struct err *err)
{
    int result = db->lost ? db_reopen(db, err) : 0;
    if (result < 0 || (result = db_begin(db, err)) < 0) {
        return result;
    }
    result = write_self(db, to, err);
    if (result == 0 && fresh) {
        result = db_exec(db, "DELETE FROM runs", err);
    }
    if (result == 0 && fresh) {
        result = db_run(db, db_stmt(db, SQL_FEED_REMOTES_DELETE, err), err);
    }
    if (result == 0 && run != NULL) {
        result = add_run(db, run, err);
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

/* --- at start and end --- */

int node_open(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    s->node = calloc(1, sizeof *s->node);
    if (s->node == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    struct node *n = s->node;
    pthread_mutex_init(&n->mutex, NULL);
    struct run run = {.first = s->stager.next_id};
    int result = read_self(db, &n->now, err);
    if (result < 0 || (result = read_runs(db, n, err)) < 0 || (result = random_id(&run.run, err)) < 0 ||
        (n->now.node == 0 && (result = random_id(&n->now.node, err)) < 0)) {
        return result;
    }
    n->now.run = run.run;
    struct err full = {0};
    if (write_all(db, &n->now, &run, false, &full) < 0) {
        /* A full disk is no reason not to answer questions. No replica can follow this run. */
        log_error("this run could not be noted: replicas can't follow it", "error=%s", log_quote_str(full.text));
        n->now.run = 0;
        return db->lost ? db_reopen(db, err) : 0;
    }
    if (n->n == NODE_RUNS_MAX) {
        memmove(n->runs, n->runs + 1, (NODE_RUNS_MAX - 1) * sizeof *n->runs);
        n->n--;
    }
    n->runs[n->n++] = run;
    return 0;
}

void node_close(struct sqlite_store *s)
{
    if (s->node != NULL) {
        pthread_mutex_destroy(&s->node->mutex);
        free(s->node);
        s->node = NULL;
    }
}

/* --- any thread --- */

static void node_get(struct store *base, struct store_node *out)
{
    struct node *n = sqlite_store(base)->node;
    pthread_mutex_lock(&n->mutex);
    *out = n->now;
    pthread_mutex_unlock(&n->mutex);
}

/* A node that names a run has spoken with this folder in it, or copied it later: up to the run's end all is the
 * same. */
static int find_cursor(const struct node *n, uint64_t run, uint64_t seq, uint64_t last, bool *rolled_back)
{
    for (int i = n->n - 1; i >= 0; i--) {
        if (n->runs[i].run != run) {
            continue;
        }
        uint64_t end = i + 1 < n->n ? n->runs[i + 1].first - 1 : last;
        *rolled_back = seq > end;
        return seq <= end;
    }
    *rolled_back = n->n == 0 || n->n < NODE_RUNS_MAX || seq >= n->runs[0].first; /* else it is no longer remembered */
    return 0;
}

static int node_knows(struct store *base, uint64_t node, uint64_t run, uint64_t seq, bool *rolled_back)
{
    struct sqlite_store *s = sqlite_store(base);
    struct node *n = s->node;
    uint64_t last = feed_newest(s);
    *rolled_back = false;
    pthread_mutex_lock(&n->mutex);
    int known = node == n->now.node && n->now.run != 0 ? find_cursor(n, run, seq, last, rolled_back) : 0;
    pthread_mutex_unlock(&n->mutex);
    return known;
}

static void put_message(struct store *base, struct store_call *call, int what)
{
    call->err = (struct err){0};
    call->message.kind = STORE_CALL;
    call->message.what = what;
    thread_queue_put(&sqlite_store(base)->stager.queue, &call->message);
}

static void node_set(struct store *base, struct store_node_change *change)
{
    put_message(base, &change->call, WANTS_NODE);
}

static void node_renew(struct store *base, struct store_call *call)
{
    put_message(base, call, WANTS_NEW_NODE);
}

/* --- the stager's --- */

static int change_self(struct sqlite_store *s, struct store_node_change *change)
{
    struct node *n = s->node;
    struct store_node to;
    node_get(&s->base, &to);
    if (change->to.term < to.term) {
        return err_set(&change->call.err, ERR_INVALID, "term %" PRIu64 " is lower than this node's, %" PRIu64,
                       change->to.term, to.term);
    }
    to.role = change->to.role;
    to.term = change->to.term;
    to.promoted = change->to.promoted;
    to.leader = change->to.leader;
    memcpy(to.address, change->to.address, sizeof to.address);
    int result = write_all(&s->stager.db, &to, NULL, false, &change->call.err);
    if (result == 0) {
        pthread_mutex_lock(&n->mutex);
        n->now = to;
        pthread_mutex_unlock(&n->mutex);
    }
    return result;
}

static int become_another(struct sqlite_store *s, struct err *err)
{
    struct node *n = s->node;
    struct store_node to;
    struct run run = {.first = s->stager.next_id};
    node_get(&s->base, &to);
    int result = random_id(&to.node, err);
    if (result < 0 || (result = random_id(&run.run, err)) < 0) {
        return result;
    }
    to.run = run.run;
    if ((result = write_all(&s->stager.db, &to, &run, true, err)) < 0) {
        return result;
    }
    feed_forget_remotes(s);
    pthread_mutex_lock(&n->mutex);
    n->now = to;
    n->runs[0] = run;
    n->n = 1;
    pthread_mutex_unlock(&n->mutex);
    return 0;
}

void node_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_call *call = (struct store_call *)m;
    if (m->what == WANTS_NODE) {
        change_self(s, (struct store_node_change *)m);
    } else {
        become_another(s, &call->err);
    }
    call->done(call);
}

const struct store_node_ops sqlite_node_ops = {
    .get = node_get,
    .set = node_set,
    .knows = node_knows,
    .renew = node_renew,
};
