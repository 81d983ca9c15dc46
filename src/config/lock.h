/* What concerns several options of [lock]. */
#ifndef UNSEEN_CONFIG_LOCK_H
#define UNSEEN_CONFIG_LOCK_H

#include "config/config.h"

/* ERR_INVALID: names the option, what it is and what was expected. */
int config_validate_lock(const struct config *cfg, struct err *err);

/* Whether any server for the primary's lock is given. */
bool config_has_lock(const struct config *cfg);

#endif
