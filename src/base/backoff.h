/* How long to rest before the next try: `first` after the first failure, then twice as long each time, up to `last`.
 * The caller keeps the delay, in a unit of its own; 0 is one that has not failed, and what it sets when all is well. */
#ifndef UNSEEN_BASE_BACKOFF_H
#define UNSEEN_BASE_BACKOFF_H

#include <stdint.h>

static inline int64_t backoff_next(int64_t delay, int64_t first, int64_t last)
{
    return delay == 0 ? first : delay > last / 2 ? last : 2 * delay;
}

#endif
