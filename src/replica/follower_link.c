/* The way to the primary, and what must be known of it before anything is fetched. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "net/tls.h"
#include "replica/change.h"
#include "replica/follower_impl.h"
#include "replica/siblings.h"

enum { NUMBER_TEXT = 24 };

void follower_rest(struct follower *f, int64_t ms)
{
    pthread_mutex_lock(&f->mutex);
    task_rest_real(&f->task, clock_real_us() + ms * 1000);
    pthread_mutex_unlock(&f->mutex);
}

static bool goes_on(void *arg)
{
    struct follower *f = arg;
    heartbeat_now(&f->task.heartbeat);
    return !follower_stopping(f);
}

int follower_open(struct follower *f, size_t reply_max, struct client **client, struct err *err)
{
    heartbeat_excuse(&f->task.heartbeat); /* a name server may take its time */
    int rc = reach_connect(&f->r->reach, f->address, FOLLOWER_PATIENCE_MS, reply_max, client, err);
    heartbeat_now(&f->task.heartbeat);
    if (rc == 0) {
        client_bound_silence(*client, FOLLOWER_SILENCE_MS);
        client_go_on(*client, goes_on, f);
    } else {
        *client = NULL;
    }
    return rc;
}

void follower_disconnect(struct follower *f)
{
    client_close(f->client);
    client_close(f->users);
    f->client = f->users = NULL;
}

/* --- what it says --- */

struct hello {
    int64_t protocol, term, window, retention, delivered_max, last;
    uint64_t node, run, leader, seed;
    bool primary;
    struct slice role, version, address;
};

static bool field_text(const struct reply *map, const char *name, struct slice *out)
{
    const struct reply *r = reply_field(map, name);
    *out = r != NULL ? r->text : slice_of("", 0);
    return r != NULL && r->kind == REPLY_TEXT;
}

static bool field_id(const struct reply *map, const char *name, uint64_t *out)
{
    struct slice text;
    *out = 0;
    return field_text(map, name, &text) && (change_read_id(text, out) || text.len == 0);
}

static bool field_number(const struct reply *map, const char *name, int64_t *out)
{
    const struct reply *r = reply_field(map, name);
    return r != NULL && reply_integer(r, out);
}

static bool read_hello(const struct reply *map, struct hello *out)
{
    bool good = field_number(map, "protocol", &out->protocol) && field_number(map, "term", &out->term) &&
                field_number(map, "window", &out->window) && field_number(map, "retention", &out->retention) &&
                field_number(map, "delivered_max", &out->delivered_max) && field_number(map, "last", &out->last) &&
                field_id(map, "node", &out->node) && field_id(map, "run", &out->run) &&
                field_id(map, "leader", &out->leader) && field_id(map, "seed", &out->seed) &&
                field_text(map, "role", &out->role) && field_text(map, "version", &out->version) &&
                field_text(map, "address", &out->address);
    out->primary = good && slice_eq(out->role, slice_str("primary"));
    return good;
}

static int say_hello(struct follower *f, struct hello *hello, const struct reply **answer, struct err *err)
{
    struct store_node now;
    const struct reply *reply;
    char protocol[NUMBER_TEXT], term[NUMBER_TEXT], node[NODE_TEXT];
    role_look(f->r->dedup->role, &now);
    snprintf(protocol, sizeof protocol, "%d", f->r->protocol);
    snprintf(term, sizeof term, "%" PRIu64, now.term);
    snprintf(node, sizeof node, "%016" PRIx64, now.node);
    const struct slice words[] = {slice_str("REPLICA"), slice_str("HELLO"),
                                  slice_str(protocol),  slice_str(node),
                                  slice_str(term),      slice_str(reach_own(&f->r->reach, f->client))};
    int rc = client_queue(f->client, words, sizeof words / sizeof *words, err);
    if (rc < 0 || (rc = client_read(f->client, &reply, err)) < 0) {
        return rc;
    }
    if (reply->kind == REPLY_ERROR) {
        bool soon = reply->text.len >= 7 && memcmp(reply->text.data, "LOADING", 7) == 0;
        return err_set(err, soon ? ERR_LOADING : ERR_INVALID, "%s: %.*s", f->address, (int)reply->text.len,
                       reply->text.data);
    }
    if (!read_hello(reply, hello)) {
        return err_set(err, ERR_INVALID, "%s answers REPLICA HELLO with something else", f->address);
    }
    f->greeted_us = clock_real_us();
    *answer = reply;
    return 0;
}

/* --- what must hold --- */

