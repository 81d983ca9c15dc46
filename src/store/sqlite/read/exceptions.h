/* The hashes, ascending, of a user's items that FORGET made unseen. */
#ifndef UNSEEN_STORE_SQLITE_READ_EXCEPTIONS_H
#define UNSEEN_STORE_SQLITE_READ_EXCEPTIONS_H

#include "base/arena.h"
#include "store/sqlite/db/db.h"

/* All under the key, in the arena. Returns 0 or an error. */
int exceptions_read(struct db *history, int64_t key, struct arena *arena, uint64_t **list, size_t *n, struct err *err);

#endif
