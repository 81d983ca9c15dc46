/* Takes over one user: the commands for the old Redis, one after the other, and the handling of their replies. The
 * thread (migration.c) has many users under way at a time, each with one command. */
#ifndef UNSEEN_LEGACY_FETCH_USER_H
#define UNSEEN_LEGACY_FETCH_USER_H

#include "base/err.h"
#include "base/slice.h"
#include "legacy/parse.h"
#include "legacy/redis.h"
#include "store/store.h"

enum { FETCH_PAGES_MAX = 1000 * 1000, FETCH_WHAT = 240 };

/* What is found in one key of a user. */
struct fetch_problem {
    uint64_t members;      /* that were skipped */
    bool whole;            /* the key could not be read at all */
    char what[FETCH_WHAT]; /* the first; "": none */
};

struct fetch_user {
    char user[256];
    size_t user_len;
    int64_t key;
    enum { FETCH_PLAYS, FETCH_DELIVERIES, FETCH_DONE } step;
    char cursor[LEGACY_CURSOR];
    uint32_t pages;
    const void *place; /* where the pages come from */
    struct fetch_problem played, delivered;
    uint64_t plays, deliveries, too_old;
};

/* What holds for all. */
struct fetch_rules {
    const char *played_key, *delivered_key; /* "": there are none */
    struct legacy_times plays, deliveries;
    struct store *store; /* whose bulk load takes what is read */
    uint64_t seed;
};

void fetch_user_begin(struct fetch_user *t, const struct fetch_rules *rules, struct slice user);

/* Queues the command of the step that it stands at. */
int fetch_user_ask(const struct fetch_user *t, const struct fetch_rules *rules, struct redis *redis, struct err *err);

/* The next key can't be read, as the text says: it is skipped. */
void take_give_up(struct fetch_user *t, const struct fetch_rules *rules, const char *why);

/* Takes its reply, and moves to the next step. place: where it came from; a page from elsewhere than the one before
 * begins the key again, since a cursor means nothing to another node. An error is the store's; or ERR_BUSY, when the
 * Redis refuses everything: the text says why. */
int fetch_user_reply(struct fetch_user *t, const struct fetch_rules *rules, const struct redisReply *reply,
                     const void *place, struct err *err);

#endif