static int check_settings(struct follower *f, const struct hello *hello, struct err *err)
{
    const struct config *live = config_now(f->r->cfg);
    const struct {
        const char *name;
        int64_t ours, theirs;
    } settings[] = {{"window", live->window, hello->window},
                    {"retention", live->retention, hello->retention},
                    {"delivered_max", live->delivered_max, hello->delivered_max}};
    if (hello->protocol < REPLICA_PROTOCOL_MIN || hello->protocol > f->r->protocol) {
        return err_set(err, ERR_VERSION,
                       "%s is unseen %.*s, which speaks protocol %" PRId64 " to replicas, and this one, " UNSEEN_VERSION
                       ", speaks %d to %d: versions one apart work together",
                       f->address, (int)hello->version.len, hello->version.data, hello->protocol, REPLICA_PROTOCOL_MIN,
                       f->r->protocol);
    }
    if (hello->seed != f->r->dedup->seed) {
        return err_set(err, ERR_INVALID,
                       "%s has another hash_seed than this folder: a replica's folder is made by unseen clone",
                       f->address);
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (settings[i].ours != settings[i].theirs) {
            return err_set(err, ERR_INVALID, "%s is %" PRId64 " here and %" PRId64 " at %s: they must be the same",
                           settings[i].name, settings[i].ours, settings[i].theirs, f->address);
        }
    }
    return 0;
}

int follower_greet(struct follower *f, struct err *err)
{
    struct hello hello;
    const struct reply *answer;
    if (clock_real_us() - f->greeted_us < FOLLOWER_GREET_MS * 1000) {
        return 0;
    }
    int rc = say_hello(f, &hello, &answer, err);
    if (rc < 0 || !hello.primary) {
        return rc;
    }
    siblings_note(f, answer);
    return check_settings(f, &hello, err); /* either side may have others since */
}

/* It has not heard of the promotion that this node follows. */
static int tell_term(struct follower *f, const struct store_node *now, const struct hello *hello, struct err *err)
{
    char term[NUMBER_TEXT], node[NODE_TEXT];
    const struct reply *reply;
    snprintf(term, sizeof term, "%" PRIu64, now->term);
    snprintf(node, sizeof node, "%016" PRIx64, now->leader);
    const struct slice words[] = {slice_str("REPLICA"), slice_str("MEET"), slice_str(term), slice_str(node),
                                  slice_str(now->address)};
    int rc = client_queue(f->client, words, 5, err);
    rc = rc < 0 ? rc : client_read(f->client, &reply, err);
    return rc < 0 ? rc
                  : err_set(err, ERR_INVALID,
                            "%s is of term %" PRId64 ", and this replica has met term %" PRIu64 " of node %016" PRIx64
                            ": it was replaced",
                            f->address, hello->term, now->term, now->leader);
}

/* Whom it follows instead, if the other says so. */
static int go_elsewhere(struct follower *f, const struct hello *hello, struct err *err)
{
    char other[NODE_ADDRESS_TEXT];
    int rc = reach_take(hello->address, client_is_local(f->client), other, err);
    if (rc < 0) {
        err_prefix(err, "%s", f->address);
        return rc;
    }
    if (other[0] == '\0') {
        return err_set(err, ERR_INVALID, "%s is no primary, but a %.*s, and knows of none", f->address,
                       (int)hello->role.len, hello->role.data);
    }
    reach_secure(&f->r->reach, other, other);
    err_set(err, ERR_SYSTEM, "%s is no primary, but %s is", f->address, other);
    memcpy(f->address, other, sizeof f->address);
    return ERR_SYSTEM;
}

/* --- behind another primary than before --- */

/* Where to go on there, who followed that node so far. ERR_NOTFOUND: it can't tell. */
static int ask_where(struct follower *f, const struct hello *hello, const struct feed_cursor *followed,
                     struct feed_cursor *from, struct err *err)
{
    struct store_node now;
    char own[NODE_TEXT], node[NODE_TEXT], seq[NUMBER_TEXT];
    const struct reply *reply;
    int64_t at = -1;
    role_look(f->r->dedup->role, &now);
    snprintf(own, sizeof own, "%016" PRIx64, now.node);
    snprintf(node, sizeof node, "%016" PRIx64, followed->node);
    snprintf(seq, sizeof seq, "%" PRIu64, followed->seq);
    const struct slice words[] = {slice_str("REPLICA"), slice_str("ENLIST"), slice_str(own), slice_str(node),
                                  slice_str(seq)};
    int rc = client_queue(f->client, words, sizeof words / sizeof *words, err);
    if (rc < 0 || (rc = client_read(f->client, &reply, err)) < 0) {
        return rc;
    }
    if (reply->kind == REPLY_ERROR) {
        bool lost = reply->text.len > 5 && memcmp(reply->text.data, "LOST ", 5) == 0;
        return err_set(err, lost ? ERR_NOTFOUND : ERR_INVALID, "%.*s", (int)reply->text.len, reply->text.data);
    }
    from->node = hello->node;
    if (!field_id(reply, "run", &from->run) || from->run == 0 || !field_number(reply, "seq", &at) || at < 0) {
        return err_set(err, ERR_INVALID, "%s answers REPLICA ENLIST with something else", f->address);
    }
    from->seq = (uint64_t)at;
    return 0;
}

