#include "cli/lib/config_json.h"

#include <string.h>

bool config_is_changed(const struct config *cfg, const struct config *defaults, const struct config_option *option)
{
    char a[CONFIG_VALUE_TEXT], b[CONFIG_VALUE_TEXT];
    config_text(cfg, option, a, sizeof a);
    config_text(defaults, option, b, sizeof b);
    return strcmp(a, b) != 0;
}

const char *config_origin_name(int origin)
{
    return origin > 0                      ? "file"
           : origin == ORIGIN_ENVIRONMENT  ? "environment"
           : origin == ORIGIN_COMMAND_LINE ? "command line"
                                           : "default";
}

void config_json(struct json *j, const struct config *cfg)
{
    char value[CONFIG_VALUE_TEXT];
    struct config defaults;
    config_defaults(&defaults);
    json_open(j, "options", '{');
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        json_open(j, option->name, '{');
        config_text(cfg, option, value, sizeof value);
        json_text(j, "value", value);
        json_bool(j, "changed", config_is_changed(cfg, &defaults, option));
        json_text(j, "from", config_origin_name(cfg->origin[i]));
        if (cfg->origin[i] > 0) {
            json_number(j, "line", cfg->origin[i]);
        }
        json_close(j, '}');
    }
    json_close(j, '}');
}
