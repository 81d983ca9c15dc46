/* Logins that were right, so that the next one with the same name and password costs no hash check. What is kept is a
 * keyed hash of both, under a key that is drawn at random for each process; a table of a fixed size, in which a new one
 * takes the place of the one that was used least lately. Not thread-safe. */
#ifndef UNSEEN_SERVICE_ACCOUNT_MEMO_H
#define UNSEEN_SERVICE_ACCOUNT_MEMO_H

#include "base/siphash.h"
#include "service/account.h"

enum { MEMO_SETS = 256, MEMO_WAYS = 8 };

struct memo_row {
    struct siphash hash;
    const struct account *account; /* NULL: free */
    uint64_t used;
};

struct account_memo {
    struct siphash key;
    uint64_t uses;
    struct memo_row rows[MEMO_SETS][MEMO_WAYS];
};

/* ERR_SYSTEM: there is no randomness. */
int account_memo_init(struct account_memo *m, struct err *err);

struct siphash account_memo_hash(const struct account_memo *m, struct slice name, struct slice password);
const struct account *account_memo_find(struct account_memo *m, struct siphash hash); /* NULL: not remembered */
void account_memo_keep(struct account_memo *m, struct siphash hash, const struct account *account);
void account_memo_forget(struct account_memo *m); /* all */

/* In a time that tells nothing of where they differ. */
static inline bool account_memo_same(struct siphash a, struct siphash b)
{
    return ((a.a ^ b.a) | (a.b ^ b.b)) == 0;
}

#endif
