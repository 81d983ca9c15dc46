#include "replica/change.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "base/text.h"
#include "dedup/role.h"
#include "net/client.h"
#include "replica/change_impl.h"
#include "replica/cursor.h"
#include "replica/feeder.h"
#include "replica/follower.h"
#include "replica/peers.h"
#include "replica/replica.h"
#include "store/feed.h"
#include "store/positions.h"

enum { ID_TEXT = NODE_TEXT, TERM_TEXT = 24, LACKS_TEXT = 64 };
#define TRIED "promoted:tried" /* how often a promotion was tried */

struct changer {
    struct replica *r;
    struct task task;
    pthread_mutex_t mutex;
    struct change *first, **end;

    _Atomic bool unheard, alone;
    bool told;          /* the thread's own: that it is unheard */
    bool stranded;      /* the thread's own: a promotion that failed has ended the following, which could not go on */
    struct peers peers; /* the thread's own: whom to tell of this node's term */
    bool met;           /* with the mutex: another node has come here, so others may be reached again, too */
};

bool change_read_id(struct slice text, uint64_t *id)
{
    *id = 0;
    return text.len == NODE_TEXT - 1 && hex_read(text.data, text.len, id) && *id != 0;
}

/* --- the other node --- */

/* Of that term `leader` is the primary, at `of`; NULL: this node itself. An answer, in `reply`, or an error:
 * ERR_INVALID is the other's own. */
static int call(struct changer *c, const char *address, const char *verb, uint64_t term, uint64_t leader,
                const char *of, int patience_ms, struct client **client, const struct reply **reply, struct err *err)
{
    char term_text[TERM_TEXT], id[ID_TEXT];
    int rc = reach_connect(&c->r->reach, address, CHANGE_ANSWER_MS, CLIENT_ANSWER_MAX, client, err);
    if (rc < 0) {
        return rc;
    }
    client_be_patient(*client, patience_ms);
    snprintf(term_text, sizeof term_text, "%" PRIu64, term);
    snprintf(id, sizeof id, "%016" PRIx64, leader);
    const struct slice words[] = {slice_str("REPLICA"), slice_str(verb), slice_str(term_text), slice_str(id),
                                  slice_str(of != NULL ? of : reach_own(&c->r->reach, *client))};
    return client_call(*client, words, 5, reply, err);
}

/* The old primary takes no writes any more, and *last is the newest of its events. */
static int ask_to_step_down(struct changer *c, const char *address, uint64_t term, uint64_t *last, struct err *err)
{
    struct client *client = NULL;
    const struct reply *reply;
    struct store_node now;
    int64_t seq = 0;
    role_look(c->r->dedup->role, &now);
    int rc = call(c, address, "STEPDOWN", term, now.node, NULL, CHANGE_STEPDOWN_MS, &client, &reply, err);
    if (rc == 0 && (!reply_integer(reply, &seq) || seq < 0)) {
        rc = err_set(err, ERR_INVALID, "%s answered REPLICA STEPDOWN with something else than a number", address);
    }
    *last = (uint64_t)seq;
    client_close(client);
    return rc;
}

/* Whether what a node answers to MEET says whose its term is. */
static bool names_leader(const struct reply *reply)
{
    const size_t end = strlen(CHANGE_UNDER);
    struct slice role = reply->items[2].text;
    return slice_eq(role, slice_str(node_role_name(NODE_PRIMARY))) ||
           (role.len > end && memcmp(role.data + role.len - end, CHANGE_UNDER, end) == 0);
}

/* Who the primary of `now` is. True once the peer has heard. A peer that has met a higher term says so, and then that
 * holds.
 */
