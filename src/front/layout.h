/* What stands in the front's Redis, for its writer and its readers. P is front_prefix.
 *
 *   P"meta"    hash: v = FRONT_LAYOUT; seed, node, run (16 hex digits each); epoch, to (decimal); full (0 or 1);
 *              term = the writer's, of promotions (dedup/role.h; decimal; none of versions before it, which is 0);
 *              at (unix ms, decimal); first = the first month of the window there (YYYYMM), and most = delivered_max
 *              there, of which both are in the answers here (neither of versions before it); clear = 1 while what stood
 * here before is removed; walk = the user key from which on users are still to be brought in (signed decimal), unless
 * full; ev = keys that this Redis had evicted when all was brought in last: once it is more, nothing is believed
 *   P"w:"user  hash, the user's state as of a revision: r = the revision (decimal), and, each only where there is such:
 *              m<YYYYMM> = that month's filter, the store's blob; p = staged plays; d = deliveries, the store's blob;
 *              x = exceptions. Besides: s = a seq: something came then that events can't say (an item was un-seen, an
 *              import), so this is not believed until r >= s; g = 1: too large, nothing but r is here; b = 1: parts
 *              could not be read, nothing but r is here
 *   P"t:"user  sorted set, events that are later than r: the score is the event's seq
 *   P"d"       set of users whose state is to be sent again: t has grown, or s says so
 *
 * A revision is a place in the feed of `node`: all events of the user up to r are in the state, and maybe later ones.
 * So w with what t holds is all up to `to`, at any time, whatever is flushed meanwhile, and nothing needs to be written
 * because of a flush. A user without w and t is unknown, if `full`; while it isn't, nothing may be concluded from what
 * lacks. A forgotten user has a w of nothing but r, for FRONT_TOMBSTONE_MS, so that no state of before comes back.
 *
 * Everything is written by scripts (scripts.h) that compare `epoch`, which goes up with each writer that begins: one
 * whose epoch is another's is fenced. What begins compares `term`, too, where the seed is its own: an old primary that
 * was started again takes nothing from the node that has replaced it; and that takes back what an older version, which
 * knows no term, has taken. What moves `to` compares the old one too, and what moves `walk` the old walk. So
 * after a failover of Redis, or a restore, they say what is there: what one script wrote is there as a whole or not at
 * all, and so is all before it. `at` is when the writer had last nothing more to send, or else when the last event that
 * was sent had been recorded.
 *
 *   p: 12 bytes each, little endian: the item's hash, 8; the month, 4 (base/calendar.h)
 *   x: 8 bytes each, little endian: a hash
 *   a member of t: of a play 1, the hash, 8, and the month, 4, little endian. An item that is played again in the same
 *                  month has the same member. Of a delivery 9, the hash, 8, its time in unix ms, 8, and the item's id;
 *                  its seq is its sub. Of one with a group 10, and the group's hash, 8, before the id. In layout 1: 2,
 * the hash, the month, and the item's id
 *
 * Layout 1 is that of 0.1.0, whose d is a blob of version 1 as well. It is read, and becomes layout 2 with the next
 * writer that begins.
 */
#ifndef UNSEEN_FRONT_LAYOUT_H
#define UNSEEN_FRONT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "net/reply.h"
#include "store/codec/user_snapshot.h"
#include "store/store.h"
#include "store/user/deliveries.h"

enum {
    FRONT_LAYOUT = 2,             /* and 1 is read */
    FRONT_KEY_MAX = 64 + 2 + 255, /* of front_prefix, and of a user */
    FRONT_TOMBSTONE_MS = 24 * 3600 * 1000,
    FRONT_USER_MAX = 512 * 1024,   /* bytes of a state; of a user who has more the front answers nothing */
    FRONT_EVENTS_MAX = 128,        /* of t; beyond it the state is sent again ... */
    FRONT_EVENTS_READ = 8192,      /* ... and beyond this a reader gives up */
    FRONT_PLAY_BYTES = 12,         /* of p */
    FRONT_HASH_BYTES = 8,          /* of x */
    FRONT_EVENT_BYTES = 1 + 8 + 4, /* of t: of a play, and in layout 1 of a delivery, whose item follows */
    FRONT_SENT = 9,                /* the kind of a delivery */
    FRONT_SENT_BYTES = 1 + 8 + 8,  /* which the item follows */
    FRONT_GROUPED = 10,            /* the same of one with a group */
    FRONT_GROUPED_BYTES = FRONT_SENT_BYTES + 8,
    FRONT_EVENT_MAX = FRONT_GROUPED_BYTES + 255,
    FRONT_FIELD_TEXT = 16,              /* "m202611" */
    FRONT_VALUES_MAX = 3 * 1024 * 1024, /* bytes of all that a question reads; more is damage */
    FRONT_REPLY_MAX = 4 * 1024 * 1024,  /* the same with what RESP puts around each */
};

