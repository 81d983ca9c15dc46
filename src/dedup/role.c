#include "dedup/role.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/admin.h"
#include "store/stats.h"

enum { LISTENERS_MAX = 8, WHY_TEXT = 320 };

/* `changing` is held while a change becomes durable, `lock` for a few instructions. */
struct role {
    struct store *store;        /* NULL: of a server without a folder */
    char of[NODE_ADDRESS_TEXT]; /* whom the configuration follows; "" none */
    pthread_mutex_t changing, lock;
    pthread_cond_t durable;
    bool done; /* the change under way is */
    struct store_node now;
    char held[WHY_TEXT]; /* "": writes are not held */
    char held_start[WHY_TEXT];
    atomic_bool refuses; /* held, or not a primary */
    _Atomic int64_t hold_at_ms;
    atomic_int role; /* enum node_role */
    atomic_int n_listeners;
    struct {
        void (*changed)(void *arg, enum node_role now);
        void *arg;
    } listeners[LISTENERS_MAX];
};

/* --- how it begins --- */

/* As far as can be told: no month, nothing staged, nothing forgotten. It decides about words alone. */
static int is_empty(struct store *store, bool *empty, struct err *err)
{
    struct store_stats stats;
    struct store_reader *reader;
    struct store_month_info month;
    store->ops->stats(store, &stats);
    *empty = stats.staged_rows == 0 && stats.tombstones == 0;
    if (!*empty || store->admin == NULL) {
        return 0;
    }
    int rc = store->ops->reader_open(store, &reader, err);
    if (rc == 0) {
        rc = store->admin->months(reader, &month, 1, err);
        *empty = rc == 0;
        store->ops->reader_close(reader);
    }
    return rc < 0 ? rc : 0;
}

static int primary_follows(const struct config *cfg, struct store *store, const struct store_node *node,
                           struct err *err)
{
    if (node->promoted) {
        log_warn("this node was promoted, and takes writes, although its configuration has it follow another; take "
                 "replica_of out of it",
                 "replica_of=%s term=%" PRIu64, log_quote_str(cfg->replica_of), node->term);
        return 0;
    }
    bool empty;
    int rc = is_empty(store, &empty, err);
    if (rc < 0) {
        return err_prefix(err, "can't tell whether the data folder %s is empty", cfg->data);
    }
    if (empty) {
        return err_set(err, ERR_INVALID,
                       "replica_of is %s, but the data folder %s is no replica yet: run unseen clone %s --data %s "
                       "first",
                       cfg->replica_of, cfg->data, cfg->replica_of, cfg->data);
    }
    return err_set(err, ERR_INVALID,
                   "replica_of is %s, but the data folder %s is that of a primary: run unseen rejoin, or unseen clone "
                   "into an empty folder",
                   cfg->replica_of, cfg->data);
}

/* The folder against the configuration. */
static int check_start(const struct config *cfg, struct store *store, const struct store_node *node, struct err *err)
{
    bool follows = cfg->replica_of[0] != '\0';
    switch (node->role) {
    case NODE_PRIMARY:
        return follows ? primary_follows(cfg, store, node, err) : 0;
    case NODE_REPLICA: /* it follows whom the folder names, unless the configuration says otherwise */
        return follows || node->address[0] != '\0'
                   ? 0
                   : err_set(
                         err, ERR_INVALID,
                         "the data folder %s is that of a replica: set replica_of (of in the section [replica]), or "
                         "run unseen promote to make it a primary",
                         cfg->data);
    default:
        log_warn("another node has taken over: this one takes no writes until unseen rejoin was run",
                 "term=%" PRIu64 " primary=%s", node->term, log_quote_str(node->address));
        return 0;
    }
}

/* With the lock. */
static void note_refuses(struct role *r)
{
    atomic_store(&r->refuses, r->now.role != NODE_PRIMARY || r->held[0] != '\0' || r->held_start[0] != '\0');
}

static void take(struct role *r, const struct store_node *node)
{
    pthread_mutex_lock(&r->lock);
    r->now = *node;
    atomic_store(&r->role, (int)node->role);
    note_refuses(r);
    pthread_mutex_unlock(&r->lock);
}

static int begin(struct store *store, const struct store_node *node, struct role **role, struct err *err)
{
    struct role *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for this node's role");
    }
    r->store = store;
    pthread_mutex_init(&r->changing, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->durable, NULL);
    take(r, node);
    *role = r;
    return 0;
}

