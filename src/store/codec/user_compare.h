/* Whether two stores with one seed remember the same of a user, by the snapshots that both have packed. */
#ifndef UNSEEN_STORE_CODEC_USER_COMPARE_H
#define UNSEEN_STORE_CODEC_USER_COMPARE_H

#include "store/codec/user_snapshot.h"

enum { USER_COMPARE_TEXT = 200 };

/* 1: they agree; 0: they don't, and `why` is the first difference, "here" being a. A user without a snapshot is NULL.
 * What answers alike is the same: a play may wait to be merged on one side and be merged on the other, a month may lie
 * in other parts, and an item that was un-seen may have left a filter with an exception on one side and nothing on the
 * other. Played once more, it ends that exception, and is in an older month there: a month's item may be in a later
 * month of the other side instead, which hides it for at least as long. Or ERR_NOMEM, ERR_CORRUPT. */
int user_compare(const struct user_snapshot *a, const struct user_snapshot *b, uint64_t seed,
                 char why[USER_COMPARE_TEXT], struct err *err);

#endif
