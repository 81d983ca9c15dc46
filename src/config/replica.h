/* What concerns several options of [replica]. */
#ifndef UNSEEN_CONFIG_REPLICA_H
#define UNSEEN_CONFIG_REPLICA_H

#include "config/config.h"

/* ERR_INVALID: names the option, what it is and what was expected. */
int config_validate_replica(const struct config *cfg, struct err *err);

#endif
