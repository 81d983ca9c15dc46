/* A user as they stand in the front's Redis, read in one script with meta. For a reader's thread: blocks. */
#ifndef UNSEEN_FRONT_USER_QUESTION_H
#define UNSEEN_FRONT_USER_QUESTION_H

#include "front/layout.h"
#include "front/link.h"

/* Memory of one reader; what was read lives until the next. All zero at first. */
struct front_question {
    struct arena arena;
    struct delivered_codec codec;
    struct front_meta meta;
    struct front_user user;
};
void front_question_free(struct front_question *q);

/* ERR_ABSENT: there is no meta, or it isn't full, or (seed not 0) of another seed, or this Redis has evicted keys
 * since; the text says which. ERR_CORRUPT, ERR_VERSION, ERR_NOMEM; as front_link_run(). user NULL: meta alone. Also
 * where nothing is returned but ERR_ABSENT, meta is read. */
int front_question_read(struct front_link *link, const char *prefix, const struct slice *user, uint64_t seed,
                        struct front_question *q, struct err *err);

/* The user as a question sees it, if FRONT_WHOLE; else ERR_STALE, ERR_LARGE, ERR_CORRUPT with the reason. */
int front_question_view(struct front_question *q, uint64_t seed, int first_month, size_t delivered_max,
                        struct store_view *view, struct err *err);

#endif
