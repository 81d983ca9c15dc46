/* What concerns several options of [archive]. */
#ifndef UNSEEN_CONFIG_ARCHIVE_H
#define UNSEEN_CONFIG_ARCHIVE_H

#include "config/config.h"

/* ERR_INVALID: names the option, what it is and what was expected. */
int config_validate_archive(const struct config *cfg, struct err *err);

#endif
