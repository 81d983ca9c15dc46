/* What config.h promises of [kafka], for the other files of this folder: librdkafka's properties, which are kept as
 * lines "name=value" in config.kafka_properties.
 */
#ifndef UNSEEN_CONFIG_KAFKA_H
#define UNSEEN_CONFIG_KAFKA_H

#include "config/config.h"

#define CONFIG_KAFKA "kafka"
#define CONFIG_KAFKA_PREFIX CONFIG_KAFKA "_"
#define CONFIG_PROPERTIES_OPTION CONFIG_KAFKA_PREFIX "properties"

/* Names here may begin with "rdkafka."; an empty value takes a property away. Errors name option and reason, and leave
 * cfg as it was. */
int config_set_property(struct config *cfg, const char *name, const char *value, struct err *err);
int config_set_properties(struct config *cfg, const char *text, struct err *err); /* "name=value; name=value" */
void config_properties_text(const struct config *cfg, char *out, size_t out_size);
bool config_has_property(const struct config *cfg, const char *name);

bool config_is_property(const char *name); /* by how it begins */
bool config_is_secret_property(const char *name);

int config_validate_kafka(const struct config *cfg, struct err *err);

#endif
