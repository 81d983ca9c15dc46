/* What the files about accounts share. */
#ifndef UNSEEN_SERVICE_ACCOUNT_IMPL_H
#define UNSEEN_SERVICE_ACCOUNT_IMPL_H

#include "service/account.h"
#include "service/service.h"

extern const struct account account_default;

/* The set in force; NULL: no file. */
const struct account_set *accounts_now(const struct service *s);

#endif
