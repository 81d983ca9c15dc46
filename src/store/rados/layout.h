/* How a user lies in the pool: one object each, whose omap has all of them. Pure.
 *
 *   object  u.<id>     the user's id, with every byte but A-Z a-z 0-9 _ - as %XX
 *           meta       what all nodes agree on (meta.h)
 *           night.<n>  locks and marks of the nightly walk (night.h)
 *           positions  how far each partition of Kafka is read, and by which node (positions.c)
 *           full.<n>   made and removed, to see whether there is room (fullness.h)
 *
 *   key                    value              is there
 *   d<inverse stamp><hash> <YYYYMM><item>     for each delivery, newest first; of one with a group
 *                          g<group><YYYYMM><item>
 *   f                      <ms>               once the user was forgotten: when that was, for `retention`
 *   f<hash>                <ms>               the same of an item
 *   g                      16 hex digits      behind each change that is no union: the generation, random
 *   m<YYYYMM>.<k>          a filter's blob    for each part of a month
 *   p<YYYYMM><hash>        <ms>               for each play that is not merged: when it was recorded
 *   q<YYYYMM>              -                  for a month that came with a mark of damage; month 0: the deliveries
 *   w                      see below          the directory of the m keys
 *   x<hash>                -                  for each item that a filter has and that was un-seen; it hides no play
 *
 * Hashes, stamps and times are 16 lower case hex digits, so that the order of the keys is theirs; a stamp's inverse is
 * its complement. `<k>` is 4 hex digits that no other part of the month has.
 *
 * Who may change what. A play or delivery sets its key: blind, since a union may come late. An x that it makes void
 * stays until the play is merged: to remove a key that isn't there costs an OSD as much as one that is, and slows down
 * each question behind it. Whatever else is written names the generation or the version that it has read, and sets a
 * new generation. So two pages of a read with one generation are of one state, but for plays that came meanwhile; and
 * of two that rewrite a user, one loses and begins again. A play of a stated time is written under the generation that
 * it was checked by.
 *
 * A forgotten user's object stays, with g and f alone, as long as the tombstone counts: the object is the one place
 * that a node that records for the user has to look at, and that has an order with everything else of theirs. It goes
 * when the nightly walk finds it empty and its tombstones past `retention`.
 */
#ifndef UNSEEN_STORE_RADOS_LAYOUT_H
#define UNSEEN_STORE_RADOS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "filter/filter.h"

enum {
    LAYOUT_NAME = 2 + 3 * 255 + 1, /* of a user's object, with the end */
    LAYOUT_KEY = 40,               /* the longest key, with the end */
    LAYOUT_HEX = 16,               /* a number as text */
    LAYOUT_MONTH = 6,
};

#define LAYOUT_META "meta"
#define LAYOUT_POSITIONS "positions"
#define LAYOUT_FULL "full."

/* --- names --- */

void layout_user_name(struct slice user, char out[LAYOUT_NAME]);
/* False: it is no user's object, or not written as layout_user_name() does. */
bool layout_user_of(const char *name, char user[255], size_t *len);

/* --- keys --- */

enum layout_kind {
    LAYOUT_OTHER = 0, /* no key of ours */
    LAYOUT_DELIVERY = 'd',
    LAYOUT_FORGOTTEN = 'f',
    LAYOUT_GENERATION = 'g',
    LAYOUT_FILTER = 'm',
    LAYOUT_PLAY = 'p',
    LAYOUT_DAMAGED = 'q',
    LAYOUT_DIRECTORY = 'w',
    LAYOUT_EXCEPTION = 'x',
};

struct layout_key {
    enum layout_kind kind;
    int month;      /* of a play, a filter, a mark of damage */
    uint16_t part;  /* of a filter */
    uint64_t hash;  /* of a play, delivery, exception, forgotten item */
    bool item;      /* forgotten: an item, not the user */
    uint64_t stamp; /* of a delivery */
};

/* Writes the key, ended by 0; returns its length. */
size_t layout_key_write(const struct layout_key *key, char out[LAYOUT_KEY]);
struct layout_key layout_key_read(struct slice text); /* LAYOUT_OTHER unless it is exactly as written */

/* --- values --- */

void layout_hex(uint64_t n, char out[LAYOUT_HEX]); /* not ended */
bool layout_unhex(struct slice text, uint64_t *n);

/* How long a value can be that Unseen has written: of a filter what an OSD takes in one write, of any other key a
 * directory's bytes, which has the longest. */
size_t layout_most(struct slice key);

/* Milliseconds; ERR_CORRUPT. Negative ones are not written. */
int layout_ms(struct slice value, int64_t *ms);

/* A delivery's: its group's hash, if it has one, its month and its item, which is 1 to 255 bytes. */
enum { LAYOUT_DELIVERY_VALUE = 1 + LAYOUT_HEX + LAYOUT_MONTH + 255 };
struct layout_delivery {
    uint64_t group; /* 0: none */
    int month;
    struct slice item;
};
size_t layout_delivery_write(const struct layout_delivery *d, char out[LAYOUT_DELIVERY_VALUE]);
int layout_delivery_read(struct slice value, struct layout_delivery *out);

/* The directory: 8 hex digits, the sum of the blobs' bytes, so that a read can be refused by comparing it; then each
 * part. What it tells of a part says which ones a merge unites, without reading any. */
struct layout_part {
    int month;
    uint16_t part;
    uint32_t bytes; /* of the blob */
    uint32_t items;
    uint32_t live; /* positions at 2^32 without tails */
    bool coarse;   /* has a coarse part */
    bool sealed;   /* has one that was cut */
};
enum {
    LAYOUT_PART = 17,
    LAYOUT_PARTS_MAX = 4096,
    LAYOUT_LIMIT = 8,
    LAYOUT_DIRECTORY_MAX = LAYOUT_LIMIT + LAYOUT_PARTS_MAX * LAYOUT_PART,
};

/* What the directory tells of a filter; bytes are to be filled in. */
struct layout_part layout_part_of(const struct filter *filter, int month, uint16_t part);

int layout_directory_write(const struct layout_part *parts, size_t n, struct buf *out); /* ERR_NOMEM */
/* How many there are, or ERR_CORRUPT: also when the sum isn't theirs; an absent one has none. */
int layout_directory_count(struct slice value);
size_t layout_directory_sum(struct slice value); /* of the blobs' bytes, as far as it says so */
struct layout_part layout_directory_part(struct slice value, size_t i);
/* What a directory whose blobs have more than `bytes` in all does not sort below. */
void layout_directory_limit(uint32_t bytes, char out[LAYOUT_LIMIT]);

#endif
