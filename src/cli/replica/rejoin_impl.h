/* The parts of `unseen rejoin`: what it sends by MERGE and LOAD, and who decides (rejoin.c); what was forgotten there
 * (rejoin_theirs.c); users as a whole (rejoin_users.c); forgets that no feed tells (rejoin_forgets.c); the order of
 * this folder's own events (rejoin_order.c). */
#ifndef UNSEEN_CLI_REPLICA_REJOIN_IMPL_H
#define UNSEEN_CLI_REPLICA_REJOIN_IMPL_H

#include "cli/replica/other_node.h"
#include "replica/event.h"
#include "store/copy.h"
#include "store/store.h"

enum { THEIRS_MAX = 1000 /* of one reply */ };

/* What becomes of forgets where the new primary can't tell what is newer than they are. */
enum rejoin_policy { FORGETS_ASK, FORGETS_LEAVE, FORGETS_APPLY };

/* Tombstones of the new primary, by key. */
struct rejoin_theirs {
    struct tombstone page[THEIRS_MAX];
    size_t n, at;
    bool begun, ended;
    struct buf of_key; /* struct tombstone each */
    int64_t key;
    bool has_key;
};

struct rejoining {
    const char *address, *user, *policy_text;
    enum rejoin_policy policy;
    struct config cfg;
    struct other_node to;
    struct store *store;
    struct store_reader *reader;
    struct store_node self;
    /* of the new primary */
    uint64_t parted_from, common_seq, promoted_at_seq;
    bool keeps;      /* all that was recorded there since */
    bool must_clone; /* this folder, before it can follow */

    struct buf events; /* not sent yet; up to: */
    uint64_t upto;
    uint32_t n_events;
    bool forgets; /* they are of rejoin_send_forgets() */
    struct event_state state;
    char last_user[256];    /* that the state points to, since the bytes and the arena move */
    struct buf own_forgets; /* all that the feed tells, for rejoin_order_place() */
    struct buf loads;       /* who is to be sent as a whole: struct rejoin_load each, */
    struct arena ids;       /* whose names lie here */

    struct rejoin_theirs theirs;
    uint64_t sent, users, dropped; /* dropped: nothing of them is within the retention there */
    uint64_t left, named;          /* forgets that are not carried out there; named: and said here */
    uint64_t unseen;               /* items that were forgotten there, and so are not sent */
};

struct rejoin_load {
    int64_t key;
    struct slice user;
};

/* Hands an event over: it goes with the next ones, in a run. */
int rejoin_put(struct rejoining *r, const struct feed_event *event, struct err *err);
int rejoin_send(struct rejoining *r, struct err *err); /* those that are not sent yet */

/* First all events of the feed are noted; then each play and delivery is placed among this folder's own forgets: false:
 * a later one has ended it. Else its time is behind those that came before it. */
int rejoin_order_note(struct rejoining *r, struct feed_event *event, struct err *err);
void rejoin_order_ready(struct rejoining *r);
bool rejoin_order_place(const struct rejoining *r, struct feed_event *event);

/* Names a forget that is not carried out there. */
void rejoin_leave(struct rejoining *r, const struct feed_event *event);

/* What was forgotten of a key there: into r->theirs.of_key. Keys rise from call to call, from a beginning on. */
void rejoin_theirs_begin(struct rejoining *r);
int rejoin_theirs_of(struct rejoining *r, int64_t key, struct err *err);

/* What was forgotten here alone, where the feed doesn't tell. The new primary has the names. */
int rejoin_send_forgets(struct rejoining *r, struct err *err);

/* All users; or those of r->loads. Items that were forgotten there since are un-seen in what is sent. */
int rejoin_send_users(struct rejoining *r, struct err *err);
int rejoin_send_loads(struct rejoining *r, struct err *err);

#endif
