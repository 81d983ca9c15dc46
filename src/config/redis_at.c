#include "config/redis_at.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/text.h"

enum { NAME_TEXT = 32, DATABASE_MAX = 65535 };

static const char tls[] = "tls://";

/* What a text begins with, and what it means. */
static const struct scheme {
    const char *name;
    enum redis_at_kind kind;
    bool tls;
    int port;
} schemes[] = {
    {"redis://", REDIS_AT_ANY, false, 6379},          {"rediss://", REDIS_AT_ANY, true, 6379},
    {"sentinel://", REDIS_AT_SENTINEL, false, 26379}, {"sentinels://", REDIS_AT_SENTINEL, true, 26379},
    {"cluster://", REDIS_AT_CLUSTER, false, 6379},    {"clusters://", REDIS_AT_CLUSTER, true, 6379},
};

struct reading {
    const struct redis_at_options *options;
    struct redis_at *out;
    char option[NAME_TEXT]; /* that is read */
    const char *text;
    bool one; /* it is no list */
};

static int refuse(const struct reading *r, const char *expected, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s is %s, expected %s", r->option, log_quote_str(r->text), expected);
}

static int refuse_form(const struct reading *r, struct err *err)
{
    return refuse(r,
                  r->out->kind == REDIS_AT_SENTINEL ? "host:port/name, or several addresses before the name"
                  : r->options->takes_clusters
                      ? "host:port, redis://host:port/database, sentinel://host:port/name, cluster://host:port, or "
                        "unix:/path"
                      : "host:port, redis://host:port/database, sentinel://host:port/name, or unix:/path",
                  err);
}

static bool has_tls(const char *address)
{
    return strncmp(address, tls, sizeof tls - 1) == 0;
}

/* Whether it names a port, which an IPv6 address has behind its bracket. */
static bool has_port(const char *node)
{
    const char *end = node[0] == '[' ? strchr(node, ']') : node;
    return end != NULL && strchr(end, ':') != NULL;
}

/* The nodes that a URL lists, as lists have them: with tls:// and port each. */
static int take_nodes(struct reading *r, const struct scheme *scheme, const char *list, struct err *err)
{
    char one[CONFIG_TEXT], port[NAME_TEXT] = "";
    size_t len = 0;
    for (const char *at = list; config_next_redis(&at, one);) {
        snprintf(port, sizeof port, ":%d", scheme->port);
        int n = snprintf(r->out->nodes + len, sizeof r->out->nodes - len, "%s%s%s%s", len > 0 ? "," : "",
                         scheme->tls ? tls : "", one, has_port(one) ? "" : port);
        if (n < 0 || (size_t)n >= sizeof r->out->nodes - len) {
            return refuse(r, "fewer nodes", err);
        }
        len += (size_t)n;
    }
    return 0;
}

/* Behind "scheme://": nodes[/master][/database]. */
static int read_url(struct reading *r, const struct scheme *scheme, struct err *err)
{
    char list[CONFIG_LIST];
    uint64_t database = 0;
    snprintf(list, sizeof list, "%s", r->text + strlen(scheme->name));
    char *rest = strchr(list, '/'), *master = NULL;
    if (rest != NULL) {
        *rest++ = '\0';
    }
    if (scheme->kind == REDIS_AT_SENTINEL) {
        master = rest;
        rest = master != NULL ? strchr(master, '/') : NULL;
        if (rest != NULL) {
            *rest++ = '\0';
        }
        if (master == NULL || master[0] == '\0' || strlen(master) >= sizeof r->out->master) {
            return refuse(r, "the name of the master behind the Sentinels: sentinel://host:port/name", err);
        }
        snprintf(r->out->master, sizeof r->out->master, "%s", master);
    }
    if (rest != NULL && rest[0] != '\0' && !count_read(rest, DATABASE_MAX, &database)) {
        return refuse(r, "the number of a database at its end, from 0 to 65535", err);
    }
    if (rest != NULL && rest[0] != '\0' && r->options->database != 0 && database != (uint64_t)r->options->database) {
        return err_set(err, ERR_INVALID, "%s is %s, and %s_database is %d: expected one database", r->option,
                       log_quote_str(r->text), r->options->section, (int)r->options->database);
    }
    r->out->database = database != 0 ? (int64_t)database : r->options->database;
    r->out->kind = scheme->kind;
    r->one = scheme->kind == REDIS_AT_ANY;
    if (r->options->sentinel[0] != '\0' || (r->options->takes_clusters && r->options->cluster != CLUSTER_AUTO)) {
        return err_set(err, ERR_INVALID, "%s is %s, which says it all: expected no %s_%s beside it", r->option,
                       log_quote_str(r->text), r->options->section,
                       r->options->sentinel[0] != '\0' ? "sentinel" : "cluster");
    }
    return take_nodes(r, scheme, list, err);
}

