/* The text of a round's end: what a restore has to know before it reads anything else. Pure. */
#ifndef UNSEEN_ARCHIVE_ROUND_END_H
#define UNSEEN_ARCHIVE_ROUND_END_H

#include "archive/catalog.h"
#include "config/config.h"

struct round_shard {
    uint32_t shard;
    uint64_t from, to, bytes, checksum;
};

struct round_end {
    char program[64];
    uint64_t seed, term;
    int64_t window, retention, delivered_max;
    double error_rate;
    uint64_t from_node, from_seq; /* the node that this one was restored from, and up to where; 0: it wasn't */
    int64_t ended_ms;
    struct buf shards; /* struct round_shard each */
};

/* A line for one shard, to be handed to round_end_write(). 0 or ERR_NOMEM. */
int round_end_shard(struct buf *lines, const struct round_shard *s);
int round_end_write(const struct round_end *e, const struct buf *shard_lines, struct buf *text);

/* Zeroed before. ERR_CORRUPT, ERR_NOMEM. Words that it doesn't know are passed over. */
int round_end_read(const char *name, struct slice text, struct round_end *e, struct err *err);
void round_end_free(struct round_end *e);

#endif
