/* The names of the load generator's users and items, as pieces of a request. */
#ifndef UNSEEN_CLI_BENCH_BENCH_IDS_H
#define UNSEEN_CLI_BENCH_BENCH_IDS_H

#include <stdint.h>

#include "base/buf.h"

enum {
    BENCH_ITEM_LEN = 25, /* "item:" and 20 digits */
    BENCH_USER_DIGITS = 8,
    BENCH_PREFIX_MIN = 1, /* bytes */
    BENCH_PREFIX_MAX = 64,
};

/* The first number of items that no user is prepared with. */
#define BENCH_NEVER_PLAYED (UINT64_C(1) << 40)

/* The id of the n-th item of all that are prepared or never played: scattered, and no two the same. */
uint64_t bench_item_id(uint64_t n);
void bench_write_item(char out[BENCH_ITEM_LEN], uint64_t id);

/* Append them as bulk strings. A user is prefix:00000000. */
void bench_add_item(struct buf *out, uint64_t id);
void bench_add_user(struct buf *out, const char *prefix, uint64_t user);

#endif
