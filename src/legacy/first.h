/* Users who are to be migrated before all others, because they are asked about. Bounded: whoever finds no room is
 * migrated in turn. Any thread puts, one takes. All zero but for first_init(). */
#ifndef UNSEEN_LEGACY_FIRST_H
#define UNSEEN_LEGACY_FIRST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum { FIRST_MAX = 256, FIRST_RECENT = 1024, FIRST_AGAIN_US = 10 * 1000 * 1000 };

struct first {
    pthread_mutex_t mutex;
    struct first_user {
        uint8_t len;
        char id[255];
    } users[FIRST_MAX];
    size_t at, n;
    struct first_recent {
        int64_t key, until_us;
    } recent[FIRST_RECENT]; /* by their keys: a user is asked about again and again while waiting */
};

void first_init(struct first *f);
void first_free(struct first *f);

/* False: there is no room. A user who was put less than FIRST_AGAIN_US ago is not put again. */
bool first_put(struct first *f, int64_t key, struct slice user, int64_t now_us);

/* The next, copied into id; false: none. */
bool first_take(struct first *f, char id[255], struct slice *user);

#endif
