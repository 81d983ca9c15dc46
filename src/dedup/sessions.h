/* Scroll sessions: short-lived sets of blocked ids, such as the games that were already shown in this scroll.
 *
 * A session is a name of 1 to 255 bytes and a set of ids (dedup/session_ids.h). It ends session_ttl after its last
 * use, and all sessions together keep within session_memory: when it is full, those unused for longest go first. A
 * session that was never begun, or has ended, is an empty one.
 *
 * Sessions stand in memory, numbers as sorted gaps in the Golomb-Rice code of the month filter (300 of 10,000 take some
 * 255 bytes, the limit being 242), other ids as 8 bytes each. All functions may be called from any
 * thread; names are dealt to shards with a lock each, which is held for a few microseconds.
 */
#ifndef UNSEEN_DEDUP_SESSIONS_H
#define UNSEEN_DEDUP_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "base/slice.h"
#include "config/config.h"
#include "dedup/session_ids.h"
#include "dedup/session_set.h"
#include "store/store.h"

struct sessions;

/* seed: of the names' hashes. */
int sessions_new(const struct config *cfg, uint64_t seed, struct sessions **out, struct err *err);
void sessions_free(struct sessions *all); /* NULL is none */

/* Adds ids, in any order, to a session, which begins if need be. Returns how many were not in it before; ERR_FULL when
 * it would hold more than SESSION_IDS_MAX, ERR_NOMEM: then nothing was added. ids are reordered. */
int64_t sessions_block(struct sessions *all, struct slice name, struct session_ids *ids, struct err *err);

/* Takes ids out of a session; none ends it. Returns how many ids were in it, or ERR_NOMEM. ids are reordered. */
int64_t sessions_unblock(struct sessions *all, struct slice name, struct session_ids *ids, struct err *err);

/* Loads a session's ids, which counts as a use. Returns 0 or ERR_NOMEM. */
int sessions_load(struct sessions *all, struct slice name, struct session_set *set, struct err *err);

/* Frees what has ended; each of `parts` callers sees to its own shards, a bounded number of sessions a call. */
void sessions_expire(struct sessions *all, unsigned part, unsigned parts);

struct sessions_stats {
    uint64_t live;    /* gauge: in memory, those that have ended but were not yet freed too */
    uint64_t bytes;   /* gauge */
    uint64_t limit;   /* session_memory */
    uint64_t begun;   /* since the start, as are the following */
    uint64_t expired; /* ended because unused for session_ttl */
    uint64_t evicted; /* ended before, because session_memory was full */
};
void sessions_stats(const struct sessions *all, struct sessions_stats *out);
void sessions_stats_each(const struct sessions *all, figure_visit *visit, void *arg);

/* At a clean stop, and at the next start: sessions go to the store and come back, less those that ended meanwhile. Both
 * block. */
int sessions_save(struct sessions *all, struct store *store, struct err *err);
int sessions_restore(struct sessions *all, struct store *store, struct err *err);

#endif
