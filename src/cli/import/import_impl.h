/* What the files of `unseen import` share: the run, and its ways with events. */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_IMPL_H
#define UNSEEN_CLI_IMPORT_IMPORT_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "cli/import/import_reader.h"
#include "cli/import/import_rejects.h"
#include "cli/import/import_remote.h"
#include "cli/import/import_tally.h"
#include "cli/lib/progress.h"
#include "config/config.h"
#include "store/store.h"

enum { IMPORT_SUBMIT_MS = 1000 }; /* so old may events become that are not submitted */

struct import {
    const char *format_name, *to;
    bool strict, dry_run, json, quiet, follow, dead_letters, begin_new;
    const char *state; /* of follow: a path; NULL: beside the file */
    const char *columns_name, *escapes_name, *unit_name, *rejects_path, *max_rejects;
    struct import_rules rules;
    struct import_rejects *rejects;
    struct config cfg;
    struct import_reader reader;
    struct import_tally tally;
    struct arena names; /* of files that the tally tells of */
    struct progress progress;
    const char *password; /* of the server */
    struct store *store;  /* at most one of these two is the target */
    struct import_remote *remote;
    uint64_t seed;
    uint64_t forgotten;       /* what forgets had dropped in the store before */
    bool stopped;             /* at a malformed line, as --strict wants, or at one refused line too many */
    uint64_t submitted;       /* events of the tally that are durable */
    int64_t waiting_since_us; /* when the oldest of the others came; 0: there are none */
};

/* Takes the events that the reader has now. check_only: looks for malformed lines and takes none. */
int import_drain(struct import *im, const char *file, bool check_only, struct err *err);

/* One event of that line. */
int import_take_event(struct import *im, const struct import_event *event, const char *file, uint64_t line,
                      struct err *err);

/* Waits until all that was taken is durable. */
int import_make_durable(struct import *im, struct err *err);

/* All events so far are durable: says so. */
void import_tell_durable(struct import *im, const char *file);

#endif
