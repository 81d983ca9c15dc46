#include "registry/lock_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Where Kubernetes puts what a pod's service account has. */
#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

/* One line. */
static int read_line(const char *option, const char *path, char *out, size_t size, struct err *err)
{
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(out, 1, size - 1, f) : 0;
    int failed = f == NULL || ferror(f) ? errno : 0;
    if (f != NULL) {
        fclose(f);
    }
    out[n] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    if (failed != 0) {
        return err_set(err, ERR_SYSTEM, "%s: %s: %s", option, path, strerror(failed));
    }
    return out[0] != '\0' && n + 1 < size ? 0
                                          : err_set(err, ERR_SYSTEM, "%s: %s is %s, expected one line", option, path,
                                                    n == 0 ? "empty" : "too long");
}

static void copy(char out[CONFIG_TEXT], const char *text)
{
    snprintf(out, CONFIG_TEXT, "%s", text);
}

static void copy_unless_given(char out[CONFIG_TEXT], const char *text)
{
    if (out[0] == '\0') {
        copy(out, text);
    }
}

static int init_in_cluster(struct lock_place *p, struct err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (host == NULL || port == NULL || host[0] == '\0' || port[0] == '\0') {
        return err_set(err, ERR_INVALID,
                       "lock_kubernetes is in-cluster, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not "
                       "in the environment: expected a pod, or https://host:port");
    }
    bool v6 = strchr(host, ':') != NULL;
    snprintf(p->urls[0], sizeof p->urls[0], "https://%s%.200s%s:%.8s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    copy_unless_given(p->ca, ACCOUNT "ca.crt");
    copy_unless_given(p->token_file, ACCOUNT "token");
    return p->space[0] != '\0' ? 0 : read_line("lock_namespace", ACCOUNT "namespace", p->space, sizeof p->space, err);
}

static void init_urls(struct lock_place *p, const char *list)
{
    struct slice word;
    for (const char *at = list; p->n < LOCK_URLS_MAX && config_next_word(&at, &word); p->n++) {
        snprintf(p->urls[p->n], sizeof p->urls[p->n], "%.*s", (int)word.len, word.data);
    }
}

int lock_place_init(const struct config *cfg, struct lock_place *place, struct err *err)
{
    *place = (struct lock_place){.cfg = cfg, .group.name = cfg->lock_name};
    int rc = 0;
    copy(place->ca, cfg->lock_ca);
    copy(place->space, cfg->lock_namespace);
    if (cfg->lock_etcd[0] != '\0') {
        place->kind = &lock_etcd;
        init_urls(place, cfg->lock_etcd);
    } else if (cfg->lock_kubernetes[0] != '\0') {
        place->kind = &lock_kubernetes;
        copy(place->token_file, cfg->lock_token_file);
        if (strcmp(cfg->lock_kubernetes, CONFIG_IN_CLUSTER) == 0) {
            place->n = 1;
            rc = init_in_cluster(place, err);
        } else {
            init_urls(place, cfg->lock_kubernetes);
        }
    } else {
        place->kind = &lock_consul;
        place->group.name = cfg->registry_name;
        place->ca[0] = '\0';
        init_urls(place, cfg->registry_consul);
    }
    bool consul = place->kind == &lock_consul;
    copy_unless_given(place->ca, cfg->tls_ca);
    place->group.space = place->space;
    place->tls =
        (struct agent_tls){.ca = place->ca, .cert = consul ? "" : cfg->lock_cert, .key = consul ? "" : cfg->lock_key};
    return rc;
}

int lock_place_refresh(struct lock_place *place, struct err *err)
{
    place->group.wall_ms = clock_wall_ms();
    if (place->kind == &lock_consul) {
        snprintf(place->secret, sizeof place->secret, "%s", config_now(place->cfg)->registry_token);
    } else if (place->token_file[0] != '\0') {
        return read_line("lock_token_file", place->token_file, place->secret, sizeof place->secret, err);
    }
    return 0;
}

bool lock_place_needs_login(const struct lock_place *place)
{
    return place->kind->login != NULL && place->cfg->lock_user[0] != '\0' && !place->logged_in;
}

void lock_place_failed(struct lock_place *place)
{
    place->at = (place->at + 1) % place->n;
    if (place->kind->login != NULL) {
        place->logged_in = false;
        explicit_bzero(place->secret, sizeof place->secret);
    }
}
