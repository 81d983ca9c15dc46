#include "config/lock.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "config/registry.h"

bool config_has_lock(const struct config *cfg)
{
    return cfg->lock_etcd[0] != '\0' || cfg->lock_kubernetes[0] != '\0' || cfg->registry_consul[0] != '\0';
}

/* As a path has it, and a name in Kubernetes: there no upper case, and no hyphen at either end. */
static bool is_name(const char *text, bool label)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool good = c == '-' ? !label || (i > 0 && i + 1 < n) : label ? islower(c) || isdigit(c) : isalnum(c);
        if (c > 127 || !good) {
            return false;
        }
    }
    return n > 0;
}

static int validate_etcd(const struct config *cfg, struct err *err)
{
    struct slice word;
    for (const char *at = cfg->lock_etcd; config_next_word(&at, &word);) {
        char url[CONFIG_TEXT];
        snprintf(url, sizeof url, "%.*s", (int)word.len, word.data);
        if (strchr(url, '@') != NULL) { /* what stands before it is not for a log */
            return err_set(err, ERR_INVALID,
                           "lock_etcd has a name or a password in it, expected http://host:port or https://host:port; "
                           "they go into lock_user and lock_password");
        }
        if (word.len >= sizeof url || !config_is_agent(url)) {
            return err_set(err, ERR_INVALID,
                           "lock_etcd has %s, expected http://host:port or https://host:port, split by commas",
                           log_quote_str(url));
        }
    }
    bool password = cfg->lock_password[0] != '\0' || cfg->lock_password_file[0] != '\0';
    if ((cfg->lock_user[0] != '\0') != password) {
        return err_set(err, ERR_INVALID, "lock_user and lock_password go together: %s is empty",
                       cfg->lock_user[0] == '\0' ? "lock_user" : "lock_password");
    }
    return 0;
}

static int validate_kubernetes(const struct config *cfg, struct err *err)
{
    bool inside = strcmp(cfg->lock_kubernetes, CONFIG_IN_CLUSTER) == 0;
    if (!inside && !config_is_agent(cfg->lock_kubernetes)) {
        return err_set(err, ERR_INVALID, "lock_kubernetes is %s, expected " CONFIG_IN_CLUSTER " or https://host:port",
                       log_quote_str(cfg->lock_kubernetes));
    }
    if (!inside && cfg->lock_namespace[0] == '\0') {
        return err_set(err, ERR_INVALID, "lock_kubernetes is %s and lock_namespace is empty, expected a namespace",
                       cfg->lock_kubernetes);
    }
    if (cfg->lock_namespace[0] != '\0' && !is_name(cfg->lock_namespace, true)) {
        return err_set(err, ERR_INVALID, "lock_namespace is %s, expected lower-case letters, digits and hyphens",
                       log_quote_str(cfg->lock_namespace));
    }
    if (!is_name(cfg->lock_name, true)) {
        return err_set(err, ERR_INVALID,
                       "lock_name is %s, expected lower-case letters, digits and hyphens, as Kubernetes takes them",
                       log_quote_str(cfg->lock_name));
    }
    return 0;
}

int config_validate_lock(const struct config *cfg, struct err *err)
{
    const bool etcd = cfg->lock_etcd[0] != '\0', kubernetes = cfg->lock_kubernetes[0] != '\0';
    if (!etcd && !kubernetes) {
        return 0;
    }
    if (etcd && kubernetes) {
        return err_set(err, ERR_INVALID, "lock_etcd and lock_kubernetes are both given, expected one of them");
    }
#ifndef WITH_CURL
    return err_set(err, ERR_INVALID, "%s is set, but this unseen was built without libcurl",
                   etcd ? "lock_etcd" : "lock_kubernetes");
#endif
    if (!is_name(cfg->lock_name, false)) {
        return err_set(err, ERR_INVALID, "lock_name is %s, expected letters, digits and hyphens",
                       log_quote_str(cfg->lock_name));
    }
    if ((cfg->lock_cert[0] != '\0') != (cfg->lock_key[0] != '\0')) {
        return err_set(err, ERR_INVALID, "lock_cert and lock_key go together: %s is empty",
                       cfg->lock_cert[0] == '\0' ? "lock_cert" : "lock_key");
    }
    return etcd ? validate_etcd(cfg, err) : validate_kubernetes(cfg, err);
}
