/* The noted users of a folder who are not fully taken over from the other Redis yet, in the order of their keys. Each
 * takes sixteen bytes; the user's id is looked up when it is reached. One thread. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_EXPORT_MIGRATION_H
#define UNSEEN_STORE_SQLITE_ADMIN_EXPORT_MIGRATION_H

#include "store/sqlite/state.h"

struct export_migration {
    struct export_migration_user *list;
    size_t n, cap, at;
    char user[255];
};

/* Those of e's range that it wants. */
int export_migration_read(struct export_migration *x, struct db *staging, const struct store_export *e, uint64_t seed,
                          struct err *err);
/* The next one: 1, with key and user, valid until the next call; 0: there is none; or an error. Users who were
 * forgotten meanwhile are skipped. */
int export_migration_next(struct export_migration *x, struct db *staging, int64_t *key, struct slice *user,
                          struct err *err);
void export_migration_free(struct export_migration *x);

#endif
