/* What the parts of an import share. */
#ifndef UNSEEN_STORE_RADOS_IMPORT_IMPL_H
#define UNSEEN_STORE_RADOS_IMPORT_IMPL_H

#include "store/codec/user_snapshot.h"
#include "store/rados/gathered.h"
#include "store/rados/rados.h"

/* A call, whose users are imported some at a time. */
struct import_call {
    struct rados_store *s;
    struct store_import *import;
    pthread_mutex_t mutex;
    size_t next, under_way;
    const struct store_merge *as; /* they become its `into`, whose forgets drop nothing; NULL: who they are */
    struct err err;               /* the first */
};

struct import_part {
    int month;
    struct filter filter;
    bool united; /* it goes into another */
};

struct import {
    struct update update; /* first */
    struct writes_turn turn;
    struct import_call *call;
    size_t place; /* among the call's snapshots */

    /* Of a try: */
    bool listed; /* all but the filters was read */
    struct gathered gathered;
    struct user_snapshot snapshot;
    struct filter *theirs; /* of the snapshot's months */
    struct import_part *ours;
    size_t n_ours; /* as the gathered parts */
    struct layout_part *directory;
    size_t n_directory;
    int first_kept, newest;
    double error; /* of the window, afterwards */
    int verdict;
    int crowded; /* IMPORT_CROWDED: the month */
    size_t keys;
    uint8_t len;
    char user[255];
};

/* The plan of its update: import_unite.c. */
int import_plan(struct update *u);

#endif
