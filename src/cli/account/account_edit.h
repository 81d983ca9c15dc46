/* Changes the file of accounts: one line of it, all else stays as it is. The new file takes the place of the old one at
 * once and durably, or not at all. */
#ifndef UNSEEN_CLI_ACCOUNT_EDIT_H
#define UNSEEN_CLI_ACCOUNT_EDIT_H

#include <limits.h>
#include <sys/stat.h>

#include "service/account_file.h"

struct account_edit {
    char path[PATH_MAX]; /* behind all links */
    struct buf bytes;    /* as it is; empty: it is not there yet */
    bool exists;
    struct stat as_read;
    struct account_set *set;
};

/* Reads it; one that is not there has no accounts. The errors of account_file_read(). */
int account_edit_open(struct account_edit *e, const char *path, struct err *err);

/* Puts this line (NULL: none) in the place of the account's, or behind all others when there is none. ERR_BUSY:
 * another process changes it, or has since it was read; ERR_IO, ERR_SYSTEM, ERR_NOMEM, ERR_INVALID. */
int account_edit_put(struct account_edit *e, struct slice name, const char *line, struct err *err);

void account_edit_close(struct account_edit *e);

#endif
