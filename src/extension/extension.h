/* The loadable extension: Unseen's blobs and hashes in the sqlite3 shell (docs/inspect.md).
 *
 * One object, unseen.so, made of the same codecs and the same hash as the program; nothing but sqlite3_unseen_init() is
 * visible from outside. All it does is read: no function changes a file. What belongs to a connection stands in struct
 * extension, which is used by one thread at a time, as the connection is.
 */
#ifndef UNSEEN_EXTENSION_EXTENSION_H
#define UNSEEN_EXTENSION_EXTENSION_H

#include <sqlite3ext.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

struct extension {
    int users;          /* functions that refer to it: the last one to go frees it */
    uint64_t seed;      /* of the files that seed_of names */
    struct buf seed_of; /* empty: no seed was read yet */
    struct buf files;   /* scratch */
};

/* The hash seed of the open folder: the row `seed` in the table `meta` of the one open file that has it, main or
 * attached. It is read again when a file was opened, detached or written since. 0, or an error that says what is there
 * and what was expected. */
int extension_seed(struct extension *x, sqlite3 *db, uint64_t *seed, struct err *err);

/* The table-valued function unseen_delivered(items). Returns an SQLITE_* code. */
int extension_add_delivered(sqlite3 *db);

/* The bytes of an argument. ERR_INVALID when it isn't of that type. */
int extension_blob(sqlite3_value *value, const char *what, struct slice *out, struct err *err);

/* The only symbol that is exported. */
__attribute__((visibility("default"))) int sqlite3_unseen_init(sqlite3 *db, char **error,
                                                               const sqlite3_api_routines *api);

#endif
