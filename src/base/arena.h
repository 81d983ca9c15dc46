/* Bump allocation: many small pieces, freed all at once. All zero is an empty one; not thread safe.
 * A piece is aligned to 8 bytes and never moves. */
#ifndef UNSEEN_BASE_ARENA_H
#define UNSEEN_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *block; /* the one being filled; older ones behind it */
    size_t used;               /* in that block */
    size_t bytes;              /* allocated from the system, all blocks */
    size_t most;               /* of that since the last reset */
    size_t block_size;         /* 0: 64 KiB; blocks double up to 1 MiB unless fixed here */
    size_t limit;              /* of `bytes`; 0: none. What would be more is refused, before it is taken */
    bool (*more)(struct arena *a, size_t bytes); /* asked first, when the limit is short of so many: true when it has
                                                  * raised the limit by as many. NULL: it is not asked */
    void *owner;                                 /* the caller's */
    bool refused;                                /* it was, since the last reset */
};

/* How far it is filled, and where it goes back to. */
struct arena_mark {
    struct arena_block *block, *older;
    size_t used;
};

void *arena_alloc(struct arena *a, size_t size); /* NULL: out of memory */
void *arena_copy(struct arena *a, const void *bytes, size_t len);

/* Frees what was allocated since the mark was taken, and only that. Marks are gone back to in reverse order, and not
 * over a reset. */
struct arena_mark arena_mark(const struct arena *a);
void arena_rewind(struct arena *a, struct arena_mark mark);

void arena_reset(struct arena *a); /* keeps the largest block of at most 1 MiB for the next use */
void arena_free(struct arena *a);

#endif
