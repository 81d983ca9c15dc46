#include "legacy/master_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "legacy/redis.h"

void master_keys_free(struct master_keys *m)
{
    free(m->list);
    *m = (struct master_keys){0};
}

int master_keys_add(struct master_keys *m, const char *address, uint64_t keys, struct err *err)
{
    if (m->n == m->room) {
        size_t room = m->room > 0 ? 2 * m->room : 4;
        struct master_count *list = reallocarray(m->list, room, sizeof *list);
        if (list == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for the masters of the old Redis");
        }
        m->list = list;
        m->room = room;
    }
    struct master_count *count = &m->list[m->n++];
    snprintf(count->address, sizeof count->address, "%s", address);
    count->keys = keys;
    return 0;
}

static uint64_t sum(const struct master_keys *m)
{
    uint64_t keys = 0;
    for (size_t i = 0; i < m->n; i++) {
        keys += m->list[i].keys;
    }
    return keys;
}

static int tell(const char *address, uint64_t keys, uint64_t before, struct err *err)
{
    return err_set(err, ERR_BUSY,
                   "%s has %" PRIu64 " keys, and had %" PRIu64
                   " before it was away: if it lost its data, restore it; if that is all, unseen migrate --pause and "
                   "--resume",
                   address, keys, before);
}

int master_keys_judge(const struct master_keys *before, const struct master_keys *now, struct err *err)
{
    uint64_t all_before = sum(before), all = sum(now);
    if (all >= all_before || all_before < MASTER_KEYS_FEW) {
        return 0;
    }
    uint64_t lost = all_before - all; /* by any node */
    for (size_t i = 0; i < now->n; i++) {
        for (size_t j = 0; j < before->n; j++) {
            const struct master_count *is = &now->list[i], *was = &before->list[j];
            if (strcmp(is->address, was->address) == 0 && was->keys >= MASTER_KEYS_FEW && is->keys < was->keys / 2 &&
                lost > (was->keys - is->keys) / 2) {
                return tell(is->address, is->keys, was->keys, err);
            }
        }
    }
    return all < all_before / 2 && now->n > 0 ? tell(now->list[0].address, all, all_before, err) : 0;
}

static int count(struct master_keys *m, struct redis *redis, size_t node, struct err *err)
{
    const struct slice word = slice_str("DBSIZE");
    struct redisReply *reply = NULL;
    int64_t keys = 0;
    int rc = redis_call_master(redis, node, &word, 1, &reply, err);
    if (rc == 0) {
        bool known = redis_integer(reply, &keys) && keys >= 0;
        redis_free(reply);
        rc = known ? master_keys_add(m, redis_master_address(redis, node), (uint64_t)keys, err) : ERR_INVALID;
    }
    return rc;
}

int master_keys_look(struct master_keys *m, struct redis *redis, struct err *err)
{
    struct master_keys now = {0};
    int rc = 0;
    for (size_t node = 0; rc == 0 && redis_next_master(redis, &node); node++) {
        rc = count(&now, redis, node, err);
    }
    if (rc == ERR_INVALID) { /* it doesn't say */
        master_keys_free(&now);
        return 0;
    }
    rc = rc == 0 ? master_keys_judge(m, &now, err) : rc;
    if (rc < 0) {
        master_keys_free(&now);
        return rc;
    }
    master_keys_free(m);
    *m = now;
    return 0;
}
