/* What the files of `unseen restore` share. One thread. */
#ifndef UNSEEN_CLI_ARCHIVE_RESTORE_IMPL_H
#define UNSEEN_CLI_ARCHIVE_RESTORE_IMPL_H

#include "archive/moment.h"
#include "cli/lib/progress.h"
#include "config/config.h"
#include "dedup/dedup.h"
#include "store/tombstones.h"

struct restoring {
    const char *from;
    bool quiet, undo_forgets;
    struct config cfg;
    struct depot *depot;
    struct catalog catalog;
    struct moment moment;
    struct store *store;
    struct dedup dedup;
    struct progress progress;
    struct buf gone; /* struct tombstone each, by key: users who were forgotten behind the moment */
    struct buf bytes, records;
    struct store_batch batch;

    int64_t parts, events_to; /* done so far, durably */
    uint64_t users, plays, pools, tombstones, forgets, kept_out, positions;
    uint64_t read_bytes;
};

/* Finds the users of r->gone. */
int restore_find_forgets(struct restoring *r, struct err *err);
bool restore_is_gone(const struct restoring *r, int64_t key);

/* From the round's parts on, as far as they are not done yet. */
int restore_parts(struct restoring *r, struct err *err);
int restore_events(struct restoring *r, struct err *err);

#endif