/* A folder that was restored has a new node: then this one may have more than it, and a clone would lose that. */
static int no_copy(struct follower *f, const struct hello *hello, int n, const struct err *why, struct err *err)
{
    return err_set(err, n == 0 ? ERR_INVALID : ERR_NOTFOUND,
                   "this folder is no copy of the node %016" PRIx64
                   " at %s%s%s: unseen clone %s --data %s makes it one",
                   hello->node, f->address,
                   n == 0 ? "" : "; if that was restored from a backup, promote this one. It answers: ", why->text,
                   f->address, f->r->cfg->data);
}

/* Those whose feeds may be what this folder ends with: one, if the folder says which, else all that it ever followed.
 */
static int ends_with(struct follower *f, struct feed_cursor out[CURSOR_NODES_MAX], struct err *err)
{
    uint64_t last = cursor_last(f->r->store);
    return last != 0 ? cursor_find(f->r->store, f->reader, last, out, err)
                     : cursor_list(f->r->store, f->reader, out, err);
}

/* A position of this primary's own feed counts only while nothing of another one was applied behind it: where it has
 * led before, and another since, that other's position is what it has to place in its feed. Of several, the one that
 * leads furthest; and one of which it has less than this folder is refused. */
static int find_cursor(struct follower *f, const struct hello *hello, struct err *err)
{
    struct feed_cursor followed[CURSOR_NODES_MAX], best = {0}, from;
    struct err why = {0};
    bool asked = false;
    int n = ends_with(f, followed, err);
    for (int i = 0; i < n; i++) {
        bool own = followed[i].node == hello->node;
        int rc = own ? 0 : ask_where(f, hello, &followed[i], &from, &why);
        if (rc < 0 && rc != ERR_NOTFOUND) {
            return err_set(err, rc, "%s", why.text);
        }
        if (rc == 0 && (best.node == 0 || (own ? &followed[i] : &from)->seq > best.seq)) {
            best = own ? followed[i] : from;
            asked = !own;
        }
    }
    if (n < 0 || best.node == 0) {
        return n < 0 ? n : no_copy(f, hello, n, &why, err);
    }
    if (!asked) {
        f->cursor = best;
        return 0;
    }
    log_info("this replica goes on behind another primary", "primary=%s node=%016" PRIx64 " seq=%" PRIu64,
             log_quote_str(f->address), best.node, best.seq);
    return follower_go_on(f, &best, err);
}

/* What it has of whom it followed until now, if another comes. With the mutex. */
static void note_before(struct follower *f)
{
    int i = 0;
    while (i < f->n_before && f->before[i].node != f->state.node) {
        i++;
    }
    if (f->state.node != 0 && f->state.node != f->cursor.node && i < CURSOR_NODES_MAX) {
        f->before[i] = (struct feed_cursor){f->state.node, f->state.run, f->state.applied};
        f->n_before += i == f->n_before;
    }
}

static int note_primary(struct follower *f, const struct hello *hello, struct err *err)
{
    struct store_node now;
    role_look(f->r->dedup->role, &now);
    if (now.term == (uint64_t)hello->term && now.leader == hello->node && strcmp(now.address, f->address) == 0) {
        return 0;
    }
    return role_follow(f->r->dedup->role, (uint64_t)hello->term, hello->node, f->address, err);
}

int follower_connect(struct follower *f, struct err *err)
{
    struct hello hello;
    struct store_node now;
    const struct reply *answer;
    int rc = follower_open(f, FOLLOWER_REPLY_MAX, &f->client, err);
    if (rc < 0 || (rc = say_hello(f, &hello, &answer, err)) < 0) {
        return rc;
    }
    role_look(f->r->dedup->role, &now);
    if ((uint64_t)hello.term < now.term && hello.node != now.leader) {
        return tell_term(f, &now, &hello, err);
    }
    /* Has it stepped down for this node, then what it had last is still to come: the promotion waits for it. */
    f->takes_over = !hello.primary && hello.leader == now.node;
    if (!hello.primary && !f->takes_over) {
        return go_elsewhere(f, &hello, err);
    }
    if ((rc = check_settings(f, &hello, err)) < 0) {
        return rc;
    }
    if (hello.primary) {
        siblings_note(f, answer);
    }
    if ((rc = find_cursor(f, &hello, err)) < 0) {
        return rc;
    }
    f->protocol = hello.protocol;
    if ((rc = follower_compare_pools(f, hello.protocol, err)) < 0) {
        return rc;
    }
    f->primary_run = hello.run;
    f->term = f->takes_over ? now.term : (uint64_t)hello.term; /* that term is this node's, once it is promoted */
    pthread_mutex_lock(&f->mutex);
    note_before(f);
    f->state.node = f->cursor.node;
    f->state.run = f->cursor.run;
    f->state.applied = f->cursor.seq;
    f->state.last = (uint64_t)hello.last;
    snprintf(f->state.primary, sizeof f->state.primary, "%s", f->address);
    pthread_mutex_unlock(&f->mutex);
    return f->takes_over ? 0 : note_primary(f, &hello, err);
}
