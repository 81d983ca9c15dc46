/* What lies in a depot, as a listing says it: there is nothing else that does.
 *
 *   NODE/seg/RUN-FROM-TO                 a segment: events behind FROM, up to TO
 *   NODE/base/ROUND/SHARD-FROM-TO        a part of a round
 *   NODE/base/ROUND/end                  the round has ended
 *
 * All of them are hexadecimal, of 16 digits (ROUND and SHARD: 8). Other names are left alone. One thread. */
#ifndef UNSEEN_ARCHIVE_CATALOG_H
#define UNSEEN_ARCHIVE_CATALOG_H

#include <stdbool.h>

#include "archive/depot.h"
#include "archive/object.h"

struct catalog_segment {
    uint64_t node, run, from, to, bytes;
};

struct catalog_shard {
    uint64_t node;
    uint32_t round, shard;
    uint64_t from, to, bytes;
};

struct catalog_round {
    uint64_t node;
    uint32_t round, shards; /* shards: as many as are listed, without a gap from the first */
    bool ended;
    uint64_t from, to; /* the least FROM and the highest TO of its shards */
    uint64_t bytes;
};

/* Sorted: segments by node, from and to; shards by node, round and number; rounds by node and round. */
struct catalog {
    struct buf segment_list, shard_list, round_list;
    const struct catalog_segment *segments;
    const struct catalog_shard *shards;
    const struct catalog_round *rounds;
    size_t n_segments, n_shards, n_rounds;
};

/* node 0: all of them. Zeroed before its first use. */
int catalog_read(struct depot *d, uint64_t node, struct catalog *c, struct err *err);
void catalog_free(struct catalog *c);

const char *catalog_segment_name(const struct catalog_segment *s, char out[DEPOT_NAME_MAX]);
const char *catalog_shard_name(const struct catalog_shard *s, char out[DEPOT_NAME_MAX]);
const char *catalog_end_name(uint64_t node, uint32_t round, char out[DEPOT_NAME_MAX]);

/* The next segment of a chain that has all up to `reached`: it begins there or before, ends later, and of those that do
 * reaches furthest. NULL: there is a gap, or no more. *i is where to look from; it begins at 0. */
const struct catalog_segment *catalog_next(const struct catalog *c, uint64_t node, uint64_t reached, size_t *i);
uint64_t catalog_reach(const struct catalog *c, uint64_t node, uint64_t from); /* of the whole chain */

/* Two copies of a folder that wrote at the same time: a segment of another run between two of one run, in the order of
 * where they begin. A chain then lacks what one of them recorded. NULL: runs follow one another, as starts do; the last
 * of a run that was killed may be written again by the next one, from the same event on. */
const struct catalog_segment *catalog_beside(const struct catalog *c, uint64_t node);

/* The shards of a round, in their order. */
const struct catalog_shard *catalog_shards(const struct catalog *c, uint64_t node, uint32_t round, size_t *n);

/* Whether an object is what its name says: 0 or ERR_CORRUPT. */
int catalog_check_segment(const struct catalog_segment *s, const struct object_head *h, struct err *err);
int catalog_check_shard(const struct catalog_shard *s, const struct object_head *h, struct err *err);

#endif
