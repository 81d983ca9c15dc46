/* The node in staging.db: rows of `meta`, and the table `runs`. Memory has what is durable. */
#include "store/sqlite/staging/node.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/state.h"

struct run {
    uint64_t run, first_seq;
};

struct node {
    pthread_mutex_t mutex; /* guards all of it; the stager changes it */
    struct store_node is;
    struct run runs[NODE_RUNS_MAX]; /* oldest first */
    int n;
};

static int new_id(uint64_t *id, struct err *err)
{
    do {
        if (getrandom(id, sizeof *id, 0) != sizeof *id) {
            return err_set(err, ERR_SYSTEM, "the system gives no random numbers");
        }
    } while (*id == 0);
    return 0;
}

/* --- the rows --- */

static int read_address(struct db *db, char out[NODE_ADDRESS_TEXT], struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "address", -1, SQLITE_STATIC);
    }
    int result = db_step(db, stmt, err);
    if (result == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        snprintf(out, NODE_ADDRESS_TEXT, "%s", text != NULL ? text : "");
        sqlite3_reset(stmt);
    }
    return result < 0 ? result : 0;
}

static int read_node(struct db *db, struct store_node *out, struct err *err)
{
    int64_t node = 0, role = 0, term = 0, promoted = 0, leader = 0;
    int result;
    if ((result = db_meta_int(db, "node", 0, &node, err)) < 0 ||
        (result = db_meta_int(db, "role", NODE_PRIMARY, &role, err)) < 0 ||
        (result = db_meta_int(db, "term", 1, &term, err)) < 0 ||
        (result = db_meta_int(db, "promoted", 0, &promoted, err)) < 0 ||
        (result = db_meta_int(db, "leader", 0, &leader, err)) < 0 ||
        (result = read_address(db, out->address, err)) < 0) {
        return result;
    }
    if (role < 0 || role >= NODE_ROLES || term < 1) {
        return err_set(err, ERR_CORRUPT,
                       "%s: meta has role %" PRId64 " and term %" PRId64 ", expected a role of 0 to %d and a term of 1 "
                       "or more",
                       db->path, role, term, NODE_ROLES - 1);
    }
    out->node = (uint64_t)node;
    out->role = (enum node_role)role;
    out->term = (uint64_t)term;
    out->promoted = promoted != 0;
    out->leader = (uint64_t)leader;
    return 0;
}

static int write_node(struct db *db, const struct store_node *node, struct err *err)
{
    int result;
    if ((result = db_meta_set_int(db, "node", (int64_t)node->node, err)) < 0 ||
        (result = db_meta_set_int(db, "role", node->role, err)) < 0 ||
        (result = db_meta_set_int(db, "term", (int64_t)node->term, err)) < 0 ||
        (result = db_meta_set_int(db, "promoted", node->promoted, err)) < 0 ||
        (result = db_meta_set_int(db, "leader", (int64_t)node->leader, err)) < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_SET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "address", -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, node->address, -1, SQLITE_STATIC);
    }
    return db_run(db, stmt, err);
}

static int read_runs(struct db *db, struct node *n, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_RUNS, err);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (n->n == NODE_RUNS_MAX) { /* the table has more only after a damage */
            memmove(n->runs, n->runs + 1, (NODE_RUNS_MAX - 1) * sizeof *n->runs);
            n->n--;
        }
        n->runs[n->n++] =
            (struct run){(uint64_t)sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 1)};
    }
    return result;
}

static int write_run(struct db *db, const struct run *run, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_RUN_INSERT, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)run->run);
        sqlite3_bind_int64(stmt, 2, (int64_t)run->first_seq);
    }
    int result = db_run(db, stmt, err);
    if (result == 0 && (stmt = db_stmt(db, SQL_RUNS_TRIM, err)) != NULL) {
        sqlite3_bind_int(stmt, 1, NODE_RUNS_MAX);
    }
    return result < 0 ? result : db_run(db, stmt, err);
}

static void add_run(struct node *n, const struct run *run)
{
    if (n->n == NODE_RUNS_MAX) {
        memmove(n->runs, n->runs + 1, (NODE_RUNS_MAX - 1) * sizeof *n->runs);
        n->n--;
    }
    n->runs[n->n++] = *run;
    n->is.run = run->run;
}