static bool tell(struct changer *c, const struct peer *peer, const struct store_node *now)
{
    bool leads = now->role == NODE_PRIMARY;
    const char *address = peer->address;
    struct client *client = NULL;
    const struct reply *reply;
    struct err err = {0};
    int64_t term;
    if (clock_real_us() < peer->due_us) {
        return false;
    }
    int rc = call(c, address, "MEET", now->term, leads ? now->node : now->leader, leads ? NULL : now->address,
                  CHANGE_ANSWER_MS, &client, &reply, &err);
    bool heard = rc == 0 && reply->n == 3 && reply_integer(&reply->items[0], &term);
    if (heard) {
        uint64_t node = 0; /* whose term that is */
        log_info(leads ? "another node has heard of this primary" : "another node has heard who the primary is",
                 "address=%s its_term=%" PRId64, log_quote_str(address), term);
        bool won = (uint64_t)term > now->term ||
                   (leads && (uint64_t)term == now->term && names_leader(reply)); /* of equal ones one ends */
        if (won && change_read_id(reply->items[1].text, &node)) {
            role_meet(c->r->dedup->role, (uint64_t)term, node, address, &err);
        }
    }
    if (peers_tried(&c->peers, peer, heard, clock_real_us()) && leads) {
        log_warn("another node can't be told of this primary; if it is gone for good, dismiss it: REPLICA DISMISS",
                 "node=%016" PRIx64 " address=%s error=%s", peer->node, log_quote_str(address),
                 log_quote_str(rc < 0 ? err.text : "it answers REPLICA MEET with something else"));
    }
    client_close(client);
    return heard;
}

static bool is_waited_for(struct changer *c)
{
    pthread_mutex_lock(&c->mutex);
    bool waits = c->first != NULL || task_stops(&c->task);
    pthread_mutex_unlock(&c->mutex);
    return waits;
}

/* Tried again with the next look where it fails. */
static int note_peer(struct changer *c, const struct peer *peer, struct err *err)
{
    int rc = peer->address[0] != '\0' ? peers_note(c->r->store, &c->peers, peer, err) : 0;
    if (rc < 0) {
        log_warn("it can't be written down how another node is reached", "address=%s error=%s",
                 log_quote_str(peer->address), log_quote_str(err->text));
    }
    atomic_store(&c->alone, c->peers.n == 0);
    return rc;
}

/* Any other follower is told by the primary itself; one that has led before it may have met others, which it has not.
 */
static bool is_told_by_primary(const struct peer *peer, const struct store_node *now, const struct sibling *siblings,
                               int n)
{
    bool told = peer->node == now->leader || strcmp(peer->address, now->address) == 0;
    for (int i = 0; i < n; i++) {
        told = told || (peer->node != 0 && peer->node == siblings[i].node);
    }
    return told;
}

/* An old primary may be back, and knows of nothing; and so do its other replicas. If this node was replaced before it
 * could tell them, its primary may know of none of them: so it tells them of that. */
static void herald(struct changer *c)
{
    struct store_node now;
    struct sibling siblings[FEEDER_REPLICAS_MAX];
    role_look(c->r->dedup->role, &now);
    struct peers all = c->peers; /* noting changes their order */
    struct err err = {0};
    int n = now.role == NODE_REPLICA && c->r->follower != NULL ? follower_siblings(c->r->follower, siblings) : 0;
    const struct store_node told = now;
    for (int i = 0; i < all.n && (now.role == NODE_PRIMARY || now.leader != 0) && !is_waited_for(c); i++) {
        struct peer *peer = &all.list[i];
        bool skips = now.role != NODE_PRIMARY && is_told_by_primary(peer, &now, siblings, n);
        if (peer->heard < now.term && !skips && tell(c, peer, &now)) {
            role_look(c->r->dedup->role, &now);
            if (now.role != told.role || now.term != told.term || now.leader != told.leader) {
                return; /* then that is to be told */
            }
            peer->heard = now.term;
            note_peer(c, peer, &err);
        }
    }
}

static struct peer peer_at(const struct changer *c, uint64_t node, const char *address)
{
    struct peer peer = {.node = node};
    reach_secure(&c->r->reach, address, peer.address);
    peer.named = reach_is_named(&c->r->reach, peer.address);
    return peer;
}

