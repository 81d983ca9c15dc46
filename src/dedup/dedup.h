/* The domain: what is seen, and why. Sits on the seam of store/store.h and knows no wire and no disk.
 *
 * `struct dedup` is shared by all threads. `struct asker` is what one thread asks questions with: a reader of the
 * store, a probe, scratch memory.
 */
#ifndef UNSEEN_DEDUP_DEDUP_H
#define UNSEEN_DEDUP_DEDUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "config/config.h"
#include "dedup/exposure.h"
#include "store/admin.h"
#include "store/store.h"

enum {
    ID_MAX = HASH_ID_MAX, /* bytes of a user or item id */
    ITEMS_MAX = 65536,    /* items of one command */
    EXCLUDE_MAX = 1000,   /* items that a question leaves out */
    EXPOSURE_MAX = 1000,  /* items that EXPOSURE asks about */
    DELIVER_MAX = 100,    /* items that a question may record as delivered */
};

struct kafka;
struct archive;
struct front;
struct replica;
struct role;
struct registry;
struct tier;
struct lease;
struct mirror;
struct sessions;
struct pools;
struct pool_line;
struct legacy;
struct read_through;

struct dedup {
    struct store *store;
    const struct config *cfg; /* read through config_now() */
    uint64_t seed;
    struct sessions *sessions;         /* NULL where there is no service */
    struct pools *pools;               /* the same; dedup/pools.h */
    struct legacy *legacy;             /* src/legacy/; NULL when there is no other Redis to come from */
    struct read_through *read_through; /* the same: questions to it */
    struct mirror *mirror;             /* src/legacy/; NULL when it is off */
    struct lease *lease;               /* src/registry/; NULL without failover by Consul */
    struct registry *registry;         /* src/registry/; NULL when it registers nowhere */
    struct kafka *kafka;               /* src/kafka/; NULL when no brokers are configured */
    struct role *role;                 /* dedup/role.h; NULL: this node takes writes */
    struct replica *replica;           /* src/replica/; NULL where the store keeps no feed */
    struct front *front;               /* src/front/; NULL: there is none */
    struct archive *archive;           /* src/archive/; NULL: there is none */
    struct tier *tier;                 /* dedup/tier.h; NULL: there is no second one */
};

void dedup_init(struct dedup *d, struct store *store, const struct config *cfg);

/* Ids are 1..255 bytes. The error names the argument: "item 3 is empty ...". position is 1-based, 0: no number. */
int dedup_check_id(const char *what, size_t position, struct slice id, struct err *err);

/* The same for all items of a command, and that they aren't more than ITEMS_MAX. */
int dedup_check_items(const struct slice *items, size_t n, struct err *err);

/* The same, and hashes them on the way; room for ITEMS_MAX. */
int dedup_hash_items(const struct dedup *d, const struct slice *items, size_t n, uint64_t *hashes, struct err *err);

/* Of groups; one of no bytes is none, whose hash is 0, and no other's is. */
int dedup_hash_groups(const struct dedup *d, const struct slice *groups, size_t n, uint64_t *hashes, struct err *err);

/* The time that a play recorded now gets; taken once, when its command is parsed. */
int64_t dedup_stamp(const struct dedup *d);

/* Checks an event time. Past retention, more than a day ahead, or seconds instead of milliseconds: ERR_RANGE saying
 * which and by how much; or, with skewed_time = now, *at is the server's time and *skewed is set. ERR_BUSY: no time is
 * known, see store_ops.time_known. */
int dedup_event_time(const struct dedup *d, int64_t given_ms, int64_t *at, bool *skewed, struct err *err);

/* Whether that is why: a good time of something that is kept no more. */
bool dedup_past_retention(const struct dedup *d, int64_t at_ms);

/* Oldest month that a question looks at, by the guarded clock. */
int dedup_first_month(const struct dedup *d);

/* What a policy, or NULL, means of a question that begins now. */
void dedup_exposure(const struct dedup *d, const struct policy *p, struct exposure *out);

/* Fills in forget, whose ids are copied into memory of dedup_forget_size() bytes, aligned to 8; done and owner are the
 * caller's. No items: all of the user. */
size_t dedup_forget_size(struct slice user, const struct slice *items, size_t n);
/* The same of a merge, in room for both ids. */
void dedup_merge(const struct dedup *d, struct store_merge *merge, void *memory, struct slice from, struct slice into);
void dedup_forget(const struct dedup *d, struct store_forget *forget, void *memory, struct slice user,
                  const struct slice *items, size_t n);

