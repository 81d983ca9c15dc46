/* A list by last use, within the entries: an entry's first member is its `struct use`. All zero is an empty list. O(1),
 * no memory of its own; the owner locks. */
#ifndef UNSEEN_BASE_USES_H
#define UNSEEN_BASE_USES_H

#include <stddef.h>

struct use {
    struct use *newer, *older;
};

struct uses {
    struct use *newest, *oldest; /* NULL: none */
};

static inline void uses_take(struct uses *list, const struct use *u)
{
    *(u->newer != NULL ? &u->newer->older : &list->newest) = u->older;
    *(u->older != NULL ? &u->older->newer : &list->oldest) = u->newer;
}

static inline void uses_put(struct uses *list, struct use *u)
{
    u->newer = NULL;
    u->older = list->newest;
    *(u->older != NULL ? &u->older->newer : &list->oldest) = u;
    list->newest = u;
}

#endif
