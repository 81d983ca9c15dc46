/* What the files of the writer share. All of it is its thread's, but what stands below the mutex. */
#ifndef UNSEEN_ARCHIVE_ARCHIVE_IMPL_H
#define UNSEEN_ARCHIVE_ARCHIVE_IMPL_H

#include <pthread.h>

#include "archive/archive.h"
#include "archive/catalog.h"
#include "archive/depot.h"
#include "base/arena.h"
#include "base/task.h"
#include "store/copy.h"
#include "store/node.h"

enum {
    ARCHIVE_READ_EVENTS = 512,
    ARCHIVE_SEGMENT_BYTES = 8 * 1024 * 1024,
    ARCHIVE_USERS_IN_A_ROW = 10000, /* more of them are brought in by a round */
};

/* An object that is made, and may or may not be there yet: another try puts the same bytes, since an earlier one may
 * still be under way. */
struct pending {
    bool waits;
    char name[DEPOT_NAME_MAX];
    struct object_head head;
    struct buf object;
};

enum round_phase { ROUND_NONE, ROUND_FLUSHING, ROUND_HEAD, ROUND_USERS, ROUND_END };

struct round {
    enum round_phase phase;
    uint32_t number;
    bool spread;      /* over a day */
    int64_t begun_us; /* clock_mono_us() */
    int64_t begun_real_us;
    uint64_t from, to;   /* as those of its shards */
    uint32_t shard;      /* the next one's number */
    int64_t key;         /* and where its users begin */
    uint64_t bytes;      /* of its parts; */
    uint64_t sent;       /* of those that were written since this run began or went on with it */
    struct pending part; /* the part or end that is put */
    struct buf ends;     /* a line of the end's text for each shard */
};

struct archive {
    const struct dedup *dedup;
    struct store *store;
    const struct config *cfg;
    struct store_reader *reader;
    struct task task;

    struct cipher_keys keys; /* set at the start */
    struct depot *depot;
    bool begun; /* this node's objects were looked at */
    struct store_node self;
    uint64_t cursor;  /* all up to here is there */
    int64_t delay_ms; /* of the back-off */
    int64_t tick_us;  /* when events are looked at next, clock_mono_us() */
    struct arena arena;
    struct feed_event events[ARCHIVE_READ_EVENTS];
    struct buf run, records; /* of the object that is made */
    struct buf page;

    struct pending segment;
    uint64_t segment_bytes; /* of its events, as the feed counts them */

    struct round round;
    uint32_t last_round;         /* the highest number that is there; 0: none */
    uint64_t base_from, base_to; /* of the newest round that has ended */
    uint64_t base_bytes;         /* its bytes, and those of segments since; */
    uint64_t since_bytes;
    int64_t base_ms; /* when it ended; 0: there is none */
    uint64_t
        lacks_to; /* a round is needed that begins behind this event: users were not followed. In the folder, too. */
    uint64_t purge_to; /* one is needed that begins here or behind; once all that it needs is there, what was before it
                        * is given up. 1 + that event; 0: none is. In the folder, too */
    uint64_t key_from; /* 1 + the last event that may lie there under another key than keys.now; 0: none. A round that
                        * begins before it is none. In the folder, too */
    uint64_t users_in_a_row;
    int64_t swept_ms; /* clock_mono_ms() */

    struct store_call flush; /* the store's while `flushing` */
    struct store_call renew;
    struct store_batch mark;
    struct feed_reset reset;
    struct feed_enlist enlist;

    pthread_mutex_t mutex;  /* guards: */
    bool flushing, flushed; /* flush is the store's; was answered since a round began */
    bool answered;          /* what is waited for */
    bool wanted;            /* a round was asked for, which gives up what was before it */
    struct archive_status status;
};

/* What an earlier run kept for an archive that is none any more. */
void archive_give_up(struct store *store);

/* begin.c. Whether what lies there of this node is this folder's past: 1; 0: another copy of it has written, or it went
 * back to an older state, and it is another node from now on. */
int archive_compare(struct archive *a, const struct catalog *c, struct err *err);
/* 0 once it is known what is there, and the feed keeps what is recorded. */
int archive_begin(struct archive *a, struct err *err);

/* segment.c. 1: one was written, and more may wait; 0: what waited is there. */
int archive_segment(struct archive *a, struct err *err);
/* Pools as they are now, as records. name empty: all of them. */
int archive_add_pool(struct archive *a, uint64_t seq, struct slice name, struct buf *records, struct err *err);
int archive_add_pools(struct archive *a, struct buf *records, struct err *err);

/* round.c. Does what is due of a round; *next_us: when more is, clock_mono_us(); INT64_MAX: not known. */
int archive_round(struct archive *a, int64_t *next_us, struct err *err);
bool archive_purges(const struct archive *a); /* a round has ended that was to give up what was before it */
int archive_purge(struct archive *a, struct err *err);
void archive_round_drop(struct archive *a); /* it begins again, under another number */
void archive_round_pass(struct round *r, const struct object_head *part, uint64_t bytes); /* that part is there */
void archive_round_go_on(struct archive *a); /* what lies there of it was passed: at which pace the rest comes */

/* resume.c. Begins with what lies there of a round that was interrupted, if there is one that can go on. */
int archive_resume(struct archive *a, const struct catalog *c, struct err *err);

/* begin.c. What is needed of a round, in the folder, as long as the node is the same: it outlives a start. */
#define ARCHIVE_LACKS "archive:lacks:"       /* lacks_to; then the node */
#define ARCHIVE_PURGE "archive:purge:"       /* purge_to */
#define ARCHIVE_PLACE "archive:place:"       /* a hash of the URL, once this folder has archived there */
#define ARCHIVE_KEY "archive:key:"           /* the id of what it has encrypted with there */
#define ARCHIVE_KEY_FROM "archive:key-from:" /* key_from */
int archive_mark(struct archive *a, const char *what, uint64_t n, struct err *err);

/* sweep.c. Looks, too, whether another copy of the folder writes beside it: then nothing is removed, the node is
 * another one (archive_compare()), and it begins again: ERR_CLOSED. While the clock is doubted nothing is removed. */
int archive_sweep(struct archive *a, bool all_before, struct err *err);

size_t archive_part_bytes(void); /* how many records a part of users has, in bytes, before they are packed */

/* Makes an object of a->records; its head and name are set before. Then puts it, until it is there. */
int archive_seal(struct archive *a, struct pending *p, struct err *err);
int archive_put(struct archive *a, struct pending *p, struct err *err);

void archive_wait_answer(struct archive *a); /* until a->answered */
void archive_answer(struct archive *a);      /* any thread */

#endif
