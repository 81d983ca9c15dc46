/* How fast a command reads a pool that others serve: --rate N, objects a second. */
#ifndef UNSEEN_CLI_RADOS_POOL_RATE_H
#define UNSEEN_CLI_RADOS_POOL_RATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { POOL_RATE = 2000, POOL_RATE_MAX = 1000 * 1000 };

/* NULL: POOL_RATE. 0 is no limit. False: it is no such number. */
static inline bool pool_rate_read(const char *text, uint64_t *rate)
{
    char end;
    unsigned n = POOL_RATE;
    bool good = text == NULL || (text[0] >= '0' && text[0] <= '9' && sscanf(text, "%7u%c", &n, &end) == 1);
    *rate = n;
    return good && n <= POOL_RATE_MAX;
}

#endif