/* --- whether this primary was replaced while it was away --- */

bool changer_is_unheard(const struct changer *c)
{
    return atomic_load(&((struct changer *)c)->unheard);
}

bool changer_is_alone(const struct changer *c)
{
    return atomic_load(&((struct changer *)c)->alone);
}

void changer_heard(struct changer *c)
{
    if (atomic_exchange(&c->unheard, false)) {
        role_hold_start(c->r->dedup->role, NULL);
        if (role_is_primary(c->r->dedup->role)) { /* else its new role was logged */
            log_info("this primary was not replaced, as far as any node knows that is left", "");
        }
    }
}

static void hold_unheard(struct changer *c)
{
    bool holds = config_now(c->r->cfg)->replica_start == START_WHEN_HEARD;
    role_hold_start(c->r->dedup->role,
                    holds ? "this node was the primary, and none of those that it has met has answered "
                            "since the start (start = when-heard)"
                          : NULL);
}

static void begin_unheard(struct changer *c)
{
    struct store_node now;
    role_look(c->r->dedup->role, &now);
    if (now.role == NODE_PRIMARY && c->peers.n > 0) {
        atomic_store(&c->unheard, true);
        hold_unheard(c);
    }
}

/* Any answer will do: one that has met a higher term has fenced this node by then. */
static void ask_whether_replaced(struct changer *c)
{
    struct store_node now;
    role_look(c->r->dedup->role, &now);
    for (int i = 0; i < c->peers.n && changer_is_unheard(c) && !is_waited_for(c); i++) {
        if (now.role != NODE_PRIMARY || tell(c, &c->peers.list[i], &now)) {
            changer_heard(c);
        }
    }
    if (changer_is_unheard(c)) {
        hold_unheard(c); /* the option may have changed */
        if (!c->told) {
            log_warn("this primary can't know whether it was replaced: no node that it has met answers",
                     "term=%" PRIu64 " peers=%d writes=%s", now.term, c->peers.n,
                     config_now(c->r->cfg)->replica_start == START_WHEN_HEARD ? "refused" : "taken");
            c->told = true;
        }
    }
}

/* Of a replica: the primary, and who else follows it. */
static int note_primary(struct changer *c, const struct store_node *now, struct err *err)
{
    struct sibling siblings[FEEDER_REPLICAS_MAX];
    int n = c->r->follower != NULL ? follower_siblings(c->r->follower, siblings) : 0;
    struct peer peer = peer_at(c, now->leader, now->address[0] != '\0' ? now->address : c->r->cfg->replica_of);
    int rc = note_peer(c, &peer, err);
    for (int i = 0; i < n && rc == 0; i++) {
        peer = peer_at(c, siblings[i].node, siblings[i].address);
        rc = note_peer(c, &peer, err);
    }
    return rc;
}

/* One that is away since the start, or was the primary before: it is shown, and told to those that follow. */
static void tell_feeder(struct changer *c, uint64_t node)
{
    for (int i = 0; i < c->peers.n; i++) {
        if (c->peers.list[i].node == node) {
            feeder_know_address(c->r->feeder, node, c->peers.list[i].address);
        }
    }
}

/* Of a primary: who follows. */
static void note_replicas(struct changer *c)
{
    struct feeder_replica replicas[FEEDER_REPLICAS_MAX];
    struct err err = {0};
    int n = c->r->feeder != NULL ? feeder_look(c->r->feeder, replicas) : 0;
    for (int i = 0; i < n; i++) {
        if (replicas[i].address[0] == '\0') {
            tell_feeder(c, replicas[i].node);
            continue;
        }
        struct peer peer = peer_at(c, replicas[i].node, replicas[i].address);
        peer.heard = replicas[i].heard;
        note_peer(c, &peer, &err);
        if (peer.heard > 0) {
            changer_heard(c);
        }
    }
}

