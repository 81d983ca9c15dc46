#include "service/account_memo.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

int account_memo_init(struct account_memo *m, struct err *err)
{
    if (getrandom(&m->key, sizeof m->key, 0) != sizeof m->key) {
        return err_set(err, ERR_SYSTEM, "no random key for the logins: %s", strerror(errno));
    }
    return 0;
}

struct siphash account_memo_hash(const struct account_memo *m, struct slice name, struct slice password)
{
    char text[1 + ACCOUNT_NAME_MAX + ACCOUNT_PASSWORD_MAX] = {(char)name.len};
    memcpy(text + 1, name.data, name.len);
    memcpy(text + 1 + name.len, password.data, password.len);
    struct siphash hash = siphash(&m->key, text, 1 + name.len + password.len);
    explicit_bzero(text, sizeof text);
    return hash;
}

static struct memo_row *set_of(struct account_memo *m, struct siphash hash)
{
    return m->rows[hash.a % MEMO_SETS];
}

const struct account *account_memo_find(struct account_memo *m, struct siphash hash)
{
    struct memo_row *row = set_of(m, hash);
    for (int i = 0; i < MEMO_WAYS; i++) {
        if (row[i].account != NULL && account_memo_same(row[i].hash, hash)) {
            row[i].used = ++m->uses;
            return row[i].account;
        }
    }
    return NULL;
}

void account_memo_keep(struct account_memo *m, struct siphash hash, const struct account *account)
{
    struct memo_row *row = set_of(m, hash), *oldest = row;
    for (int i = 1; i < MEMO_WAYS; i++) {
        oldest = row[i].used < oldest->used ? &row[i] : oldest;
    }
    *oldest = (struct memo_row){hash, account, ++m->uses};
}

void account_memo_forget(struct account_memo *m)
{
    memset(m->rows, 0, sizeof m->rows);
}
