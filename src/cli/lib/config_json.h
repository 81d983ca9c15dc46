/* The options of a configuration, with where each came from. */
#ifndef UNSEEN_CLI_LIB_CONFIG_JSON_H
#define UNSEEN_CLI_LIB_CONFIG_JSON_H

#include <stdbool.h>

#include "cli/lib/output.h"
#include "config/config.h"

bool config_is_changed(const struct config *cfg, const struct config *defaults, const struct config_option *option);

/* Where the value of an option came from: an enum config_origin, or a line of the file. */
const char *config_origin_name(int origin);

/* "options", as a member of the open object. Secrets are masked. */
void config_json(struct json *j, const struct config *cfg);

#endif
