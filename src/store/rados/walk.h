/* Reading objects whole, several at a time and no faster than a rate, for what looks at all users and changes none:
 * check and export. Unlike a question's read (fetch.h) it judges nothing: keys that no node of ours has written are
 * among them.
 *
 * What is handed over is of one state, but for plays and deliveries that came meanwhile: pages have one generation, or
 * the read begins again. At most WALK_AT_ONCE objects are in memory; once they have WALK_BYTES together, no further one
 * is begun before the oldest is handed over. All functions are called by one thread. */
#ifndef UNSEEN_STORE_RADOS_WALK_H
#define UNSEEN_STORE_RADOS_WALK_H

#include "store/rados/rados.h"

enum { WALK_AT_ONCE = 16, WALK_BYTES = 64 << 20, WALK_NAMES = 256 };

struct walk_pair {
    struct slice key, value;
};

struct walked {
    const char *object;
    bool exists;                   /* it may have gone since it was listed */
    const struct walk_pair *pairs; /* in the order of their keys; they live until each() returns */
    size_t n;
    struct err err; /* why it can't be read; then there are no pairs */
};

struct walk_options {
    uint64_t rate; /* objects a second; 0: no limit */
    /* In the order of walk_add(). 0, or an error's code, which ends the walk. */
    int (*each)(void *arg, const struct walked *w, struct err *err);
    void *arg;
};

struct walk;
int walk_open(struct rados_store *s, const struct walk_options *options, struct walk **walk, struct err *err);
/* Both block, and may call each(). They return what it did, or ERR_NOMEM. */
int walk_add(struct walk *w, const char *object, struct err *err);
int walk_drain(struct walk *w, struct err *err); /* all that were added are handed over */
void walk_close(struct walk *w);                 /* blocks until nothing is under way, at most the cluster's limit */

/* Lists all objects, in pieces of the hash space. name: 0, or an error's code; progress: after each piece. Blocks. */
struct walk_list {
    int (*name)(void *arg, const char *object, struct err *err);
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};
int walk_list(struct rados_store *s, const struct walk_list *list, struct err *err);

#endif
