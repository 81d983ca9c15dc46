/* The capability `positions`: how far a source outside was taken, such as a partition of a Kafka topic. A position is
 * committed with the batch that holds what was read up to it (store_batch.positions), so after any crash, restore or
 * copy of the folder it says exactly what the folder lacks.
 *
 * A commit or a crash never leaves it ahead of the plays that are here. Damage can. After a salvage, and after a repair
 * that accepts that plays are lost because the two files don't belong together, each source stands at 0: all of it that
 * still exists is to be read again, which is harmless since plays are a union and a forget is never undone. A repair
 * that gives up single rows or months says which, and leaves the positions: what they held is not read again.
 *
 * One source is none: STORE_LINEAGE stands for the folder itself. Its position is a number that backups, copies, clones
 * and replicas of the folder have in common, and no other has. So what was noted elsewhere in its name can be told
 * from what others have noted, also by a folder that has gone back to before that.
 *
 * A store that several nodes write has one position for all of them. Who is to read a source claims it, and reads on
 * from what the claim has found; from then on no earlier claimer can move it. So a position only ever says
 * what one reader after the other has made durable, without a gap. There the events of a batch are recorded before its
 * positions move: one that fails may have recorded any of its events, and has moved no position, or all of them when
 * the outcome is unknown.
 */
#ifndef UNSEEN_STORE_POSITIONS_H
#define UNSEEN_STORE_POSITIONS_H

#include "store/store.h"

#define STORE_LINEAGE "lineage" /* never 0; a store that keeps nothing may lack it */

enum {
    STORE_SOURCE_MAX = 400,     /* bytes of a source's name */
    STORE_SOURCES_MAX = 100000, /* sources: a batch with one more is refused (ERR_RANGE) */
};

/* Sources that this node is to read from now on, and others that are only looked at and that any node may move. The
 * slices are the caller's until done(). Then find() says what is there. ERR_LATE, ERR_IO, ERR_FULL, ERR_INVALID,
 * ERR_RANGE, ERR_CORRUPT, ERR_NOMEM, ERR_CLOSED: it may have been claimed, or be claimed later. */
struct store_claim {
    struct store_call call; /* first */
    const struct slice *sources, *looked_at;
    size_t n, n_looked_at;
};

/* Any thread. */
struct store_positions_ops {
    /* 1: *next is the position of the next thing to read from the source, and it is durable; 0: nothing of the source
     * was ever taken in this folder. From memory. */
    int (*find)(struct store *s, struct slice source, int64_t *next);
    /* NULL: no other node writes this store. Where there is one, a batch that would move a source which another node,
     * or a later claim of this one, has claimed since this node did is ERR_LOCKED. A source that this node never
     * claimed is moved whichever node has it. */
    void (*claim)(struct store *s, struct store_claim *claim);
};

/* --- for engines: positions in memory. The writer's thread changes them, any thread may find --- */

struct position_set;

struct position_set *position_set_new(void);
void position_set_free(struct position_set *set);

/* Checks the batch's positions and makes their places, so that position_set_move() can't fail. ERR_INVALID, ERR_RANGE,
 * ERR_NOMEM, in batch->err. */
int position_set_admit(struct position_set *set, struct store_batch *batch);

/* Once they are durable. */
void position_set_move(struct position_set *set, const struct store_batch *batch);

/* Adds one as it was found at start: ERR_INVALID, ERR_RANGE, ERR_NOMEM. */
int position_set_load(struct position_set *set, const struct store_position *position, struct err *err);

bool position_set_find(struct position_set *set, struct slice source, int64_t *next);

/* It is found no more. */
void position_set_forget(struct position_set *set, struct slice source);

/* The i-th in no special order, on the writer's thread. False: there is none. */
bool position_set_at(struct position_set *set, size_t *i, struct store_position *out);

#endif
