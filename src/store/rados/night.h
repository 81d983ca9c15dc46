/* The nightly walk. The pool's objects are listed in NIGHT_PIECES pieces of the hash space, a 28th of them each night
 * of sweep_window, so that each user is looked at in four weeks: what waits is merged, finished months are sealed, what
 * is past retention goes, and so do objects that hold nothing any more. Nodes share the pieces of a night by advisory
 * locks on the object `night.<i>`, which also says when the piece was walked last, and what was found:
 *
 *   done       <16 hex>                                  the day, since 1970
 *   forgotten  <16 hex>                                  tombstones
 *   <YYYYMM>   <users> <sealed users> <plays> <bytes>    in decimal
 *
 * A node that ends in the middle leaves a lock that ends by itself; the piece is begun again. Two that walk one piece
 * at once do no harm: each user is changed under their generation. A piece that was missed, since no node ran, is
 * walked in one of the next nights: NIGHT_MISSED of them each night.
 */
#ifndef UNSEEN_STORE_RADOS_NIGHT_H
#define UNSEEN_STORE_RADOS_NIGHT_H

#include "store/admin.h"
#include "store/rados/rados.h"

enum {
    NIGHTS = 28,
    NIGHT_PIECES = 4 * NIGHTS,
    NIGHT_MISSED = 8,
    NIGHT_MONTHS = 256,
    NIGHT_NAME = 16,
};

struct night_month {
    int month;
    uint64_t users, sealed, plays, bytes;
};

/* What a piece holds. */
struct night_piece {
    int64_t day; /* it was walked last; -1: never */
    uint64_t tombstones;
    struct night_month *months; /* ascending */
    size_t n_months;
};

int night_start(struct rados_store *s, struct err *err);
void night_stop(struct rados_store *s); /* blocks until what it has begun is over */
void night_free(struct rados_store *s);
void night_tick(struct rados_store *s, struct store_call *call); /* done() after what is due */
int night_walk(struct rados_store *s, struct err *err);          /* all pieces, now; blocks */

/* --- months.c --- */

/* Months as the last walks have found them; no backups of a folder. */
extern const struct store_admin_ops night_admin_ops;

int night_month_add(struct night_piece *piece, const struct night_month *add); /* ERR_NOMEM */
void night_piece_free(struct night_piece *piece);
/* Read and written as above; both block. An absent piece was never walked. */
int night_piece_read(struct rados_store *s, size_t i, struct night_piece *out, struct err *err);
int night_piece_write(struct rados_store *s, size_t i, const struct night_piece *piece, struct err *err);
void night_piece_name(size_t i, char out[NIGHT_NAME]);

/* When the figures of all pieces were found. */
struct night_age {
    size_t walked;                /* pieces that ever were, of NIGHT_PIECES */
    int64_t oldest_ms, newest_ms; /* when those were, to the day; 0: none was */
};

struct night_age night_age(struct rados_store *s); /* as it is known here */

/* Copies the sums of all pieces, as they are known here; newest month first. Returns how many months, or ERR_NOMEM. A
 * store that doesn't serve reads them at the first call, which blocks then. */
int night_months(struct rados_store *s, struct night_month *out, int max, struct night_age *age, struct err *err);

#endif
