/* What the parts of a merge share. */
#ifndef UNSEEN_STORE_RADOS_MERGE_IMPL_H
#define UNSEEN_STORE_RADOS_MERGE_IMPL_H

#include "store/rados/gathered.h"
#include "store/rados/merge.h"

enum { MERGE_KEYS_MAX = FETCH_KEYS - 2 };

struct merge {
    struct update update; /* first */
    bool night;
    void (*done)(void *arg, const struct merge_outcome *outcome);
    void *arg;

    /* Of a try: */
    struct gathered gathered;
    struct layout_part *parts; /* the directory */
    bool *unite;               /* of each part: it was read, to become part of another */
    size_t n_parts;
    enum { MERGE_BEGUN, MERGE_LISTED /* the directory was read */, MERGE_READ /* and what is united */ } state;
    bool changed;
    bool destroyed;
    int first_kept;
    bool early; /* too little waits, or another node is at it */
    size_t merged, too_old, removed_keys, tombstones, sealed;
    struct slice wanted[MERGE_KEYS_MAX];
    uint8_t len;
    char user[255];
};

/* A key that goes. */
int merge_remove_key(struct merge *m, const struct layout_key *key);

/* --- merge_month.c --- */

/* Whether the month is to be sealed, if the walk comes by. */
bool merge_is_over(const struct merge *m, int month);

/* The plays, and the parts that were picked, become new parts. 0, or an error's code with update.err set. */
int merge_months(struct merge *m);
/* Those past retention go. */
int merge_drop_months(struct merge *m);

#endif