/* The node as it is to be; with a run, one that begins. */
static int write_all(struct sqlite_store *s, const struct store_node *to, const struct run *run, bool anew,
                     struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    if (result < 0 || (result = db_begin(db, err)) < 0) {
        return result;
    }
    if (anew && (result = db_exec(db, "DELETE FROM runs", err)) == 0) {
        result = feed_lose_remote(s, err);
    }
    if (result < 0 || (result = write_node(db, to, err)) < 0 ||
        (run != NULL && (result = write_run(db, run, err)) < 0)) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

/* --- at start --- */

int node_open(struct sqlite_store *s, struct err *err)
{
    struct node *n = s->node = calloc(1, sizeof *n);
    if (n == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    pthread_mutex_init(&n->mutex, NULL);
    struct run run = {.first_seq = s->stager.next_id};
    int result = read_node(&s->stager.db, &n->is, err);
    if (result < 0 || (result = read_runs(&s->stager.db, n, err)) < 0 || (result = new_id(&run.run, err)) < 0) {
        return result;
    }
    bool is_new = n->is.node == 0;
    if (is_new) { /* new, restored or salvaged: whatever follows another folder's feed doesn't follow this one's */
        n->n = 0;
        n->is = (struct store_node){.role = NODE_PRIMARY, .term = n->is.term};
        if ((result = new_id(&n->is.node, err)) < 0) {
            return result;
        }
    }
    feed_durable(s, s->stager.next_id - 1);
    if ((result = write_all(s, &n->is, &run, is_new, err)) == 0) {
        add_run(n, &run);
    }
    return result;
}

void node_close(struct sqlite_store *s)
{
    if (s->node != NULL) {
        pthread_mutex_destroy(&s->node->mutex);
        free(s->node);
        s->node = NULL;
    }
}

/* --- the stager's --- */

static int set(struct sqlite_store *s, const struct store_node *to, struct err *err)
{
    struct node *n = s->node;
    struct store_node next = *to;
    next.node = n->is.node;
    next.run = n->is.run;
    if (to->term < n->is.term || to->role < 0 || to->role >= NODE_ROLES) {
        return err_set(err, ERR_INVALID, "a term never falls: it is %" PRIu64 ", and %" PRIu64 " was to be it",
                       n->is.term, to->term);
    }
    int result = write_all(s, &next, NULL, false, err);
    if (result == 0) {
        pthread_mutex_lock(&n->mutex);
        n->is = next;
        pthread_mutex_unlock(&n->mutex);
    }
    return result;
}

static int renew(struct sqlite_store *s, struct err *err)
{
    struct node *n = s->node;
    struct store_node next = n->is;
    struct run run = {.first_seq = s->stager.next_id};
    int result;
    if ((result = new_id(&next.node, err)) < 0 || (result = new_id(&run.run, err)) < 0 ||
        (result = write_all(s, &next, &run, true, err)) < 0) {
        return result;
    }
    log_warn("this folder is another node now: it was copied or went back to an older state",
             "node=%016" PRIx64 " was=%016" PRIx64, next.node, n->is.node);
    pthread_mutex_lock(&n->mutex);
    n->is = next;
    n->n = 0;
    add_run(n, &run);
    pthread_mutex_unlock(&n->mutex);
    feed_remote_lost(s);
    return 0;
}

void node_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_call *call = (struct store_call *)m;
    if (m->what == WANTS_NODE) {
        set(s, &((struct store_node_change *)m)->to, &call->err);
    } else {
        renew(s, &call->err);
    }
    call->done(call);
}

/* --- any thread --- */

static void node_get(struct store *base, struct store_node *out)
{
    struct node *n = sqlite_store(base)->node;
    pthread_mutex_lock(&n->mutex);
    *out = n->is;
    pthread_mutex_unlock(&n->mutex);
}

static void put(struct store *base, struct store_call *call, int what)
{
    call->err = (struct err){0};
    call->message.kind = STORE_CALL;
    call->message.what = what;
    thread_queue_put(&sqlite_store(base)->stager.queue, &call->message);
}

static void node_set(struct store *base, struct store_node_change *change)
{
    put(base, &change->call, WANTS_NODE);
}

static void node_renew(struct store *base, struct store_call *call)
{
    put(base, call, WANTS_RENEW);
}

/* A run ends where the next one begins. */
static int node_knows(struct store *base, uint64_t node, uint64_t run, uint64_t seq, bool *rolled_back)
{
    struct node *n = sqlite_store(base)->node;
    uint64_t last = base->feed->last(base);
    int knows = 0;
    pthread_mutex_lock(&n->mutex);
    bool ours = node == n->is.node;
    for (int i = 0; ours && i < n->n; i++) {
        if (n->runs[i].run == run) {
            knows = i + 1 < n->n ? seq < n->runs[i + 1].first_seq : seq <= last;
        }
    }
    pthread_mutex_unlock(&n->mutex);
    *rolled_back = ours && !knows;
    return knows;
}

const struct store_node_ops sqlite_node_ops = {
    .get = node_get,
    .set = node_set,
    .knows = node_knows,
    .renew = node_renew,
};
