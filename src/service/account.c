/* Who a client is, and what it may do. How it proves that stands in login.c. */
#include "service/account.h"

#include <string.h>

#include "service/account_file.h"
#include "service/account_impl.h"
#include "service/request.h"

const struct account account_default = {.name = "default", .roles = ROLE_ALL};

static bool has_requirepass(const struct service *s)
{
    return config_now(s->pool->cfg)->requirepass[0] != '\0';
}

/* The same account in another set. One whose password has changed is another's, who knows the new one. */
static void look_up(struct identity *who, const struct account_set *set)
{
    const struct account *before = who->account;
    who->account = account_set_find(set, slice_str(before->name));
    who->set = set;
    if (who->account != NULL && strcmp(who->account->hash, before->hash) != 0) {
        who->account = NULL;
    }
}

const struct account *account_now(const struct service *s, struct identity *who)
{
    const struct account_set *set = accounts_now(s);
    if (who->account == NULL && set == NULL && !has_requirepass(s)) {
        *who = (struct identity){&account_default, set};
    }
    if (who->account == &account_default) { /* without requirepass, it is there only while no client has to log in */
        return set == NULL || has_requirepass(s) ? who->account : NULL;
    }
    if (who->account != NULL && who->set != set) {
        look_up(who, set);
    }
    return who->account;
}

bool account_is_known(const struct service *s, struct slice name)
{
    return slice_eq(name, slice_str(account_default.name)) || account_set_find(accounts_now(s), name) != NULL;
}

int account_check(const struct account *account, unsigned roles, struct err *err)
{
    if ((roles & ROLE_ANYBODY) != 0) {
        return 0;
    }
    if (account == NULL) {
        return err_set(err, ERR_NOAUTH, "%s", "");
    }
    unsigned missing = roles & ROLE_ALL & ~account->roles;
    if (missing == 0 && roles != 0) {
        return 0;
    }
    const struct account_role_name *row = account_roles;
    while (row->name != NULL && (row->role & missing) == 0) {
        row++;
    }
    return err_set(err, ERR_NOPERM, "User %s has no permissions to do this: it needs the role %s", account->name,
                   row->name != NULL ? row->name : "of no account");
}

bool account_sees_users(const struct account *account)
{
    return account != NULL && (account->roles & (ROLE_ASK | ROLE_ADMIN)) != 0;
}

unsigned account_roles_for(const struct request *rq)
{
    static const unsigned roles[REQUEST_KINDS] = {
        [REQUEST_EXPOSURE] = ROLE_ASK,     [REQUEST_QUESTION] = ROLE_ASK,  [REQUEST_WHY] = ROLE_ASK,
        [REQUEST_HISTORY] = ROLE_ASK,      [REQUEST_PLAY] = ROLE_RECORD,   [REQUEST_DELIVERY] = ROLE_RECORD,
        [REQUEST_FORGET] = ROLE_FORGET,    [REQUEST_BLOCK] = ROLE_ASK,     [REQUEST_UNBLOCK] = ROLE_ASK,
        [REQUEST_POOL_SET] = ROLE_LOAD,    [REQUEST_POOL_ADD] = ROLE_LOAD, [REQUEST_POOL_DROP] = ROLE_LOAD,
        [REQUEST_POOL_RENAME] = ROLE_LOAD, [REQUEST_MERGE] = ROLE_RECORD,
    };
    return roles[rq->kind] | (rq->deliver ? (unsigned)ROLE_RECORD : 0) | (rq->forget ? (unsigned)ROLE_FORGET : 0);
}
