/* A user who comes from another store as a snapshot (store/codec/user_snapshot.h), or goes to one: what every engine
 * does with it, whatever its files are like. Pure.
 */
#ifndef UNSEEN_STORE_USER_PARCEL_H
#define UNSEEN_STORE_USER_PARCEL_H

#include "filter/filter.h"
#include "store/codec/user_snapshot.h"

/* Decodes one that was packed in a store with this seed. As user_snapshot_decode(), or ERR_SEED. */
int parcel_open(struct slice bytes, uint64_t seed, struct arena *arena, struct user_snapshot *out, struct err *err);

/* Leaves of it what is newer than a forget of the user here (user_snapshot_forget()), and of months from first_kept on;
 * of marks of damage and exceptions all stay. newest: the month of the newest that is not forgotten; with one before
 * first_kept nothing is left. later: store_ops.now(). 0; ERR_RANGE: it has something that lies ahead; ERR_CORRUPT: a
 * filter of whatever month, or deliveries, naming the user; ERR_NOMEM. */
int parcel_admit(struct user_snapshot *p, int64_t forgotten_ms, int64_t later, int first_kept, struct arena *arena,
                 int *newest, struct err *err);

/* The filter of its i-th month, or of all of them, in the arena. 0, ERR_NOMEM or ERR_CORRUPT, naming the user. */
int parcel_month(const struct user_snapshot *p, size_t i, struct arena *arena, struct filter *out, struct err *err);
int parcel_months(const struct user_snapshot *p, struct arena *arena, struct filter **out, struct err *err);

/* Marks a month (0: the deliveries) as damaged, in a list of its own with room for USER_SNAPSHOT_LISTS_MAX, to which
 * p->damaged points, and puts it into words. False: it was marked before, or there is no room. */
bool parcel_mark(struct user_snapshot *p, int *damaged, int month, const char *why, char text[STORE_ERROR_TEXT]);

#endif