/* PLACE_ITEM: by a cap of a policy, which says so instead of PLACE_DELIVERED; PLACE_GROUP: by its cap of the item's
 * group. PLACE_ALSO: hidden from another user, at whom the policy looks, too. */
enum place_kind {
    PLACE_BLOCKED,
    PLACE_STAGED,
    PLACE_DELIVERED,
    PLACE_ITEM,
    PLACE_GROUP,
    PLACE_MONTH,
    PLACE_LEGACY,
    PLACE_ALSO
};
struct place {
    enum place_kind kind;
    int month;         /* PLACE_MONTH, and PLACE_STAGED: the play's */
    double error;      /* PLACE_MONTH, PLACE_ALSO: the chance that the hit is an error; else 0 */
    int64_t until_ms;  /* of a policy's: when it hides no more; 0: that can't be said */
    struct slice user; /* PLACE_ALSO: whom */
};
enum { PLACES_MAX = 256 };
enum { PLACE_TEXT = 8 + ID_MAX };
struct slice place_name(const struct place *place, char out[PLACE_TEXT]); /* "staged", "2026-09", "also:push:u42" */

struct history_month {
    int month;
    uint64_t items;
    uint64_t bytes;
    double error; /* this month's share, n/m summed over its parts */
    bool sealed;
    bool in_window;
    int64_t expires_ms; /* when its sweep begins */
};

struct history {
    size_t n_months;
    struct history_month *months; /* newest first; the asker's, until its next question */
    uint64_t staged;              /* plays */
    uint64_t delivered;           /* at most delivered_max */
    double error;                 /* over the window */
};

/* A question about a user, and its answer in the caller's memory. */
enum query_kind {
    QUERY_FILTER,   /* which candidates has the user not seen? */
    QUERY_WHY,      /* where is the one item seen? */
    QUERY_HISTORY,  /* what is remembered of the user? */
    QUERY_EXPOSURE, /* how often was each item sent, and when? */
};
struct query {
    enum query_kind kind;
    struct slice user;
    const uint64_t *hashes; /* hash_id() of each candidate, or of the item */
    size_t n;
    int first_month;          /* of the window; 0: dedup_first_month() */
    struct exposure exposure; /* what of the user hides; all zero: everything */

    /* QUERY_FILTER: bit i of unseen (most significant first, (n + 7) / 8 bytes) is set when candidate i is unseen;
     * error is the chance that one which the user never had is hidden. */
    uint8_t *unseen;
    size_t n_unseen;
    double error;
    bool damaged;     /* something can't be read, and was left out (on_damage = answer) */
    struct buf *sent; /* NULL, or also an answer: struct exposure_sent each, what the policy's caps of groups count */

    /* For RELAX: `open` also has the bits of candidates that deliveries alone hide, and ages says how long ago those
     * are that hide; room for max_ages, which is enough for delivered_max. */
    uint8_t *open; /* NULL: it isn't wanted */
    struct exposed_age *ages;
    size_t n_ages, max_ages;

    /* The same of pools, where asker_ask() is answered at once: n candidates that stand in a line, instead of hashes,
     * and room for a byte more in unseen. They are looked at in order: hide() takes bits from .. from + n - 1 that are
     * not to be answered out of unseen, and returns how many it took; once `enough` are left (0: that is never), the
     * rest is not looked at. ERR_LARGE: not once `most` were. */
    const struct pool_line *line;
    size_t (*hide)(void *arg, size_t from, size_t n, uint8_t *unseen); /* NULL: nothing more is hidden */
    void *hide_arg;
    size_t enough, most;
    size_t n_tested; /* how many were looked at */

    /* QUERY_WHY: staged, delivered, then months, newest first: exactly the places that make QUERY_FILTER hide the item.
     * Room for PLACES_MAX. */
    struct place *places;
    size_t n_places;

    struct history *history; /* QUERY_HISTORY; known is false for a user never heard of */
    bool known;

    struct exposed *exposed; /* QUERY_EXPOSURE: room for n */

    uint8_t *elsewhere; /* NULL, or also an answer: what another system may be asked about. The unseen candidates, or
                         * the item of QUERY_WHY, less those that were un-seen here one by one (FORGET user item). */
};

struct asker;
int asker_open(const struct dedup *d, struct asker **asker, struct err *err); /* blocks */

/* What was begun and not ended is dropped. Blocks while the store ends it (store_ops.reader_close). */
void asker_close(struct asker *a);