/* As before there were URLs: nodes, and with Sentinels "/name" behind the last. */
static int read_list(struct reading *r, struct err *err)
{
    const bool sentinel = r->text == r->options->sentinel;
    snprintf(r->out->nodes, sizeof r->out->nodes, "%s", r->text);
    r->out->database = r->options->database;
    r->out->kind = sentinel                             ? REDIS_AT_SENTINEL
                   : r->options->cluster == CLUSTER_YES ? REDIS_AT_CLUSTER
                   : r->options->cluster == CLUSTER_NO  ? REDIS_AT_SINGLE
                                                        : REDIS_AT_ANY;
    r->one = r->out->kind == REDIS_AT_SINGLE;
    if (!sentinel) {
        return 0;
    }
    char *name = strrchr(r->out->nodes, '/');
    if (name == NULL || name[1] == '\0' || name == r->out->nodes || name[-1] == '/' ||
        strlen(name + 1) >= sizeof r->out->master) {
        return refuse_form(r, err);
    }
    snprintf(r->out->master, sizeof r->out->master, "%s", name + 1);
    *name = '\0';
    return 0;
}

static bool is_path(const char *node)
{
    return node[0] == '/' || strncmp(node, "unix:", 5) == 0;
}

static bool is_node(const char *node)
{
    const char *path = strncmp(node, "unix:", 5) == 0 ? node + 5 : node;
    return is_path(node) ? path[0] == '/' && strlen(path) < sizeof((struct sockaddr_un){0}).sun_path
                         : config_is_node(node);
}

static int check_nodes(const struct reading *r, struct err *err)
{
    const struct redis_at *at = r->out;
    const char *next = at->nodes;
    char one[CONFIG_TEXT];
    bool good = true;
    int n = 0, n_tls = 0;
    for (; good && config_next_redis(&next, one); n++) {
        n_tls += has_tls(one);
        good = is_node(one) && (!is_path(one) || (n == 0 && at->kind < REDIS_AT_SENTINEL));
    }
    if (!good || n == 0) {
        return refuse_form(r, err);
    }
    if (n_tls != 0 && n_tls != n) {
        return refuse(r, "tls:// before all of its addresses or none", err);
    }
    if (n > 1 && r->one) {
        return refuse(r, "one address, since it is no cluster", err);
    }
    return n_tls != 0 ? config_validate_tls(r->option, r->text, err) : 0;
}

int redis_at_read(const struct redis_at_options *options, struct redis_at *out, struct err *err)
{
    struct reading r = {options, out, "", options->redis[0] != '\0' ? options->redis : options->sentinel, false};
    const struct scheme *scheme = NULL;
    *out = (struct redis_at){0};
    snprintf(r.option, sizeof r.option, "%s_%s", options->section, r.text == options->redis ? "redis" : "sentinel");
    if (r.text[0] == '\0') {
        return 0;
    }
    if (strchr(r.text, '@') != NULL && !is_path(r.text)) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID,
                       "%s has a name or a password in it, expected host:port; they go into %s_user and %s_password",
                       r.option, options->section, options->section);
    }
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (strncmp(r.text, schemes[i].name, strlen(schemes[i].name)) == 0) {
            scheme = &schemes[i];
        }
    }
    if (scheme != NULL && scheme->kind == REDIS_AT_CLUSTER && !options->takes_clusters) {
        return refuse(&r, "one Redis or Sentinels: a cluster can't be the front", err);
    }
    int rc = scheme != NULL ? read_url(&r, scheme, err) : 0;
    if (scheme == NULL && options->redis[0] != '\0' && options->sentinel[0] != '\0') {
        return err_set(err, ERR_INVALID, "%s_redis and %s_sentinel are both given, expected one", options->section,
                       options->section);
    }
    rc = rc == 0 && scheme == NULL ? read_list(&r, err) : rc;
    rc = rc == 0 ? check_nodes(&r, err) : rc;
    if (rc == 0 && out->kind == REDIS_AT_CLUSTER && out->database != 0) {
        rc = err_set(err, ERR_INVALID, "%s_database is %d, and a cluster has only 0", options->section,
                     (int)out->database);
    }
    if (rc == 0 && out->kind == REDIS_AT_SENTINEL && options->takes_clusters && options->cluster == CLUSTER_YES) {
        rc = err_set(err, ERR_INVALID, "%s_sentinel is given, and %s_cluster is yes: expected one", options->section,
                     options->section);
    }
    return rc;
}
