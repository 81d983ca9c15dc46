/* What concerns several options of [front]. */
#ifndef UNSEEN_CONFIG_FRONT_H
#define UNSEEN_CONFIG_FRONT_H

#include "config/config.h"

/* ERR_INVALID: names the option, what it is and what was expected. */
int config_validate_front(const struct config *cfg, struct err *err);

#endif
