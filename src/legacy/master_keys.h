/* How many keys each master of the old Redis had when the migration last connected to it. A key that is absent looks
 * like a user without plays, so a master that comes back without its data must be noticed before any user is read from
 * it.
 */
#ifndef UNSEEN_LEGACY_MASTER_KEYS_H
#define UNSEEN_LEGACY_MASTER_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

struct redis;

enum { MASTER_KEYS_FEW = 100 }; /* fewer may come and go */

struct master_keys {
    struct master_count {
        char address[CONFIG_TEXT];
        uint64_t keys;
    } * list;
    size_t n, room;
};

void master_keys_free(struct master_keys *m); /* all zero afterwards */
int master_keys_add(struct master_keys *m, const char *address, uint64_t keys, struct err *err); /* ERR_NOMEM */

/* Whether those of now may be the same masters with the same data: 0; ERR_BUSY: most of a master's keys are gone, and
 * no other master has got them (a slot that moves takes its keys along). */
int master_keys_judge(const struct master_keys *before, const struct master_keys *now, struct err *err);

/* Asks each master, judges, and keeps what it has learned when all is well. A Redis that doesn't allow DBSIZE is not
 * judged. Also the errors of redis_call_master(). */
int master_keys_look(struct master_keys *m, struct redis *redis, struct err *err);

#endif
