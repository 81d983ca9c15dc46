/* The history of users who were asked about lately, decoded, so that the next question about them reads and decodes
 * nothing.
 *
 * What was read stays true for as long as the file's content is the same, which a version says (reader.c): an entry is
 * as good as a reading of the snapshot that has its version. A user is kept from their second question on, so that one
 * who is asked about once costs nothing. Belongs to one reader, so
 * to one thread at a time, but for the bytes, which others may read.
 *
 * Memory is bounded by the caller, who tells the limit with each entry that is added. The first to go is the oldest one
 * that wasn't used since it was passed over last (Corbato's clock: what a use marks lies in the entry, and no other
 * needs to be touched). An entry is one block, counted before it is made.
 */
#ifndef UNSEEN_STORE_SQLITE_READ_KEPT_H
#define UNSEEN_STORE_SQLITE_READ_KEPT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/uses.h"
#include "store/store.h"

/* Of one user, from first_month on. */
struct kept_user {
    struct use use; /* in the list by when they were added, or passed over */
    bool used;      /* since then */
    int64_t key;
    int first_month;
    unsigned version;
    int64_t blob_bytes; /* of all their filters, as they are stored */
    /* known, months, deliveries and exceptions of history alone, none of them damaged */
    struct store_view view;

    struct kept_user *next, **at; /* of the same bucket, and what points here */
    struct arena arena;           /* what the view points into */
    size_t bytes;                 /* of all of it */
};

/* All zero is an empty one, which takes memory with its first entry. */
struct kept_users {
    struct kept_user **buckets;
    int64_t *asked; /* keys of users asked about lately */
    struct uses uses;
    size_t n;
    _Atomic size_t bytes;
};

/* NULL: there is none of that version. The entry is good until the next call but kept_find()'s. */
const struct kept_user *kept_find(struct kept_users *kept, int64_t key, int first_month, unsigned version);

/* Whether the user was asked about lately, and is now: then the next reading of them is worth an entry. False when
 * there is no memory to know it. */
bool kept_wanted(struct kept_users *kept, int64_t key);

/* Keeps a copy of user's key, first_month, version, blob_bytes and view, in at most limit bytes with all others. One
 * that takes more than an eighth of the limit isn't kept, nor is any where there is no memory. */
void kept_add(struct kept_users *kept, const struct kept_user *user, size_t limit);

/* Ends some until all take at most limit bytes. */
void kept_cut(struct kept_users *kept, size_t limit);

/* Ends all, and frees the memory. */
void kept_free(struct kept_users *kept);

#endif
