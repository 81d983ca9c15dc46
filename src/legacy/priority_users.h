/* Users who are migrated before all others, because there are questions about them. Bounded: a user without room is
 * migrated in turn. Any thread puts, one takes. All zero but for priority_users_init(). */
#ifndef UNSEEN_LEGACY_PRIORITY_USERS_H
#define UNSEEN_LEGACY_PRIORITY_USERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum { PRIORITY_USERS_MAX = 256, PRIORITY_USERS_RECENT = 1024, PRIORITY_USERS_AGAIN_US = 10 * 1000 * 1000 };

struct priority_users {
    pthread_mutex_t mutex;
    struct priority_user {
        uint8_t len;
        char id[255];
    } users[PRIORITY_USERS_MAX];
    size_t at, n;
    struct priority_recent {
        int64_t key, until_us;
    } recent[PRIORITY_USERS_RECENT]; /* by their keys: there may be many questions about a waiting user */
};

void priority_users_init(struct priority_users *f);
void priority_users_free(struct priority_users *f);

/* False: there is no room. A user who was put less than PRIORITY_USERS_AGAIN_US ago is not put again. */
bool priority_users_put(struct priority_users *f, int64_t key, struct slice user, int64_t now_us);

/* The next, copied into id; false: none. */
bool priority_users_take(struct priority_users *f, char id[255], struct slice *user);

#endif
