/* What an import counts, and the summary it ends with. */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_TALLY_H
#define UNSEEN_CLI_IMPORT_IMPORT_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "cli/import/distinct.h"
#include "cli/import/import_rejects.h"

enum { IMPORT_BAD_SHOWN = 5, IMPORT_WHY_NONE = 160 };

enum import_time { IMPORT_TIME_GOOD, IMPORT_TIME_OLD, IMPORT_TIME_AHEAD };

struct import_bad {
    const char *file; /* the caller's */
    uint64_t line;
    char reason[sizeof(((struct err *)0)->text)];
};

struct import_tally {
    int64_t oldest_ms, newest_ms; /* good times, both inclusive */
    int first_month;              /* of oldest_ms */
    uint64_t *months;             /* events of each month from first_month on */
    int n_months;
    int64_t month_from, month_to; /* the month that the last event was in, and */
    uint64_t *month;              /* its count */
    uint64_t events, too_old, ahead;
    uint64_t malformed;
    uint64_t untold;                      /* of those, in which an escape may or may not be one */
    uint64_t forgotten;                   /* not newer than a forget; not among the events, once they are known */
    uint64_t refused;                     /* by a server with other limits; not among the events */
    bool endless;                         /* users and items are not counted: each takes memory */
    bool of_letters;                      /* the input are dead letters: */
    uint64_t letters_taken, letters_kept; /* out of their files, and in them */
    struct distinct users, items;
    struct import_bad bad[IMPORT_BAD_SHOWN]; /* the first ones, malformed or refused */
    int n_bad;
    int64_t elapsed_us;             /* set by the owner at the end */
    struct import_rejects *rejects; /* the owner's: where what is refused goes, or NULL */
};

/* Limits: `retention` full months before the one of earlier_ms, and a day after later_ms (see store_ops.now). Returns 0
 * or ERR_NOMEM. */
int import_tally_init(struct import_tally *t, int64_t retention, int64_t earlier_ms, int64_t later_ms, struct err *err);
void import_tally_free(struct import_tally *t);

/* Time has gone on: what is good now. 0 or ERR_NOMEM, then it is as it was. */
int import_tally_until(struct import_tally *t, int64_t later_ms, struct err *err);

/* Makes the counts of `to` those of `from`. Both are of one endless import, and `to` was all
 * zero or made by this. 0 or ERR_NOMEM. */
int import_tally_copy(struct import_tally *to, const struct import_tally *from, struct err *err);

/* Counts an event whose time is not good, and says so. */
enum import_time import_tally_time(struct import_tally *t, int64_t at_ms);
void import_tally_reject_time(struct import_tally *t, enum import_time time, const char *file, uint64_t line,
                              struct slice raw);

/* Counts an event with a good time. Returns 0 or ERR_NOMEM. */
int import_tally_event(struct import_tally *t, int64_t at_ms, uint64_t user_hash, uint64_t item_hash, struct err *err);

/* Counts a malformed line, raw as it came; or n events that were refused. */
void import_tally_malformed(struct import_tally *t, const char *file, uint64_t line, const char *reason,
                            struct slice raw);
void import_tally_refused(struct import_tally *t, const char *file, uint64_t line, uint64_t n, const char *reason);

/* So many of the events were dropped by a forget, as it turned out. */
void import_tally_forgotten(struct import_tally *t, uint64_t n);

/* Why none was loaded: "3 too old, 1 malformed"; or "no line in the input". */
const char *import_tally_why_none(const struct import_tally *t, char out[IMPORT_WHY_NONE]);

/* Prints the summary to standard output: for people, or as JSON. */
void import_tally_print(const struct import_tally *t, bool dry_run);
void import_tally_print_json(const struct import_tally *t, bool dry_run);

#endif
