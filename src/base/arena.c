#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 8,
    FIRST_BLOCK = 64 * 1024,
    LARGEST_BLOCK = 1024 * 1024, /* of those that double, and of the one that a reset keeps */
};

struct arena_block {
    struct arena_block *older;
    size_t size; /* of the bytes behind the header */
    char bytes[];
};

_Static_assert(offsetof(struct arena_block, bytes) % ALIGN == 0, "pieces are aligned");

/* By how many bytes the limit is short of a block. */
static size_t is_short(const struct arena *a, size_t size)
{
    size_t after = a->bytes + sizeof(struct arena_block) + size;
    return a->limit > 0 && after > a->limit ? after - a->limit : 0;
}

static struct arena_block *block_new(struct arena *a, size_t size)
{
    if (size > SIZE_MAX - sizeof(struct arena_block) - a->bytes) {
        return NULL;
    }
    if (is_short(a, size) > 0 && (a->more == NULL || !a->more(a, is_short(a, size)))) {
        a->refused = true;
        return NULL;
    }
    struct arena_block *block = malloc(sizeof *block + size);
    if (block != NULL) {
        block->older = NULL;
        block->size = size;
        a->bytes += sizeof *block + size;
        a->most = a->bytes > a->most ? a->bytes : a->most;
    }
    return block;
}

static size_t next_size(const struct arena *a)
{
    if (a->block_size > 0) {
        return a->block_size;
    }
    size_t size = FIRST_BLOCK;
    if (a->block != NULL) {
        size = a->block->size < LARGEST_BLOCK / 2 ? 2 * a->block->size : LARGEST_BLOCK;
    }
    return size < FIRST_BLOCK ? FIRST_BLOCK : size;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX - ALIGN) {
        return NULL;
    }
    size = size == 0 ? ALIGN : (size + ALIGN - 1) / ALIGN * ALIGN;
    if (a->block != NULL && size <= a->block->size - a->used) {
        void *piece = a->block->bytes + a->used;
        a->used += size;
        return piece;
    }

    size_t usual = next_size(a);
    struct arena_block *block = block_new(a, size > usual ? size : usual);
    if (block == NULL) {
        return NULL;
    }
    if (size > usual && a->block != NULL) {
        /* A giant gets a block of its own behind the current one, which still has room for the small. */
        block->older = a->block->older;
        a->block->older = block;
        return block->bytes;
    }
    block->older = a->block;
    a->block = block;
    a->used = size;
    return block->bytes;
}

void *arena_copy(struct arena *a, const void *bytes, size_t len)
{
    void *copy = arena_alloc(a, len);
    if (copy != NULL && len > 0) {
        memcpy(copy, bytes, len);
    }
    return copy;
}

struct arena_mark arena_mark(const struct arena *a)
{
    return (struct arena_mark){a->block, a->block != NULL ? a->block->older : NULL, a->used};
}

/* Frees blocks until that one, which it returns. */
static struct arena_block *drop_until(struct arena *a, struct arena_block *block, const struct arena_block *end)
{
    while (block != end) {
        struct arena_block *older = block->older;
        a->bytes -= sizeof *block + block->size;
        free(block);
        block = older;
    }
    return block;
}

void arena_rewind(struct arena *a, struct arena_mark mark)
{
    a->block = drop_until(a, a->block, mark.block);
    a->used = mark.used;
    if (a->block != NULL) {
        a->block->older = drop_until(a, a->block->older, mark.older); /* giants */
    }
}

void arena_reset(struct arena *a)
{
    struct arena_block *keep = NULL;
    for (struct arena_block *block = a->block, *older; block != NULL; block = older) {
        older = block->older;
        struct arena_block *drop = block;
        if (block->size <= LARGEST_BLOCK && (keep == NULL || block->size > keep->size)) {
            drop = keep;
            keep = block;
        }
        free(drop);
    }
    a->block = keep;
    a->used = 0;
    a->bytes = 0;
    a->refused = false;
    if (keep != NULL) {
        keep->older = NULL;
        a->bytes = sizeof *keep + keep->size;
    }
    a->most = a->bytes;
}

void arena_free(struct arena *a)
{
    for (struct arena_block *block = a->block, *older; block != NULL; block = older) {
        older = block->older;
        free(block);
    }
    a->block = NULL;
    a->used = 0;
    a->bytes = 0;
}
