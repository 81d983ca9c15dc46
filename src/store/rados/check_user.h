/* What is wrong with an object, as it was read. */
#ifndef UNSEEN_STORE_RADOS_CHECK_USER_H
#define UNSEEN_STORE_RADOS_CHECK_USER_H

#include "store/rados/walk.h"

struct checking {
    struct rados_store *s;
    const struct rados_check *order;
    struct rados_checked *out;
    int64_t later;    /* now, by the clock that is ahead */
    struct buf parts; /* scratch: of struct layout_part */
};

void check_problem(struct checking *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A user's object. ERR_NOMEM. */
int check_user(struct checking *c, struct slice user, const struct walked *object, struct err *err);
/* `meta`, and the i-th mark of the walk. */
void check_meta(struct checking *c, const struct walked *object);
void check_night(struct checking *c, size_t i, const struct walked *object);

#endif
