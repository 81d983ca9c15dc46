/* Reading a user's object, page by page, as of one state: each page brings the generation, and when it changes between
 * two pages, the read begins again. Plays and deliveries that come meanwhile are in it or not. */
#ifndef UNSEEN_STORE_RADOS_FETCH_H
#define UNSEEN_STORE_RADOS_FETCH_H

#include <pthread.h>

#include "store/rados/cluster.h"
#include "store/rados/layout.h"

struct rados_store;

/* Keys that begin so, at most `page` in one go; those of a large user's filters come a few at a time. */
struct fetch_range {
    const char *prefix;
    uint32_t page;
};

enum { FETCH_KEYS = 64, FETCH_TRIES = 32 };

/* Its owner fills in what stands first, and keeps all of it until done(). */
struct fetch {
    struct cluster_read read; /* first */
    struct rados_store *s;
    const char *object;
    struct slice user;        /* for errors */
    const struct slice *keys; /* beside the generation; at most FETCH_KEYS - 1 */
    size_t n_keys;
    const struct fetch_range *ranges;
    size_t n_ranges;
    bool first_page;                  /* what is beyond the first page isn't wanted */
    bool one_version;                 /* all pages are of one version, too */
    const struct cluster_pair *below; /* of the first page: ERR_LARGE if it isn't */
    /* On threads of the cluster. take: 0, or an error's code, with f->err set, which ends it. again: what was taken is
     * void, from the first on. done: once; then the fetch isn't touched any more. */
    int (*take)(struct fetch *f, const struct layout_key *key, struct slice value);
    void (*again)(struct fetch *f);
    void (*done)(struct fetch *f);

    struct err err; /* from here on: the answer */
    bool exists;
    struct slice generation; /* "": it has none */
    bool odd;                /* it has one that no node of ours has written: the version stands for it */
    size_t strange_len;      /* there is a key of which the same is to be said, beginning with this; 0: none is */
    char strange[LAYOUT_KEY];
    uint64_t version;

    /* Its own. */
    pthread_mutex_t mutex;
    bool reading, cancelled;
    bool begun; /* a page was taken, whose generation the others have to have */
    unsigned tries;
    int failed; /* of take */
    struct slice wanted[FETCH_KEYS];
    char after[CLUSTER_RANGES][LAYOUT_KEY];
    bool stuck[CLUSTER_RANGES];      /* the last page has no key to go on from */
    size_t range_of[CLUSTER_RANGES]; /* which of `ranges` the read's i-th is */
    char generation_bytes[LAYOUT_HEX], first_generation[LAYOUT_HEX];
    size_t generation_len;
};

void fetch_init(struct fetch *f);
void fetch_destroy(struct fetch *f);

/* Begins; again after done(), too. */
void fetch_start(struct fetch *f);

/* Any thread, while done() can't end meanwhile: done() is called soon, with ERR_CLOSED if there is no answer yet. */
void fetch_cancel(struct fetch *f);

#endif
