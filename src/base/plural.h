/* The ending of a noun after a count: printf("%zu user%s", n, plural(n)) says "1 user", "2 users", "0 users". */
#ifndef UNSEEN_BASE_PLURAL_H
#define UNSEEN_BASE_PLURAL_H

#include <stdint.h>

static inline const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

#endif