/* From now on questions about a large user, which take milliseconds, are answered ERR_LARGE, in microseconds: for a
 * thread that has others to serve. */
void asker_leave_large(struct asker *a);

/* From now on a question whose answer is not all in memory is answered ERR_COLD, at once: for a thread that has others
 * to serve. A thread that may wait for the disk is to be asked then. Blocks itself, for the list of months, which is
 * kept from here on. */
void asker_leave_cold(struct asker *a);

/* For a thread that may wait: asks, and waits for a store that answers later. Returns 0, ERR_CORRUPT, ERR_NOMEM,
 * ERR_IO, ERR_LARGE, ERR_COLD; ERR_CLOSED: asker_stop() was called, on any thread. Blocks. */
int asker_ask(struct asker *a, struct query *q, struct err *err);
void asker_stop(struct asker *a);

/* The same in one call each: asker_why() returns how many places, asker_history() 1, or 0 where there is no such user.
 * Block. */
int asker_why(struct asker *a, struct slice user, uint64_t hash, struct place places[PLACES_MAX], struct err *err);
int asker_history(struct asker *a, struct slice user, struct history *out, struct err *err);

/* For a loop, which never waits. Returns what asker_ask() does; or STORE_LATER: the answer comes later, and *load is
 * the question until then. asker_on_done() says what is called then, on the asker's thread; it calls asker_end() for
 * the answer, whose q says the same (which need not be in the same place). asker_drop(), at any time before, when the
 * answer is not wanted any more. Any number may be begun: the store has ASKER_READERS of them at a time, and the others
 * follow in turn. */
struct asker_load;
enum { ASKER_READERS = 64, ASKER_LOAD_BYTES = 1024 /* what a begun one takes, at most */ };
int asker_begin(struct asker *a, struct query *q, struct asker_load **load, struct err *err);
void asker_on_done(struct asker_load *load, void (*done)(void *owner), void *owner);
int asker_end(struct asker *a, struct asker_load *load, struct query *q, struct err *err);
void asker_drop(struct asker *a, struct asker_load *load);

/* Instead of asker_end(), a part of the candidates at a time: asker_part() answers for q's, which the load's user is
 * asked about, as often as you like, until asker_done(). Where asker_is_good(); asker_matches() says whether the user
 * is better looked up in those pools (dedup/pool_match.h). asker_load_free(): instead, once the asker is closed. */
bool asker_is_good(const struct asker_load *load);
bool asker_matches(const struct asker_load *load, const struct pool_line *line);
int asker_part(struct asker *a, struct asker_load *load, struct query *q, struct err *err);
void asker_done(struct asker *a, struct asker_load *load);
void asker_load_free(struct asker_load *load);

/* wake() is called, mostly on a thread of the store, when answers have come. It sees to it that the asker's thread
 * calls asker_deliver(), which tells who waits for them. Before the first question. */
void asker_on_answers(struct asker *a, void (*wake)(void *arg), void *arg);
void asker_deliver(struct asker *a);

/* What memory here says of a QUERY_FILTER, without the disk: staged plays and deliveries alone are seen. *left: the
 * newest event, in the feed's order, that is in memory no more; it is up to another tier to know what came up to then
 * (dedup/tier.h). Returns 0; ERR_ABSENT: the store keeps no such memory; ERR_LARGE, ERR_NOMEM, ERR_BUSY. Never waits.
 */
int asker_recent(struct asker *a, struct query *q, uint64_t *left, struct err *err);

/* What an answer about n candidates is expected to cost of error_rate, in millionths of a candidate; and whether the
 * user's window costs more than error_rate. Sealed months are cut to meet it exactly, so a sum may round to a little
 * above it. */
static inline uint64_t dedup_false_hits(double error, size_t n)
{
    return (uint64_t)(error * (double)n * 1e6 + 0.5);
}
static inline bool dedup_over_error_rate(const struct dedup *d, double error)
{
    return error > config_now(d->cfg)->error_rate * 1.000001;
}

/* The stored months, newest first; see store_admin_ops.months; ERR_ABSENT when the store keeps none. An asker that
 * leaves what is cold answers as of the last time that they were in memory; ERR_BUSY: they never were. */
int asker_months(struct asker *a, struct store_month_info *out, int max, struct err *err);

/* Appends a value that the store keeps (store/memos.h); nothing where it has none. ERR_IO, ERR_NOMEM, ERR_BUSY. */
int asker_memo(struct asker *a, const char *name, struct buf *value, struct err *err);

#endif
