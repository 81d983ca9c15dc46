/* A change of a user: read, work out, write under a guard, and again when another was faster. Merges, forgets,
 * imports, the nightly walk and plays of a stated time are each a plan() for it; plays that the server stamps are
 * written without reading. */
#ifndef UNSEEN_STORE_RADOS_UPDATE_H
#define UNSEEN_STORE_RADOS_UPDATE_H

#include "base/arena.h"
#include "store/rados/fetch.h"
#include "store/rados/quota.h"
#include "store/store.h"

enum update_plan {
    UPDATE_WRITE = 1, /* what update_set() and update_remove() said */
    UPDATE_NOTHING,   /* done as it is */
    UPDATE_READ,      /* more of the same state: fetch.keys, fetch.ranges; then plan() again */
};

enum update_guard {
    UPDATE_BY_GENERATION, /* nothing but plays and deliveries came meanwhile */
    UPDATE_BY_VERSION,    /* nothing at all */
};

enum { UPDATE_TRIES = 64 };

/* The first part is the owner's, who keeps all of it until done(). */
struct update {
    struct store_message message; /* first: for the store's thread */
    struct rados_store *s;
    int64_t key;
    struct slice user;
    enum update_guard guard;
    bool blind;                      /* nothing is read; plan() is called at once */
    bool heavy;                      /* plan() takes a while: it is called on the store's thread */
    bool must;                       /* also when the cluster is full */
    unsigned tries_max;              /* 0: UPDATE_TRIES */
    void (*again)(struct update *u); /* what was read is void, and so is the arena */
    int (*take)(struct update *u, const struct layout_key *key, struct slice value); /* as fetch.take */
    int (*plan)(struct update *u);  /* enum update_plan, or an error's code, with err set */
    void (*done)(struct update *u); /* once; then it isn't touched any more */

    struct err err; /* the answer */
    bool lost;      /* with ERR_BUSY: another was faster, tries_max times */
    bool written;
    struct quota *quota; /* where memory for what is read is claimed; NULL: it is charged elsewhere */
    size_t quota_bytes;  /* at first; one page of keys is within it */
    struct fetch fetch;  /* keys, ranges, first_page are the owner's to set */
    struct arena arena;  /* of what was read and planned */

    /* Its own. */
    struct quota_claim claim;
    struct cluster_write write;
    struct cluster_pair *set;
    size_t n_set, cap_set;
    struct slice *remove;
    size_t n_remove, cap_remove;
    bool clear, destroy;
    bool more; /* an UPDATE_READ is under way */
    struct cluster_pair expected;
    char expected_value[LAYOUT_HEX];
    bool existed, odd;
    uint64_t version;
    unsigned tries;
    struct update *older, *newer; /* fullness.c's, while a write that needs room is under way */
    int64_t begun_us;
    char object[LAYOUT_NAME];
};

/* Everything beside the owner's part; returns 0 or ERR_NOMEM. */
void update_init(struct update *u, struct rados_store *s, int64_t key, struct slice user);
void update_destroy(struct update *u);
void update_start(struct update *u);

/* --- for plan() --- */

/* ERR_NOMEM, with err set. The bytes are copied into the arena. */
int update_set(struct update *u, const struct layout_key *key, struct slice value);
int update_remove(struct update *u, const struct layout_key *key);
void update_clear(struct update *u);     /* all that was there; before what is set */
void update_destroys(struct update *u);  /* the object goes */
int update_generation(struct update *u); /* a new one */
int update_nomem(struct update *u);
/* Before UPDATE_READ: of the cluster's library and of the copy here, so many bytes are coming. */
int update_expect(struct update *u, size_t bytes);

bool update_is_empty(const struct update *u); /* nothing is planned yet */

/* As the first read found it. */
bool update_existed(const struct update *u);

#endif
