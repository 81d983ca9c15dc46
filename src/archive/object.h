/* An object of an archive: a head, and records, which are packed. docs/format.md describes the form. Pure.
 *
 * The head says what the object is and where it belongs, so that one under another's name is noticed; a checksum over
 * all of it says whether it is whole. What is packed may be encrypted (cipher.h); the head never is. A reader that
 * meets a version or a kind of record that it doesn't know stops there. */
#ifndef UNSEEN_ARCHIVE_OBJECT_H
#define UNSEEN_ARCHIVE_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "archive/cipher.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

enum { OBJECT_HEAD_BYTES = 192 };

enum object_kind { OBJECT_SEGMENT = 1, OBJECT_SHARD = 2, OBJECT_END = 3 };

enum object_flags {
    OBJECT_LACKS_USERS =
        1, /* a segment: events say that more is known of users, and what that is doesn't follow them */
};

struct object_head {
    enum object_kind kind;
    uint32_t flags;
    uint64_t node, run;
    uint32_t seed;     /* its fingerprint */
    uint64_t from, to; /* seqs: it has what lies behind `from`, up to `to` */
    uint64_t covers;   /* a segment: the newest event that what follows its events may know of; at least `to` */
    int64_t first_ms;  /* a segment: when its first event was recorded; 0: it has none; a shard, an end: when it
                        * was made, wall time */
    int64_t last_ms;   /* a segment: the latest time at which one of its events was recorded */
    uint64_t round;    /* a shard, an end */
    uint32_t shard;    /* a shard: its number, from 0; an end: how many there are */
    int64_t key_from, key_next; /* a shard: users of these keys; key_next INT64_MAX: to the last */
    uint64_t n;                 /* events, or users */
    uint32_t key;               /* the id of what it is encrypted with; CIPHER_PLAIN: it is not */
};

/* What stands in an object. Each record has its kind and its length. */
enum object_record {
    RECORD_EVENTS = 1,     /* a run of events (replica/event.h) */
    RECORD_USER = 2,       /* a segment: seq and covers (8 bytes each), 1 or 0, and of 1 a snapshot, for the event
                            * FEED_USER of that seq; a shard: a snapshot alone */
    RECORD_POOL = 3,       /* seq (a shard: 0), 1 or 0 (8 bytes, 1), version, changed, items (8 each), the length of the
                            * name (1), the name, and the items, packed; of 0 no items follow */
    RECORD_TOMBSTONES = 4, /* key, item, at_ms: 8 bytes each, again and again */
    RECORD_POSITION = 5,   /* next (8), and the source */
    RECORD_TEXT = 6,       /* an end: lines of a word and its value */
    RECORD_KINDS,
};

/* Appends one, whose bytes are those of both slices. 0 or ERR_NOMEM. */
int object_add(struct buf *records, enum object_record kind, struct slice first, struct slice second);

/* 1: the next one; 0: the end; ERR_CORRUPT; ERR_VERSION: a kind that this program doesn't know. *at begins at 0. */
int object_next(struct slice records, size_t *at, enum object_record *kind, struct slice *bytes, struct err *err);

/* Appends the whole object to out, encrypted for that name with keys->now, if there is one. ERR_NOMEM. */
int object_seal(const char *name, const struct object_head *head, const struct cipher_keys *keys, struct slice records,
                struct buf *out, struct err *err);

/* Of an object, or of its first OBJECT_HEAD_BYTES, with whichever key. name: for errors. ERR_CORRUPT, ERR_VERSION. */
int object_look(const char *name, struct slice bytes, struct object_head *head, struct err *err);

/* Checks all of it and appends its records. ERR_CORRUPT, ERR_VERSION, ERR_NOMEM; ERR_KEY: as cipher_find() says. */
int object_open(const char *name, struct slice bytes, const struct cipher_keys *keys, struct object_head *head,
                struct buf *records, struct err *err);

/* The checksum that stands in the object, which is at least a head. */
uint64_t object_checksum(struct slice bytes);

/* Numbers of records, little endian. */
void object_put_number(uint8_t out[8], uint64_t n);
uint64_t object_number(const void *at);

#endif