static const char *without_scheme(const char *address)
{
    const char *scheme = strstr(address, "://");
    return scheme != NULL ? scheme + 3 : address;
}

int role_new(const struct config *cfg, struct store *store, struct role **role, struct err *err)
{
    *role = NULL;
    if (store->node == NULL) {
        return cfg->replica_of[0] == '\0'
                   ? 0
                   : err_set(err, ERR_INVALID, "replica_of is %s, but the store \"%s\" can be no replica",
                             cfg->replica_of, store->engine);
    }
    struct store_node node;
    store->node->get(store, &node);
    int rc = check_start(cfg, store, &node, err);
    if (rc == 0) {
        rc = begin(store, &node, role, err);
    }
    if (rc == 0) {
        snprintf((*role)->of, sizeof(*role)->of, "%s", without_scheme(cfg->replica_of));
    }
    return rc;
}

int role_new_reader(const char *why, struct role **role, struct err *err)
{
    int rc = begin(NULL, &(struct store_node){.role = NODE_REPLICA, .term = 1}, role, err);
    if (rc == 0) {
        role_hold(*role, why);
    }
    return rc;
}

void role_free(struct role *r)
{
    if (r != NULL) {
        pthread_cond_destroy(&r->durable);
        pthread_mutex_destroy(&r->lock);
        pthread_mutex_destroy(&r->changing);
        free(r);
    }
}

/* --- what is asked often --- */

bool role_is_primary(const struct role *r)
{
    return r == NULL || atomic_load_explicit(&r->role, memory_order_acquire) == NODE_PRIMARY;
}

void role_look(const struct role *r, struct store_node *out)
{
    *out = (struct store_node){.role = NODE_PRIMARY, .term = 1};
    if (r != NULL) {
        pthread_mutex_lock((pthread_mutex_t *)&r->lock);
        *out = r->now;
        pthread_mutex_unlock((pthread_mutex_t *)&r->lock);
    }
    if (r != NULL && r->store != NULL) {
        struct store_node folder; /* it may have become another node since: see store_node_ops.renew */
        r->store->node->get(r->store, &folder);
        out->node = folder.node;
        out->run = folder.run;
    }
}

int role_may_write(const struct role *r, struct err *err)
{
    if (r == NULL) {
        return 0;
    }
    int64_t hold_at = atomic_load_explicit(&r->hold_at_ms, memory_order_acquire);
    bool over = hold_at != 0 && clock_mono_ms() >= hold_at;
    if (!over && !atomic_load_explicit(&r->refuses, memory_order_acquire)) {
        return 0;
    }
    struct store_node node;
    char held[WHY_TEXT];
    role_look(r, &node);
    pthread_mutex_lock((pthread_mutex_t *)&r->lock);
    memcpy(held, r->held[0] != '\0' ? r->held : r->held_start, sizeof held);
    pthread_mutex_unlock((pthread_mutex_t *)&r->lock);
    const char *address = node.address[0] != '\0' ? node.address : node.role == NODE_REPLICA ? r->of : "";
    if (node.role == NODE_PRIMARY || r->store == NULL) {
        if (held[0] == '\0' && !over) {
            return 0; /* it was released by now */
        }
        return err_set(err, ERR_REPLICA, "%s", held[0] != '\0' ? held : "this node's lock has ended");
    }
    if (node.role == NODE_FENCED) {
        return err_set(err, ERR_REPLICA,
                       "You can't write against a read only replica: %s%s in term %" PRIu64
                       ", and this node takes no writes until unseen rejoin was run",
                       address[0] != '\0' ? address : "another node", " has taken over", node.term);
    }
    if (address[0] == '\0') {
        return err_set(err, ERR_REPLICA, "You can't write against a read only replica.");
    }
    return err_set(err, ERR_REPLICA, "You can't write against a read only replica: %s takes writes", address);
}

static void hold(struct role *r, char held[WHY_TEXT], const char *why)
{
    pthread_mutex_lock(&r->lock);
    snprintf(held, WHY_TEXT, "%s", why != NULL ? why : "");
    note_refuses(r);
    pthread_mutex_unlock(&r->lock);
}

void role_hold(struct role *r, const char *why)
{
    hold(r, r->held, why);
}

void role_hold_start(struct role *r, const char *why)
{
    hold(r, r->held_start, why);
}

void role_hold_at(struct role *r, int64_t mono_ms)
{
    atomic_store(&r->hold_at_ms, mono_ms);
}

