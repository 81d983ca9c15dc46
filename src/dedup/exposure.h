/* What a policy makes of what is remembered of a user: of a view, that which hides (config/policy.h, docs/policies.md).
 * Everything else, which candidates are unseen, and why, goes by the view that is left. Pure: no clock, no store.
 *
 * The age of a delivery is the earlier clock less its time, at least 0; one that is more than a day ahead of the later
 * clock was made under a wrong one, and counts as one of 1970. Nothing is deleted by its age.
 */
#ifndef UNSEEN_DEDUP_EXPOSURE_H
#define UNSEEN_DEDUP_EXPOSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "config/policy.h"
#include "store/store.h"

/* The rule of one question, by the clocks and the window as it began. */
struct exposure {
    const struct policy *policy; /* NULL or a plain one: all that was loaded hides */
    int first_month;             /* plays of this one hide, and of later ones; INT_MAX: none do */
    int months;                  /* so many full months they hide for */
    int64_t earlier_ms, later_ms;
};

int64_t exposure_age(const struct exposure *e, int64_t at_ms); /* ms */

/* Whether an item that was sent at these times (at most POLICY_TIMES count) is hidden by the policy's caps; and until
 * when, in unix ms, if it is not sent again; 0: as long as that is remembered. */
bool exposure_hides(const struct exposure *e, const int64_t *at_ms, size_t n, int64_t *until_ms);

/* The same of an item in a united list; n: its length. False: it isn't there, or is not hidden. */
bool exposure_hides_item(const struct exposure *e, const struct store_delivery *list, size_t n, uint64_t hash,
                         int64_t *until_ms);

/* --- groups: how many items of one were sent --- */

/* An item that was sent, and how long ago the last time was. */
struct exposure_sent {
    uint64_t group, hash;
    int64_t age_ms;
};

/* Appends those of a view that have a group, each once, the newest first, as far as the policy's caps look back. 0 or
 * ERR_NOMEM. */
int exposure_groups_of(const struct exposure *e, const struct store_view *view, struct buf *out);

/* They as a question counts them, and what its answer takes. All zero at first; memory is kept from one to the next. */
struct exposure_groups {
    struct exposure_group_entry *entries;
    size_t n, room;
    uint32_t *cells; /* by open addressing: 1 + the place of a group's newest entry */
    size_t mask;
};
void exposure_groups_free(struct exposure_groups *g);
int exposure_groups_begin(struct exposure_groups *g, const struct exposure_sent *sent, size_t n); /* 0 or ERR_NOMEM */
/* Whether an item of that group is hidden; *until_ms as of exposure_hides(). */
bool exposure_groups_hide(const struct exposure_groups *g, const struct exposure *e, uint64_t group, int64_t *until_ms);
/* The item is sent now. 0 or ERR_NOMEM. */
int exposure_groups_take(struct exposure_groups *g, uint64_t group, uint64_t hash);

/* When a play of that month hides no more: unix ms. */
int64_t exposure_month_ends(const struct exposure *e, int month);

/* Of an item: how often it was sent, as far as that is remembered, and how long ago the last time is. */
struct exposed {
    uint32_t times; /* 0: never */
    int64_t age_ms; /* then it says nothing */
};

/* A delivery that hides, and how long ago the newest one of its item is. */
struct exposed_age {
    uint64_t hash;
    int64_t age_ms;
};

/* Memory that is kept from view to view. All zero at first. */
struct exposure_memory {
    struct exposure_room {
        void *at;
        size_t bytes;
    } rooms[3];
};
void exposure_memory_free(struct exposure_memory *m);

/* Of a view that which hides; of a plain policy it is the view itself. Its lists are the view's, or the memory's until
 * its next use. 0 or ERR_NOMEM. */
int exposure_view(const struct exposure *e, const struct store_view *view, struct exposure_memory *m,
                  struct store_view *out);

/* The same of its deliveries, as exposure_view() left them: at most `most`. Returns how many. */
size_t exposure_ages(const struct exposure *e, const struct store_view *hides, struct exposed_age *out, size_t most);

/* Of n items, whose hashes may repeat. 0 or ERR_NOMEM. */
int exposure_tell(const struct exposure *e, const struct store_view *view, struct exposure_memory *m,
                  const uint64_t *hashes, size_t n, struct exposed *out);

/* Whether plays of that month hide. */
static inline bool exposure_has_month(const struct exposure *e, int month)
{
    return policy_is_plain(e->policy) || month >= e->first_month;
}

#endif
