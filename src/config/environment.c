/* UNSEEN_SLOTS=4 in the environment stands for slots = 4: each option has a variable, its name in capitals. Other names
 * with this prefix are not ours alone: Kubernetes sets UNSEEN_SERVICE_HOST and UNSEEN_PORT beside a service called
 * unseen. So they are ignored, unless they look like a misspelt option, which must not pass in silence. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/config.h"

#define PREFIX "UNSEEN_"

enum { NAME_TEXT = 64 };

void config_variable(const struct config_option *option, char out[CONFIG_VARIABLE_TEXT])
{
    size_t n = (size_t)snprintf(out, CONFIG_VARIABLE_TEXT, PREFIX "%s", option->name);
    for (size_t i = 0; i < n; i++) {
        out[i] = (char)toupper((unsigned char)out[i]);
    }
}

/* Splits "UNSEEN_NAME=value"; false: it is no such variable. */
static bool split(const char *variable, char name[NAME_TEXT], const char **value)
{
    size_t prefix = strlen(PREFIX), len = strcspn(variable, "=");
    if (strncmp(variable, PREFIX, prefix) != 0 || variable[len] == '\0' || len - prefix >= NAME_TEXT) {
        return false;
    }
    memcpy(name, variable + prefix, len - prefix);
    name[len - prefix] = '\0';
    *value = variable + len + 1;
    return true;
}

static const struct config_option *find(const char *name)
{
    char variable[CONFIG_VARIABLE_TEXT];
    for (size_t i = 0; i < config_options_count; i++) {
        config_variable(&config_options[i], variable);
        if (strcmp(variable + strlen(PREFIX), name) == 0) {
            return &config_options[i];
        }
    }
    return NULL;
}

int config_environment(struct config *cfg, config_problem_fn *each, void *arg, struct err *err)
{
    struct config read = *cfg;
    struct err first = {0};
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        char name[NAME_TEXT];
        const char *value;
        struct err problem = {0};
        if (!split(*at, name, &value)) {
            continue;
        }
        const struct config_option *option = find(name);
        const char *nearest = option == NULL ? config_nearest(name) : NULL;
        if (option != NULL && config_set(&read, option->name, value, &problem) == 0) {
            read.origin[option - config_options] = ORIGIN_ENVIRONMENT;
        } else if (option != NULL) {
            err_prefix(&problem, "environment: " PREFIX "%s", name);
        } else if (nearest != NULL) {
            char meant[CONFIG_VARIABLE_TEXT];
            config_variable(config_find(nearest), meant);
            err_set(&problem, ERR_NOTFOUND, "environment: there is no option for %s%s; did you mean %s?", PREFIX, name,
                    meant);
        }
        if (problem.code < 0 && each != NULL) {
            each(arg, problem.text);
        }
        first = first.code == 0 ? problem : first;
    }
    if (first.code < 0) {
        return err_set(err, first.code, "%s", first.text);
    }
    *cfg = read;
    return 0;
}
