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

#include "base/calendar.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "config/config.h"
#include "store/admin.h"
#include "store/store.h"

enum {
    ID_MAX = HASH_ID_MAX, /* bytes of a user or item id */
    ITEMS_MAX = 65536,    /* items of one command */
    DELIVER_MAX = 100,    /* items that a question may record as delivered */
};

struct mirror;
struct sessions;
struct legacy;
struct read_through;

struct dedup {
    struct store *store;
    const struct config *cfg; /* read through config_now() */
    uint64_t seed;
    struct sessions *sessions;         /* NULL where there is no service */
    struct legacy *legacy;             /* src/legacy/; NULL when there is no other Redis to come from */
    struct read_through *read_through; /* the same: questions to it */
    struct mirror *mirror;             /* src/legacy/; NULL when it is off */
};

void dedup_init(struct dedup *d, struct store *store, const struct config *cfg);

/* Ids are 1..255 bytes. The error names the argument: "item 3 is empty ...". position is 1-based, 0: no number. */
int dedup_check_id(const char *what, size_t position, struct slice id, struct err *err);

/* The same for all items of a command, and that they aren't more than ITEMS_MAX. */
int dedup_check_items(const struct slice *items, size_t n, struct err *err);

/* The same, and hashes them on the way; room for ITEMS_MAX. */
int dedup_hash_items(const struct dedup *d, const struct slice *items, size_t n, uint64_t *hashes, struct err *err);

/* The time that a play recorded now gets; taken once, when its command is parsed. */
int64_t dedup_stamp(const struct dedup *d);

/* Checks an event time. Past retention, more than a day ahead, or seconds instead of milliseconds: ERR_RANGE saying
 * which and by how much; or, with skewed_time = now, *at is the server's time and *skewed is set. ERR_BUSY: no time is
 * known, see store_ops.time_known. */
int dedup_event_time(const struct dedup *d, int64_t given_ms, int64_t *at, bool *skewed, struct err *err);

/* Oldest month that a question looks at, by the guarded clock. */
int dedup_first_month(const struct dedup *d);

/* Fills in forget, whose ids are copied into memory of dedup_forget_size() bytes, aligned to 8; done and owner are the
 * caller's. No items: all of the user. */
size_t dedup_forget_size(struct slice user, const struct slice *items, size_t n);
void dedup_forget(const struct dedup *d, struct store_forget *forget, void *memory, struct slice user,
                  const struct slice *items, size_t n);

struct asker;
int asker_open(const struct dedup *d, struct asker **asker, struct err *err); /* blocks */
void asker_close(struct asker *a);

/* From now on questions about a large user, which take milliseconds, are answered ERR_LARGE, in microseconds: for a
 * thread that has others to serve. */
void asker_leave_large(struct asker *a);

/* Which candidates the user has not seen. hashes: hash_id() of each candidate. Bit i of unseen (most significant first,
 * (n + 7) / 8 bytes) is set when candidate i is unseen. Returns 0, ERR_CORRUPT, ERR_NOMEM, ERR_IO; like all questions
 * about a user ERR_LARGE. */
int asker_filter(struct asker *a, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                 size_t *n_unseen, struct err *err);

/* The same without waiting for a store that answers later. The caller keeps all of it until the answer. */
struct filter_question {
    struct slice user;
    const uint64_t *hashes;
    size_t n;
    uint8_t *unseen;                         /* the answer */
    size_t n_unseen;                         /* the answer */
    struct err err;                          /* why there is none */
    void (*done)(struct filter_question *q); /* on a thread of the store */
    void *owner;
    struct store_load load; /* the asker's own */
};

/* 0 or an error: it is answered, and done() is not called. STORE_LATER: done() is called, and then asker_filter_end(),
 * on the asker's thread, gives the answer. An asker has one question at a time. */
int asker_filter_begin(struct asker *a, struct filter_question *q);
int asker_filter_end(struct asker *a, struct filter_question *q);

/* Of the last asker_filter(): the chance that a candidate which the user never had is hidden. */
double asker_error(const struct asker *a);

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

enum place_kind { PLACE_BLOCKED, PLACE_STAGED, PLACE_DELIVERED, PLACE_MONTH, PLACE_LEGACY };
struct place {
    enum place_kind kind;
    int month;    /* PLACE_MONTH, and PLACE_STAGED: the play's */
    double error; /* PLACE_MONTH: the chance that the hit is an error; else 0 */
};
enum { PLACES_MAX = 256 };
enum { PLACE_TEXT = 16 };
const char *place_name(const struct place *place, char month[MONTH_TEXT]); /* "staged", "delivered", "2026-09" */

/* Where the item is seen, newest first: staged, delivered, then months; exactly the places that make asker_filter()
 * hide it. Returns how many (0: unseen), at most PLACES_MAX, or an error. */
int asker_why(struct asker *a, struct slice user, uint64_t hash, struct place places[PLACES_MAX], struct err *err);

/* Clears the bits of candidates that were un-seen one by one (FORGET user item), as the last asker_filter() or
 * asker_why() found: whatever another system says of them doesn't count. */
void asker_exclude(struct asker *a, const uint64_t *hashes, size_t n, uint8_t *bits);

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

/* Returns 1, 0 for a user never heard of, or an error. */
int asker_history(struct asker *a, struct slice user, struct history *out, struct err *err);

/* The stored months, newest first; see store_admin_ops.months; ERR_ABSENT when the store keeps none. */
int asker_months(struct asker *a, struct store_month_info *out, int max, struct err *err);

#endif
