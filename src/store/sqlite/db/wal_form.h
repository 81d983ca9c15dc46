/* The form of a WAL's bytes: its header, its frames, and the checksums that chain them.
 * See https://www.sqlite.org/walformat.html. Knows no file and no lock. */
#ifndef UNSEEN_STORE_SQLITE_DB_WAL_FORM_H
#define UNSEEN_STORE_SQLITE_DB_WAL_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WAL_HEADER = 32,
    WAL_FRAME_HEADER = 24, /* and a page behind it */
    WAL_BEGUN = 12,        /* in the header: how often it has begun again, with salts that count on */
    WAL_SALTS = 16,        /* in the header, 8 bytes, which every frame repeats ... */
    WAL_FRAME_SALTS = 8,   /* ... here. The first 4 count up each time the WAL begins again at its start. */
};

/* The checksum of all that was read so far. */
struct wal_sum {
    bool big_endian; /* its words */
    uint32_t at[2];
};

uint32_t wal_read_be32(const uint8_t *at);

/* Takes in the header: whether it is one, with pages of that size. */
bool wal_take_header(struct wal_sum *sum, const uint8_t header[WAL_HEADER], uint32_t page_size);

/* Takes in the next frame, which has those salts: whether it is whole. */
bool wal_take_frame(struct wal_sum *sum, const uint8_t *frame, uint32_t page_size, const uint8_t salts[8]);

/* Whether it is the last one of a commit. */
bool wal_frame_commits(const uint8_t *frame);

#endif
