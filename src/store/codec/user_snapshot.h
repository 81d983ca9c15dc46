/* A user snapshot: all that a store has of one user, to be carried to another store with the same seed
 * (store_ops.import). The form is described in docs/format.md.
 *
 * The month filters are the store's blobs as they are; staged plays are added as hashes.
 */
#ifndef UNSEEN_STORE_CODEC_USER_SNAPSHOT_H
#define UNSEEN_STORE_CODEC_USER_SNAPSHOT_H

#include "base/arena.h"
#include "store/store.h"

enum {
    USER_SNAPSHOT_VERSION = 5,     /* the newest; INFO tells it as parcel_version. 0.1.0, which doesn't, reads 1 to 4 */
    USER_SNAPSHOT_LISTS_MAX = 256, /* months, and damaged ones */
    USER_SNAPSHOT_MONTH_MAX = 65535,
    USER_SNAPSHOT_AHEAD_MS = 24 * 3600 * 1000, /* how far ahead a forget may be: clocks differ */
};

struct snapshot_month {
    int month;
    struct slice blob; /* a filter */
};

struct snapshot_forgotten { /* an item */
    uint64_t item;          /* as in a tombstone: tombstone_item() */
    int64_t at_ms;
};

struct user_snapshot {
    int64_t key; /* of the user, with the seed */
    struct slice user;
    int last_month; /* the newest of a play or delivery */
    const struct snapshot_month *months;
    size_t n_months; /* ascending */
    const struct store_play *plays;
    size_t n_plays;          /* by month and hash, each once */
    struct slice deliveries; /* their blob; empty: none */
    const uint64_t *exceptions;
    size_t n_exceptions; /* ascending */
    const int *damaged;
    size_t n_damaged;     /* months that were set aside unread, ascending; 0: the deliveries */
    int64_t forgotten_ms; /* when the user was last forgotten there; 0: not that it is known */
    const struct snapshot_forgotten *forgotten;
    size_t n_forgotten;   /* items, ascending; each later than the user's */
    bool migration_state; /* more stands in another Redis: to be noted here, too (store_migration_ops.note) */
};

/* In place, as a snapshot has them: by month and hash, each once. Returns how many are left. */
size_t user_snapshot_sort_plays(struct store_play *plays, size_t n);

/* Appends the snapshot's bytes to out. Returns 0; ERR_NOMEM; or ERR_INVALID when a list isn't as above (a bug of the
 * caller). */
int user_snapshot_encode(const struct user_snapshot *p, struct buf *out);

/* Reads one that fills bytes[0..len). User and blobs point into bytes, lists are allocated in the arena. Every byte is
 * validated except those of the blobs, which have their own decoders. Returns 0, ERR_NOMEM, ERR_VERSION, or ERR_CORRUPT
 * with what is wrong. */
int user_snapshot_decode(const void *bytes, size_t len, struct arena *arena, struct user_snapshot *out,
                         struct err *err);

/* What programs read that know no times of deliveries (0.1.0): *bytes become that in `out`, unless they are it. 0,
 * ERR_NOMEM, or what user_snapshot_decode() and delivered_unpack() say. */
int user_snapshot_without_times(struct slice *bytes, struct buf *out, struct err *err);

/* How far ahead its forgets may be of the time `later` (store_ops.now): 0, or ERR_RANGE with what is wrong. */
int user_snapshot_check_forgets(const struct user_snapshot *p, int64_t later, struct err *err);

/* Leaves of a list of forgotten items those that were forgotten after their user; returns how many. What an import has
 * brought may be older, or the user was forgotten since they were read. */
size_t user_snapshot_later_items(struct snapshot_forgotten *items, size_t n, int64_t forgotten_ms);

/* Leaves of a snapshot what is surely newer than a forget of its user (INT64_MIN: there was none). One that knows of
 * that forget, or a later one, is left whole; else the months after the forget's stay, since a filter doesn't know the
 * days of its plays, and what was sent after it. 0, ERR_NOMEM, or ERR_CORRUPT with what is wrong. */
int user_snapshot_forget(struct user_snapshot *p, int64_t forgotten_ms, struct arena *arena, struct err *err);

/* Whether it may be of a noted user or tell of forgets, by its version; nothing else of it is read. */
static inline bool user_snapshot_has_more(struct slice bytes)
{
    return bytes.len > 0 && bytes.data[0] > 1;
}

#endif