static void note_peers(struct changer *c)
{
    struct store_node now;
    struct err err = {0};
    role_look(c->r->dedup->role, &now);
    if (now.role == NODE_PRIMARY) {
        note_replicas(c);
    } else if (now.role == NODE_REPLICA) {
        note_primary(c, &now, &err);
    }
}

/* --- what is waited for in the store --- */

void change_wait(struct change_wait *w)
{
    pthread_mutex_lock(&w->mutex);
    while (!w->done) {
        pthread_cond_wait(&w->wake, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
}

void change_tell(struct change_wait *w)
{
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

static void on_batch(struct store_batch *batch)
{
    change_tell(batch->owner);
}

int change_record(struct store *store, struct store_batch *batch, struct err *err)
{
    struct change_wait w = CHANGE_WAIT_INIT;
    batch->done = on_batch;
    batch->owner = &w;
    batch->err = (struct err){0};
    store->ops->record(store, batch);
    change_wait(&w);
    return batch->err.code < 0 ? (*err = batch->err).code : 0;
}

void change_on_call(struct store_call *call)
{
    change_tell(call->owner);
}

/* --- where two primaries part --- */

enum { PART_NODE, PART_RUN, PART_COMMON, PART_AT, PARTS };
static const char *const part_names[PARTS] = {"promoted:node", "promoted:run", "promoted:common", "promoted:at"};

bool change_parting(struct store *store, struct change_parting *out)
{
    int64_t values[PARTS] = {0};
    bool found = store->positions != NULL;
    for (int i = 0; found && i < PARTS; i++) {
        found = store->positions->find(store, slice_str(part_names[i]), &values[i]) == 1;
    }
    *out = (struct change_parting){(uint64_t)values[PART_NODE], (uint64_t)values[PART_RUN],
                                   (uint64_t)values[PART_COMMON], (uint64_t)values[PART_AT]};
    return found;
}

static int keep_for(struct store *store, uint64_t node, struct err *err)
{
    char name[FEED_NAME_MAX];
    struct change_wait w = CHANGE_WAIT_INIT;
    snprintf(name, sizeof name, FEED_REMOTE "%016" PRIx64, node);
    struct feed_enlist enlist = {.call = {.done = change_on_call, .owner = &w}, .consumer = name};
    store->feed->enlist(store, &enlist);
    change_wait(&w);
    return enlist.call.err.code < 0 ? (*err = enlist.call.err).code : 0;
}

/* What is recorded here from now on is kept for the node that was followed last, whose feed is here as far as `at`
 * says; and where that begins, for both. at->node 0: it isn't known, and what an earlier promotion has written holds no
 * longer. A fenced node has followed no other since it led: what it recorded in that term is no less its own, so where
 * it parted then stays, and `at` doesn't matter. */
static int part(struct store *store, const struct store_node *now, const struct feed_cursor *at, struct err *err)
{
    struct change_parting before;
    bool stays = now->role == NODE_FENCED && change_parting(store, &before);
    uint64_t other = stays ? before.node : at->node;
    int rc = other != 0 ? keep_for(store, other, err) : 0;
    if (rc < 0 || stays) {
        return rc;
    }
    const uint64_t values[PARTS] = {at->node, at->run, at->seq, store->feed->last(store)};
    struct store_position positions[PARTS];
    for (int i = 0; i < PARTS; i++) {
        positions[i] = (struct store_position){slice_str(part_names[i]), (int64_t)values[i]};
    }
    struct store_batch batch = {.positions = positions, .n_positions = PARTS};
    return change_record(store, &batch, err);
}

/* --- promotion --- */

static bool is_behind(const struct follower_state *f)
{
    return f->last > f->applied || f->doing == FOLLOWER_CATCHING_UP || f->age_ms < 0;
}

/* Why this node can't be said to have all that the old primary had. */
static const char *what_lacks(const struct follower_state *f, char text[LACKS_TEXT])
{
    if (f->last > f->applied) {
        snprintf(text, LACKS_TEXT, "event %" PRIu64 " of %" PRIu64, f->applied, f->last);
    } else {
        snprintf(text, LACKS_TEXT, "not level with it since %s", f->age_ms < 0 ? "the start here" : "they last met");
    }
    return text;
}

/* One that takes nothing of its primary would not come level after that has stepped down either; and one that refuses
 * plays would take the place of one that may take them. Before the primary is asked to: else no node would take writes.
 * Where the primary is away there is nothing to lose: a disk that is full is no reason to have none. */
static int refuse_unable(struct store *store, const struct follower_state *f, struct err *err)
{
    bool follows = f->doing == FOLLOWER_IN_STEP || f->doing == FOLLOWER_CATCHING_UP;
    struct err why = {0};
    if (f->doing == FOLLOWER_LOST) {
        return err_set(err, ERR_INVALID,
                       "this node is lost, and lacks some of what its primary has: unseen clone makes it a replica "
                       "again; FORCE promotes it without that. Nothing was changed");
    }
    if (f->doing == FOLLOWER_REFUSED || (follows && f->problem[0] != '\0')) {
        return err_set(
            err, ERR_INVALID,
            "this node takes nothing of its primary at the moment (%s): promote once that has ended, or with "
            "FORCE, without what it lacks. Nothing was changed",
            f->problem);
    }
    if (follows && store->ops->refusal(store, &why) < 0) {
        return err_set(err, ERR_INVALID,
                       "this node would refuse plays (%s): promote once that has ended, or with FORCE. Nothing was "
                       "changed",
                       why.text);
    }
    return 0;
}

/* A node that can't write can't become the primary: found out before the old one steps down, also with FORCE. What is
 * written is new each time: a transaction that changes nothing is none. */
static int try_disk(struct store *store, struct err *err)
{
    int64_t before = 0;
    (void)store->positions->find(store, slice_str(TRIED), &before); /* not found: the first time */
    const struct store_position tried = {slice_str(TRIED), before + 1};
    struct store_batch batch = {.positions = &tried, .n_positions = 1};
    int rc = change_record(store, &batch, err);
    return rc < 0 ? err_prefix(err, "nothing was changed, for this node can't write") : 0;
}

/* Brings here what the old primary has, if it answers. 0 also when it doesn't, and this one may be promoted all the
 * same. */
static int take_over(struct changer *c, struct change *ch, uint64_t term, struct follower_state *f, struct err *err)
{
    struct replica *r = c->r;
    struct err why = {0};
    char lacks[LACKS_TEXT];
    uint64_t last = 0;
    if ((!ch->force && refuse_unable(r->store, f, err) < 0) || try_disk(r->store, err) < 0) {
        return err->code;
    }
    int rc = ch->was[0] != '\0' ? ask_to_step_down(c, ch->was, term, &last, &why)
                                : err_set(&why, ERR_SYSTEM, "its address is not known");
    bool stepped_down = rc == 0;
    if (stepped_down) {
        rc = follower_wait(r->follower, last, CHANGE_CATCH_UP_MS, &why);
        follower_look(r->follower, f);
        ch->lossless = rc == 0;
        if (rc < 0 && !ch->force) {
            return err_set(err, ERR_LATE,
                           "%s has stepped down, but what it recorded last is not here yet (event %" PRIu64
                           ", here up to %" PRIu64 "): promote once more; or %s again, with FORCE; or this node with "
                           "FORCE, without that",
                           ch->was, last, f->applied, ch->was);
        }
    } else if (rc == ERR_INVALID && !ch->force) { /* it is there, and may still take writes */
        return err_set(err, ERR_INVALID, "the old primary doesn't step down: %s", why.text);
    } else if (is_behind(f) && !ch->force) {
        return err_set(err, ERR_INVALID,
                       "the old primary doesn't answer (%s), and this node may lack some of what it had (%s): promote "
                       "with FORCE without that",
                       why.text, what_lacks(f, lacks));
    }
    const char *old = stepped_down ? "the old primary has stepped down, but what it recorded last is not here"
                                   : "the old primary doesn't answer";
    if (!ch->lossless && f->age_ms < 0) {
        snprintf(ch->how, sizeof ch->how, "%s; the two were not level since the start here", old);
    } else if (!ch->lossless) {
        snprintf(ch->how, sizeof ch->how, "%s; this state is %" PRId64 " ms old", old, f->age_ms);
    }
    return 0;
}

static int refuse_fenced(const struct store_node *now, struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "another node has taken over in term %" PRIu64
                   ": run unseen rejoin; FORCE makes this one the primary without what the other has",
                   now->term);
}

static int promote(struct changer *c, struct change *ch, struct err *err)
{
    struct replica *r = c->r;
    struct role *role = r->dedup->role;
    struct store_node now;
    int64_t began_us = clock_figures_us();
    role_look(role, &now);
    if (now.role == NODE_PRIMARY && ch->above >= now.term) {
        return role_promote(role, ch->above, err);
    }
    if (now.role == NODE_PRIMARY) {
        return err_set(err, ERR_INVALID, "this node is the primary of term %" PRIu64 " already", now.term);
    }
    if (now.role == NODE_FENCED && !ch->force) {
        return refuse_fenced(&now, err);
    }
    struct follower_state f = {.age_ms = -1};
    if (r->follower != NULL) {
        follower_look(r->follower, &f);
    }
    const char *was = r->cfg->replica_of[0] != '\0' && now.address[0] == '\0' ? r->cfg->replica_of : now.address;
    snprintf(ch->was, sizeof ch->was, "%s", was);
    struct peer other = peer_at(c, now.leader != 0 ? now.leader : f.node, ch->was);
    int rc = r->follower != NULL ? take_over(c, ch, now.term + 1, &f, err) : 0;
    if (rc == 0) {
        follower_stop(r->follower);
        if (r->follower != NULL) {
            follower_look(r->follower, &f); /* it may have applied more */
        }
        rc = part(r->store, &now, &(struct feed_cursor){f.node, f.run, f.applied}, err);
        if (rc < 0 && ch->force) { /* the old one can be cloned again */
            log_warn("nothing is kept for the old primary", "error=%s", log_quote_str(err->text));
            *err = (struct err){0};
            rc = 0;
        }
    }
    if (rc == 0 && (rc = note_primary(c, &now, err)) == 0) {
        rc = note_peer(c, &other, err); /* whom to tell is durable before there is something to tell */
    }
    if (rc == 0) {
        rc = role_promote(role, ch->above > now.term ? ch->above : now.term, err);
    }
    if (rc < 0) { /* it stays a replica */
        struct err why = {0};
        c->stranded = follower_resume(r->follower, &why) < 0;
        if (c->stranded) {
            log_error("this node follows none until it can", "error=%s", log_quote_str(why.text));
        }
    }
    ch->waited_ms = (clock_figures_us() - began_us) / 1000;
    if (rc == 0) {
        changer_heard(c); /* there is none to replace it yet */
        log_warn("this node is the primary now", "was=%s lossless=%d waited_ms=%" PRId64 " applied=%" PRIu64,
                 log_quote_str(ch->was), ch->lossless, ch->waited_ms, f.applied);
    }
    return rc;
}

/* A fenced one has what it recorded alone: that is no other's. */
static int find_common(struct store *store, const struct store_node *now, struct feed_cursor *common, struct err *err)
{
    struct store_reader *reader;
    bool knows = store->copy != NULL && now->role == NODE_REPLICA;
    int rc = knows ? store->ops->reader_open(store, &reader, err) : 0;
    if (knows && rc == 0) {
        rc = cursor_find_last(store, reader, now->leader, common, err);
        store->ops->reader_close(reader);
    }
    return rc < 0 ? rc : 0;
}

/* Whom the node that serves this folder next is to tell. */
static int note_offline(struct store *store, const struct store_node *now, const char *of, struct err *err)
{
    struct peers peers;
    const char *addresses[] = {now->address, of};
    int rc = peers_load(store, &peers, err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        struct peer peer = {.node = i == 0 ? now->leader : 0, .named = true};
        snprintf(peer.address, sizeof peer.address, "%s", addresses[i]);
        rc = peer.address[0] != '\0' ? peers_note(store, &peers, &peer, err) : 0;
    }
    return rc;
}

int change_promote_folder(struct store *store, const char *of, bool force, struct store_node *now,
                          char was[NODE_ADDRESS_TEXT], struct err *err)
{
    struct feed_cursor common = {0};
    if (store->node == NULL || store->feed == NULL) {
        return store_lacks(store, "replicas", err);
    }
    store->node->get(store, now);
    snprintf(was, NODE_ADDRESS_TEXT, "%s", now->address);
    if (now->role == NODE_PRIMARY) {
        return err_set(err, ERR_INVALID, "this is the folder of a primary already, of term %" PRIu64, now->term);
    }
    if (now->role == NODE_FENCED && !force) {
        return refuse_fenced(now, err);
    }
    int rc = find_common(store, now, &common, err);
    if (rc == 0) {
        rc = note_offline(store, now, of, err);
    }
    if (rc == 0) {
        rc = part(store, now, &common, err);
    }
    if (rc < 0) {
        return rc;
    }
    struct change_wait w = CHANGE_WAIT_INIT;
    struct store_node_change change = {.call = {.done = change_on_call, .owner = &w}, .to = *now};
    change.to.role = NODE_PRIMARY;
    change.to.promoted = true;
    change.to.term++;
    change.to.leader = 0;
    change.to.address[0] = '\0';
    store->node->set(store, &change);
    change_wait(&w);
    *now = change.to;
    return change.call.err.code < 0 ? (*err = change.call.err).code : 0;
}

/* --- stepping down --- */

static int meet(struct replica *r, struct change *ch, struct err *err)
{
    struct store_node now;
    role_look(r->dedup->role, &now);
    if (ch->kind == CHANGE_STEPDOWN && now.term >= ch->term) {
        return 0; /* the answer says which term it has met */
    }
    reach_secure(&r->reach, ch->address, ch->address);
    int rc = role_meet(r->dedup->role, ch->term, ch->node, ch->address, err);
    return rc < 0 ? rc : 0;
}

/* --- a node that is gone for good --- */

static int dismiss(struct changer *c, struct change *ch, struct err *err)
{
    char name[FEED_NAME_MAX];
    struct change_wait w = CHANGE_WAIT_INIT;
    struct feed_reset reset = {.call = {.done = change_on_call, .owner = &w}, .consumer = name};
    struct peer peer = {.node = ch->node};
    snprintf(peer.address, sizeof peer.address, "%s", ch->address);
    snprintf(name, sizeof name, FEED_REMOTE "%016" PRIx64, ch->node);
    int rc = peers_drop(c->r->store, &c->peers, &peer, err);
    atomic_store(&c->alone, c->peers.n == 0);
    if (rc == 0 && ch->node != 0) {
        c->r->store->feed->reset(c->r->store, &reset);
        change_wait(&w);
        rc = reset.call.err.code < 0 ? (*err = reset.call.err).code : 0;
    }
    if (rc == 0 && c->peers.n == 0) {
        changer_heard(c); /* none is left that could know more */
    }
    return rc;
}

/* --- the thread --- */

static void carry_out(struct changer *c, struct change *ch)
{
    switch (ch->kind) {
    case CHANGE_MEET:
    case CHANGE_STEPDOWN:
        meet(c->r, ch, &ch->err);
        break;
    case CHANGE_LAST:
        change_look_last(c->r, ch, &ch->err);
        break;
    case CHANGE_PROMOTE:
        promote(c, ch, &ch->err);
        break;
    case CHANGE_MERGE:
        change_merge(c->r, ch, &ch->err);
        break;
    case CHANGE_DISMISS:
        dismiss(c, ch, &ch->err);
        break;
    }
    role_look(c->r->dedup->role, &ch->now);
    ch->done(ch);
}

static void follow_again(struct changer *c)
{
    struct store_node now;
    struct err err = {0};
    role_look(c->r->dedup->role, &now);
    c->stranded = now.role == NODE_REPLICA && follower_resume(c->r->follower, &err) < 0;
}

static void changer_main(void *arg)
{
    struct changer *c = arg;
    pthread_mutex_lock(&c->mutex);
    while (!task_stops(&c->task)) {
        struct change *ch = c->first;
        if (ch != NULL) {
            c->first = ch->next;
            c->end = c->first == NULL ? &c->first : c->end;
        }
        if (c->met) {
            peers_try_all(&c->peers);
            c->met = false;
        }
        pthread_mutex_unlock(&c->mutex);
        heartbeat_excuse(&c->task.heartbeat); /* for disks, and for other nodes */
        if (ch != NULL) {
            carry_out(c, ch);
        } else {
            if (c->stranded) {
                follow_again(c);
            }
            note_peers(c);
            ask_whether_replaced(c);
            herald(c);
        }
        heartbeat_now(&c->task.heartbeat);
        pthread_mutex_lock(&c->mutex);
        if (c->first == NULL) {
            task_wait_real(&c->task, clock_real_us() + CHANGE_HERALD_MS * 1000);
        }
    }
    pthread_mutex_unlock(&c->mutex);
}

int changer_new(struct replica *r, struct changer **changer, struct err *err)
{
    struct changer *c = *changer = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for changes of the role");
    }
    c->r = r;
    c->end = &c->first;
    pthread_mutex_init(&c->mutex, NULL);
    task_init(&c->task, &c->mutex);
    int rc = peers_load(r->store, &c->peers, err);
    if (rc < 0) {
        return err_prefix(err, "whom to tell of this node's term can't be read");
    }
    for (int i = 0; i < c->peers.n; i++) {
        if (c->peers.list[i].named) {
            reach_name(&r->reach, c->peers.list[i].address);
        }
    }
    atomic_init(&c->alone, c->peers.n == 0);
    begin_unheard(c);
    return 0;
}

int changer_start(struct changer *c, struct err *err)
{
    return task_start(&c->task, "changer", TASK_BEATS, changer_main, c, err);
}

void changer_stop(struct changer *c)
{
    if (c == NULL) {
        return;
    }
    task_stop(&c->task);
    for (struct change *ch = c->first, *next; ch != NULL; ch = next) {
        next = ch->next;
        err_set(&ch->err, ERR_CLOSED, "the server is stopping");
        ch->done(ch);
    }
    c->first = NULL;
}

void changer_free(struct changer *c)
{
    if (c != NULL) {
        task_destroy(&c->task);
        pthread_mutex_destroy(&c->mutex);
        free(c);
    }
}

void changer_look(struct changer *c)
{
    pthread_mutex_lock(&c->mutex);
    c->met = true;
    task_wake(&c->task);
    pthread_mutex_unlock(&c->mutex);
}

void changer_put(struct changer *c, struct change *change)
{
    change->next = NULL;
    pthread_mutex_lock(&c->mutex);
    bool takes = !task_stops(&c->task);
    if (takes) {
        *c->end = change;
        c->end = &change->next;
        task_wake(&c->task);
    }
    pthread_mutex_unlock(&c->mutex);
    if (!takes) {
        err_set(&change->err, ERR_CLOSED, "the server is stopping");
        change->done(change);
    }
}
