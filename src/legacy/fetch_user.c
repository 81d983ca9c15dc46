#include "legacy/fetch_user.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "dedup/dedup.h"
#include "store/bulk.h"

static struct slice user_of(const struct fetch_user *t)
{
    return slice_of(t->user, t->user_len);
}

void fetch_user_begin(struct fetch_user *t, const struct fetch_rules *rules, struct slice user)
{
    *t = (struct fetch_user){.user_len = user.len, .cursor = "0"};
    memcpy(t->user, user.data, user.len);
    t->key = hash_user_key(rules->seed, user);
}

int fetch_user_ask(const struct fetch_user *t, const struct fetch_rules *rules, struct redis *redis, struct err *err)
{
    char key[LEGACY_KEY_MAX];
    if (t->step == FETCH_PLAYS) {
        const struct slice words[] = {slice_str("ZSCAN"), legacy_key_make(rules->played_key, user_of(t), key),
                                      slice_str(t->cursor), slice_str("COUNT"), slice_str("1000")};
        return redis_send(redis, words, 5, err);
    }
    const struct slice words[] = {slice_str("ZREVRANGE"), legacy_key_make(rules->delivered_key, user_of(t), key),
                                  slice_str("0"), slice_str("99"), slice_str("WITHSCORES")};
    return redis_send(redis, words, 5, err);
}

static void skip_member(struct fetch_problem *p, struct slice member, const char *why)
{
    if (p->members++ == 0) {
        char shown[64];
        snprintf(shown, sizeof shown, "%.48s", log_quote(slice_of(member.data, member.len < 40 ? member.len : 40)));
        snprintf(p->what, sizeof p->what, "%s: %s", shown, why);
    }
}

/* One member and its score. Whether it can be taken; else it is counted. */
static bool good(struct fetch_user *t, struct fetch_problem *p, const struct legacy_times *times, struct slice member,
                 struct slice score, int64_t *at_ms)
{
    char why[LEGACY_WHY];
    if (member.len < 1 || member.len > ID_MAX) {
        snprintf(why, sizeof why, "the member has %zu bytes, expected 1 to %d", member.len, ID_MAX);
        skip_member(p, member, why);
        return false;
    }
    enum legacy_time time = legacy_time_parse(times, score, at_ms, why);
    if (time == LEGACY_TIME_BAD) {
        skip_member(p, member, why);
    }
    t->too_old += time == LEGACY_TIME_OLD;
    return time == LEGACY_TIME_GOOD;
}

/* Members and scores in turn. deliver: newest first. */
static int take_members(struct fetch_user *t, const struct fetch_rules *rules, const struct redisReply *list,
                        bool deliver, struct err *err)
{
    size_t n = redis_count(list) / 2;
    n = deliver && n > STORE_RANK_MAX ? STORE_RANK_MAX : n;
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        struct slice member, score;
        int64_t at_ms;
        if (!redis_text(redis_item(list, 2 * i), &member) || !redis_text(redis_item(list, 2 * i + 1), &score) ||
            !good(t, deliver ? &t->delivered : &t->played, deliver ? &rules->deliveries : &rules->plays, member, score,
                  &at_ms)) {
            continue;
        }
        uint64_t hash = hash_id(rules->seed, member);
        const struct store_bulk_ops *bulk = rules->store->bulk;
        if (deliver) {
            result = bulk->deliver(rules->store, at_ms, t->key, user_of(t), member, hash, n - i, err);
            t->deliveries++;
        } else {
            result = bulk->add(rules->store, at_ms, t->key, user_of(t), hash, err);
            t->plays++;
        }
    }
    return result;
}

static void next_step(struct fetch_user *t, const struct fetch_rules *rules)
{
    t->step = t->step == FETCH_PLAYS && rules->delivered_key[0] != '\0' ? FETCH_DELIVERIES : FETCH_DONE;
}

void take_give_up(struct fetch_user *t, const struct fetch_rules *rules, const char *why)
{
    struct fetch_problem *p = t->step == FETCH_PLAYS ? &t->played : &t->delivered;
    p->whole = true;
    snprintf(p->what, sizeof p->what, "%s", why);
    next_step(t, rules);
}

static int take_page(struct fetch_user *t, const struct fetch_rules *rules, const struct redisReply *reply,
                     struct err *err)
{
    struct slice cursor;
    if (redis_count(reply) != 2 || !redis_text(redis_item(reply, 0), &cursor)) {
        return err_set(err, ERR_BUSY, "the answer to ZSCAN is no page of a sorted set");
    }
    const char *wrong = legacy_cursor_take(t->cursor, cursor);
    if (wrong == NULL && ++t->pages > FETCH_PAGES_MAX) {
        wrong = "the scan does not end";
    }
    int result = take_members(t, rules, redis_item(reply, 1), false, err);
    if (wrong != NULL) {
        take_give_up(t, rules, wrong);
    } else if (legacy_cursor_ended(t->cursor)) {
        next_step(t, rules);
    }
    return result;
}

/* The key has moved between two of its pages. */
static bool began_elsewhere(struct fetch_user *t, const void *place)
{
    bool moved = t->pages > 0 && t->place != place;
    t->place = place;
    if (moved) {
        strcpy(t->cursor, "0");
        t->pages = 0;
    }
    return moved;
}

int fetch_user_reply(struct fetch_user *t, const struct fetch_rules *rules, const struct redisReply *reply,
                     const void *place, struct err *err)
{
    struct slice text;
    if (t->step == FETCH_PLAYS && began_elsewhere(t, place)) {
        return 0;
    }
    if (redis_is_error(reply, &text)) {
        if (!legacy_refuses_key(text)) {
            return err_set(err, ERR_BUSY, "%.*s", (int)text.len, text.data);
        }
        char why[FETCH_WHAT];
        snprintf(why, sizeof why, "%.*s", (int)text.len, text.data);
        take_give_up(t, rules, why);
        return 0;
    }
    if (t->step == FETCH_PLAYS) {
        return take_page(t, rules, reply, err);
    }
    next_step(t, rules);
    return take_members(t, rules, reply, true, err);
}
