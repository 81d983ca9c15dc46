#include "config/registry.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "base/log.h"
#include "base/slice.h"

bool config_is_agent(const char *url)
{
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
    const char *colon = host != NULL ? strrchr(host, ':') : NULL;
    if (colon == NULL || colon == host || strcspn(host, "/?#@ \t\"\\") != strlen(host)) {
        return false;
    }
    size_t len = (size_t)(colon - host);
    bool one_host = host[0] == '[' ? host[len - 1] == ']' && len > 2 : memchr(host, ':', len) == NULL;
    return one_host && config_is_port(colon + 1);
}

static bool is_plain(const char *text, const char *also)
{
    for (; *text != '\0'; text++) {
        if (!isalnum((unsigned char)*text) && strchr(also, *text) == NULL) {
            return false;
        }
    }
    return true;
}

static bool is_host(const char *text)
{
    struct in6_addr v6;
    return is_plain(text, ".-") || inet_pton(AF_INET6, text, &v6) == 1;
}

/* A consumer can't connect to "all addresses". */
static int validate_host(const char *option, const char *addresses, struct err *err)
{
    struct config_address a;
    for (const char *at = addresses; config_next_address(&at, &a) > 0;) {
        if (config_is_wildcard(a.host)) {
            return err_set(err, ERR_INVALID,
                           "%s is %s, and clients can't be told to connect to all addresses: set address in the "
                           "section [registry] to the host that reaches this server",
                           option, addresses);
        }
    }
    return 0;
}

int config_validate_registry(const struct config *cfg, struct err *err)
{
    if (cfg->registry_consul[0] == '\0') {
        return 0;
    }
    if (strchr(cfg->registry_consul, '@') != NULL) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID,
                       "registry_consul has a name or a password in it, expected http://host:port or "
                       "https://host:port; a token goes into registry_token");
    }
    if (!config_is_agent(cfg->registry_consul)) {
        return err_set(err, ERR_INVALID, "registry_consul is %s, expected http://host:port or https://host:port",
                       log_quote_str(cfg->registry_consul));
    }
#ifndef WITH_CURL
    return err_set(err, ERR_INVALID, "registry_consul is set, but this unseen was built without libcurl");
#endif
    if (!is_plain(cfg->registry_name, "-")) {
        return err_set(err, ERR_INVALID, "registry_name is %s, expected letters, digits and hyphens",
                       log_quote_str(cfg->registry_name));
    }
    if (!is_host(cfg->registry_address)) {
        return err_set(err, ERR_INVALID, "registry_address is %s, expected a host without a port",
                       log_quote_str(cfg->registry_address));
    }
    if (cfg->registry_check == REGISTRY_CHECK_GRPC && strcmp(cfg->grpc, "none") == 0) {
        return err_set(err, ERR_INVALID, "registry_check is grpc, but grpc is none; set grpc, or check to ttl");
    }
    if (strcmp(cfg->listen, "none") == 0 && strcmp(cfg->http, "none") == 0 && strcmp(cfg->grpc, "none") == 0) {
        return err_set(err, ERR_INVALID,
                       "registry_consul is set, and there is no address to register: listen, http and grpc are none");
    }
    if (!slice_is_utf8(slice_str(cfg->registry_tags))) {
        return err_set(err, ERR_INVALID, "registry_tags is %s, expected UTF-8", log_quote_str(cfg->registry_tags));
    }
    if (cfg->registry_address[0] != '\0') {
        return 0;
    }
    int code = validate_host("listen", cfg->listen, err);
    code = code < 0 ? code : validate_host("http", cfg->http, err);
    return code < 0 ? code : validate_host("grpc", cfg->grpc, err);
}
