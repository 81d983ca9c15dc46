/* The newest forgets in memory, by user and place in the feed's order: what another tier must know before it is
 * believed about a user (store/feed.h, covers). Bounded: of older ones, and of those of earlier runs, it is only known
 * how far they go. Any thread. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_RECENT_FORGETS_H
#define UNSEEN_STORE_SQLITE_STAGING_RECENT_FORGETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { RECENT_FORGETS_MAX = 16384 };

struct recent_forgets {
    pthread_mutex_t mutex;
    struct recent_forget {
        int64_t key;
        uint64_t seq;
    } ring[RECENT_FORGETS_MAX]; /* the n-th at n % RECENT_FORGETS_MAX, ascending */
    uint64_t n;                 /* ever */
    uint64_t unknown;           /* any user's may have come up to here; at first the opener's to set */
};

void recent_forgets_init(struct recent_forgets *f);
void recent_forgets_free(struct recent_forgets *f);

/* In the order of their seqs, before any client is told. */
void recent_forgets_add(struct recent_forgets *f, int64_t key, uint64_t seq);

/* Whether none of the user's is later than `to`. O(those that are later). */
bool recent_forgets_cover(struct recent_forgets *f, int64_t key, uint64_t to);

#endif