int role_listen(struct role *r, void (*changed)(void *arg, enum node_role now), void *arg)
{
    pthread_mutex_lock(&r->lock);
    int n = atomic_load(&r->n_listeners);
    if (n < LISTENERS_MAX) {
        r->listeners[n].changed = changed;
        r->listeners[n].arg = arg;
        atomic_store(&r->n_listeners, n + 1);
    }
    pthread_mutex_unlock(&r->lock);
    return n < LISTENERS_MAX ? 0 : ERR_FULL;
}

/* --- changes --- */

static void on_durable(struct store_call *call)
{
    struct role *r = call->owner;
    pthread_mutex_lock(&r->lock);
    r->done = true;
    pthread_cond_signal(&r->durable);
    pthread_mutex_unlock(&r->lock);
}

/* With `changing` held. Whatever ends a primary holds from the first moment on, also when the disk then refuses it:
 * another one may take writes by now. */
static int change(struct role *r, const struct store_node *to, struct err *err)
{
    struct store_node before;
    if (r->store == NULL) {
        return err_set(err, ERR_ABSENT, "this server has no folder, so its role stays");
    }
    role_look(r, &before);
    if (to->role != NODE_PRIMARY) {
        take(r, to);
    }
    struct store_node_change change = {.to = *to, .call = {.done = on_durable, .owner = r}};
    r->done = false;
    r->store->node->set(r->store, &change);
    pthread_mutex_lock(&r->lock);
    while (!r->done) {
        pthread_cond_wait(&r->durable, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    if (change.call.err.code < 0) {
        *err = change.call.err;
        err_prefix(err, "the role %s of term %" PRIu64 " can't be written down", node_role_name(to->role), to->term);
        log_error("this node's role is not durable", "error=%s", log_quote_str(err->text));
        return err->code;
    }
    for (int i = 0; before.role != to->role && i < atomic_load(&r->n_listeners); i++) {
        r->listeners[i].changed(r->listeners[i].arg, to->role);
    }
    take(r, to);
    if (before.role != to->role || before.term != to->term || before.leader != to->leader) {
        log_warn("this node's role", "was=%s is=%s term=%" PRIu64 " primary=%s", node_role_name(before.role),
                 node_role_name(to->role), to->term, log_quote_str(to->address));
    }
    return 0;
}

int role_meet(struct role *r, uint64_t term, uint64_t node, const char *address, struct err *err)
{
    struct store_node now, to;
    pthread_mutex_lock(&r->changing);
    role_look(r, &now);
    uint64_t mine = now.role == NODE_PRIMARY ? now.node : now.leader; /* of whom this node's term is */
    int won = term > now.term || (term == now.term && node > mine);
    bool configured = now.role == NODE_REPLICA && /* there an operator knows better */
                      strcmp(without_scheme(now.address), r->of) == 0;
    bool moved = term == now.term && node == mine && now.role != NODE_PRIMARY && address[0] != '\0' &&
                 strcmp(address, now.address) != 0 && !configured;
    int rc = 0;
    if (won || moved) {
        to = now;
        to.role = now.role == NODE_REPLICA ? NODE_REPLICA : NODE_FENCED;
        to.promoted = false;
        to.term = term;
        to.leader = node;
        snprintf(to.address, sizeof to.address, "%s", address);
        rc = change(r, &to, err);
    }
    pthread_mutex_unlock(&r->changing);
    return rc < 0 ? rc : won;
}

int role_promote(struct role *r, uint64_t above, struct err *err)
{
    struct store_node to;
    pthread_mutex_lock(&r->changing);
    role_look(r, &to);
    to.role = NODE_PRIMARY;
    to.promoted = true;
    to.term = (above > to.term ? above : to.term) + 1;
    to.leader = 0;
    to.address[0] = '\0';
    int rc = change(r, &to, err);
    pthread_mutex_unlock(&r->changing);
    return rc;
}

int role_follow(struct role *r, uint64_t term, uint64_t leader, const char *address, struct err *err)
{
    struct store_node to;
    pthread_mutex_lock(&r->changing);
    role_look(r, &to);
    int rc = 0;
    if (term < to.term) {
        rc = err_set(err, ERR_INVALID, "%s has term %" PRIu64 ", but this node has met term %" PRIu64, address, term,
                     to.term);
    } else {
        to.role = NODE_REPLICA;
        to.promoted = false;
        to.term = term;
        to.leader = leader;
        snprintf(to.address, sizeof to.address, "%s", address);
        rc = change(r, &to, err);
    }
    pthread_mutex_unlock(&r->changing);
    return rc;
}
