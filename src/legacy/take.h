/* Taking one user over: the commands to be sent to the old Redis, one after the other, and what becomes of their
 * replies. The thread (migration.c) has many users under way at a time, each with one command. */
#ifndef UNSEEN_LEGACY_TAKE_H
#define UNSEEN_LEGACY_TAKE_H

#include "base/err.h"
#include "base/slice.h"
#include "legacy/parse.h"
#include "legacy/redis.h"
#include "store/store.h"

enum { TAKE_PAGES_MAX = 1000 * 1000, TAKE_WHAT = 240 };

/* What is found in one key of a user. */
struct take_problem {
    uint64_t members;     /* that were skipped */
    bool whole;           /* the key could not be read at all */
    char what[TAKE_WHAT]; /* the first; "": none */
};

struct take {
    char user[256];
    size_t user_len;
    int64_t key;
    enum { TAKE_PLAYS, TAKE_DELIVERIES, TAKE_DONE } step;
    char cursor[LEGACY_CURSOR];
    uint32_t pages;
    struct take_problem played, delivered;
    uint64_t plays, deliveries, too_old;
};

/* What holds for all. */
struct take_rules {
    const char *played_key, *delivered_key; /* "": there are none */
    struct legacy_times plays, deliveries;
    struct store *store; /* whose bulk load takes what is read */
    uint64_t seed;
};

void take_begin(struct take *t, const struct take_rules *rules, struct slice user);

/* Queues the command of the step that it stands at. */
int take_ask(const struct take *t, const struct take_rules *rules, struct redis *redis, struct err *err);

/* The key that is asked for next can't be read as a whole, as the text says: it is passed over. */
void take_give_up(struct take *t, const struct take_rules *rules, const char *why);

/* Takes its reply, and goes on to the next step. An error is the store's; or ERR_BUSY, when the Redis answers nobody:
 * the text says why. */
int take_reply(struct take *t, const struct take_rules *rules, const struct redisReply *reply, struct err *err);

#endif
