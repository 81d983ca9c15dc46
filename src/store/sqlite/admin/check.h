/* Checks two files completely. See sqlite_check_folder() for the folder of a store. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_CHECK_H
#define UNSEEN_STORE_SQLITE_ADMIN_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct check_files {
    const char *folder, *history, *staging; /* names without ".db" */
    const char *vfs;
    bool pages; /* SQLite's own check too, which nothing can interrupt */
    void (*found)(void *arg, const char *problem);
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* may be NULL */
    bool (*stop)(void *arg);                                    /* may be NULL: whether to give up, ERR_CLOSED */
    void *arg;
};

/* Returns the number of problems, or an error. *unread (may be NULL): how many of them are tables that could not be
 * read to their end. */
int check_files(const struct check_files *files, int *unread, struct err *err);

#endif
