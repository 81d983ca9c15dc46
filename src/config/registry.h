/* What concerns several options of [registry]. */
#ifndef UNSEEN_CONFIG_REGISTRY_H
#define UNSEEN_CONFIG_REGISTRY_H

#include "config/config.h"

/* ERR_INVALID: names the option, what it is and what was expected. */
int config_validate_registry(const struct config *cfg, struct err *err);

/* Whether it is http://host:port or https://host:port, with no path, name or password. */
bool config_is_agent(const char *url);

#endif
