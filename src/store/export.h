/* Where the users of a store go that is exported: sqlite_export_folder(), rados_export_pool(). */
#ifndef UNSEEN_STORE_EXPORT_H
#define UNSEEN_STORE_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct store_export {
    int64_t from, to; /* keys of users; a user is handed over if wanted, too */
    bool (*wanted)(void *arg, struct slice user);
    int (*begin)(void *arg, uint64_t seed, struct err *err); /* before any snapshot */
    int (*snapshot)(void *arg, struct slice bytes, struct err *err);
    void (*damaged)(void *arg, const char *what);
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
};

#endif
