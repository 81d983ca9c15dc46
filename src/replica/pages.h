/* Pages of this folder for another one (store/copy.h), read on a thread of their own: a page takes milliseconds. */
#ifndef UNSEEN_REPLICA_PAGES_H
#define UNSEEN_REPLICA_PAGES_H

#include "base/arena.h"
#include "base/buf.h"
#include "replica/cursor.h"
#include "store/copy.h"

struct pages;
struct replica;

enum {
    PAGE_BYTES_MAX = 1024 * 1024, /* of snapshots; one user may be more */
    PAGE_LIST_MAX = 4096,         /* tombstones or positions */
};

enum page_kind { PAGE_USERS, PAGE_USER, PAGE_TOMBSTONES, PAGE_POSITIONS, PAGE_ADOPT };

struct page {
    struct page *next;
    enum page_kind kind;
    struct store_copy_users users; /* USERS: from */
    size_t bytes_max;
    struct slice name;       /* USER; POSITIONS: behind it, unless first */
    struct tombstone behind; /* TOMBSTONES: unless first */
    bool first;
    int max;
    uint64_t replica;          /* ADOPT: who asks (adopt.h), */
    struct feed_cursor cursor; /* having followed so far */

    struct err err;
    struct buf bytes;                 /* snapshots */
    uint64_t from;                    /* ADOPT */
    struct tombstone *tombstones;     /* n of them, in the arena ... */
    struct store_position *positions; /* ... or of these */
    int n;                            /* USER: 1, or 0: nothing is known of them */
    struct arena arena;
    void (*done)(struct page *page); /* on the thread */
    void *owner;
};

int pages_start(struct replica *r, struct pages **pages, struct err *err);
void pages_stop(struct pages *p); /* what waits is answered: ERR_CLOSED. NULL is fine */
void pages_free(struct pages *p);

/* Any thread. page is the thread's until done(); then page_end() frees what it holds. */
void pages_put(struct pages *p, struct page *page);
void page_end(struct page *page);

#endif
