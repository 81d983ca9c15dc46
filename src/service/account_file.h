/* The file of accounts: a line each, its fields split by blanks.
 *
 *     # name      roles              hash of the password, by libcrypt
 *     recommender ask,record         $y$j9T$...
 *
 * Empty lines and lines that begin with # mean nothing. A file that everybody may read is refused. `unseen account`
 * writes it (cli/account), the server reads it at its start and on SIGHUP.
 */
#ifndef UNSEEN_SERVICE_ACCOUNT_FILE_H
#define UNSEEN_SERVICE_ACCOUNT_FILE_H

#include "base/buf.h"
#include "service/account.h"

enum {
    ACCOUNTS_MAX = 4096,
    ACCOUNT_FILE_MAX = 4 * 1024 * 1024, /* bytes */
    ACCOUNT_ROLES_TEXT = 48,
};

struct account_set {
    struct account *accounts; /* by name */
    size_t n;
    struct account_set *older; /* login.c's own */
};

/* Reads the file into a new set. ERR_NOTFOUND, ERR_IO, ERR_NOMEM, ERR_INVALID: the text names the file, its line, and
 * what was expected. */
int account_file_read(const char *path, struct account_set **set, struct err *err);

/* The same in two steps. The first one's bytes end with a NUL that is not counted. */
int account_file_load(const char *path, struct buf *bytes, struct err *err);
int account_file_parse(const char *path, struct slice bytes, struct account_set **set, struct err *err);

void account_set_free(struct account_set *set); /* NULL: nothing; not of older ones */
bool account_set_equal(const struct account_set *a, const struct account_set *b);
const struct account *account_set_find(const struct account_set *set, struct slice name); /* set NULL: none there */

const char *account_library_version(void); /* of libcrypt, as it was built with */

/* What may be an account's name in the file, and "ask,record" as roles. ERR_INVALID. */
int account_check_name(struct slice name, struct err *err);
int account_roles_read(struct slice text, unsigned *roles, struct err *err);
void account_roles_write(unsigned roles, char out[ACCOUNT_ROLES_TEXT]);

#endif
