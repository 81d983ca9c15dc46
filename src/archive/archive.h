/* The archive: what is recorded here, streamed to a folder or a bucket elsewhere, from which `unseen restore` makes the
 * folder again when its machine has burnt, or as it was at a moment of the last weeks.
 *
 *   depot.h     where objects lie: put, get, list, remove
 *   object.h    an object's form
 *   catalog.h   their names, and what a listing says
 *   begin.c     how the writer begins: whose objects lie there, and what they lack
 *   segment.c   events of the feed, each `every`
 *   round.c     all users, now and then; round_end.h: what is written last of a round
 *   resume.c    one that was interrupted goes on
 *   sweep.c     objects that no moment needs any more
 *
 * One thread writes, as a consumer of the feed (FEED_ARCHIVE). It passes an event once its object is there. Only a
 * primary writes; what it can't write waits in the feed, up to feed_max, and recording goes on.
 *
 *   the store recovers -> archive_start() ... archive_stop() -> the store closes -> archive_free()
 */
#ifndef UNSEEN_ARCHIVE_ARCHIVE_H
#define UNSEEN_ARCHIVE_ARCHIVE_H

#include "base/err.h"
#include "base/figure.h"
#include "dedup/dedup.h"
#include "store/feed.h"

struct archive;

#define ARCHIVE_FROM                                                                                                   \
    "archive:from:" /* then a node: a position (store/positions.h) of a folder that was restored: it has               \
                     * all that this node had recorded up to there */

/* *archive is NULL when there is none; what an earlier run kept for it is given up then. The depot need not be there.
 * ERR_ABSENT: the store keeps no feed. */
int archive_start(const struct dedup *dedup, struct archive **archive, struct err *err);
void archive_stop(struct archive *a);
void archive_free(struct archive *a);

enum archive_doing {
    ARCHIVE_OFF,     /* there is none, or this node is no primary */
    ARCHIVE_WAITING, /* for what `cause` says; tries again by itself */
    ARCHIVE_FILLING, /* the first round has not ended: not restorable yet */
    ARCHIVE_BEHIND,  /* events wait for longer than `every` */
    ARCHIVE_IN_STEP,
    ARCHIVE_DOINGS,
};
/* "off", "waiting", "not restorable yet", "behind", "in step" */
const char *archive_doing_name(enum archive_doing doing);

enum { ARCHIVE_TEXT = 320 };

struct archive_status {
    enum archive_doing doing;
    char cause[ARCHIVE_TEXT]; /* WAITING */
    int64_t since_ms;         /* WAITING: wall time; 0 */
    char url[CONFIG_TEXT];    /* without what is secret */
    uint64_t node;            /* whose objects these are; 0: nothing is known yet */
    struct feed_state queue;
    bool restorable;
    int64_t archived_ms; /* all that was recorded up to then is there; 0: nothing is known yet */
    uint64_t to;         /* the newest event there */
    uint32_t round;      /* the one under way; 0: none is */
    double part;         /* of its users, 0..1 */
    int64_t rounded_ms;  /* when the last one ended; 0: none has in this run, and none is there */

    /* Since the start. */
    uint64_t segments, segment_bytes, events, users;
    uint64_t shards, shard_bytes, rounds;
    uint64_t errors, removed;
};
void archive_look(const struct dedup *d, struct archive_status *out); /* any thread; also when there is none */

/* A round begins at once, and what was before it is given up once it has ended. ERR_REPLICA: this node is no primary.
 */
int archive_forget_now(struct archive *a, struct err *err);

void archive_figures_each(const struct dedup *d, figure_visit *visit, void *arg);

#endif