struct front_meta {
    bool present; /* false: there is none, and the rest is 0 */
    uint64_t seed, node, run, epoch, to, term;
    bool full, clearing;
    int64_t walk; /* unless full */
    int64_t at_ms;
    int first_month;    /* 0: not said */
    uint64_t delivered; /* delivered_max; 0: not said */
    uint64_t evicted;
};

struct slice front_key_meta(const char *prefix, char out[FRONT_KEY_MAX]);
struct slice front_key_state(const char *prefix, struct slice user, char out[FRONT_KEY_MAX]);
struct slice front_key_events(const char *prefix, struct slice user, char out[FRONT_KEY_MAX]);
struct slice front_key_dirty(const char *prefix, char out[FRONT_KEY_MAX]);

/* From what HGETALL returned. ERR_CORRUPT: what is wrong; ERR_VERSION: another layout. Empty: not present. */
int front_meta_read(const struct reply *hash, struct front_meta *out, struct err *err);

/* A member of t. Returns its length. */
size_t front_play_write(uint64_t hash, int month, uint8_t out[FRONT_EVENT_MAX]);
size_t front_sent_write(const struct store_item *item, int64_t at_ms, uint8_t out[FRONT_EVENT_MAX]);

/* What FRONT_USER_MAX goes by. */
size_t front_user_bytes(const struct user_snapshot *snapshot);

/* Words of HSET for a state, without r: names and values in turn, appended to *words, an array of slices in the buf,
 * whose bytes are in the arena or in the snapshot. What is too large, or damaged, is g or b alone. ERR_NOMEM. */
int front_state_write(const struct user_snapshot *snapshot, struct arena *arena, struct buf *words, struct err *err);

/* All that stands there of a user. */
enum front_verdict {
    FRONT_WHOLE,
    FRONT_STALE,   /* its state is still to come (s) */
    FRONT_GIANT,   /* g, or too many events */
    FRONT_DAMAGED, /* b */
};
struct front_user {
    enum front_verdict verdict;
    bool known;         /* there is a state, or an event */
    uint64_t revision;  /* 0: there is no state */
    uint64_t stale;     /* s; 0: there is none */
    bool tombstone;     /* nothing but r */
    struct slice plays; /* as p */
    const struct snapshot_month *months;
    size_t n_months;
    struct slice deliveries, exceptions; /* as d, x */
    const struct reply *events;          /* ZRANGE ... WITHSCORES; n of them, member and score in turn */
    size_t n_events;
};

/* state: HGETALL, events: ZRANGE; both outlive it. Everything is validated but the blobs, which have decoders of their
 * own. ERR_CORRUPT says what is wrong; ERR_NOMEM. */
int front_user_read(const struct reply *state, const struct reply *events, struct arena *arena, struct front_user *out,
                    struct err *err);

/* As a question sees it; lists and decoded filters in the arena. Months before first_month are left out. ERR_CORRUPT,
 * ERR_NOMEM. */
int front_user_view(const struct front_user *u, uint64_t seed, int first_month, size_t delivered_max,
                    struct delivered_codec *codec, struct arena *arena, struct store_view *view, struct err *err);

/* As a snapshot, to be compared with the store's. The same errors. */
int front_user_snapshot(const struct front_user *u, struct slice user, uint64_t seed, size_t delivered_max,
                        struct delivered_codec *codec, struct arena *arena, struct buf *deliveries,
                        struct user_snapshot *out, struct err *err);

#endif
