#include "registry/consul.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/slice.h"

static const char *const edge_names[] = {"resp", "http", "grpc", "dubbo"};

static bool has_scheme(const char *address, const char *scheme)
{
    size_t len = strlen(scheme);
    return strncmp(address, scheme, len) == 0 && strncmp(address + len, "://", 3) == 0;
}

void consul_name(const struct config *cfg, struct consul_service *s, enum consul_edge edge)
{
    s->edge = edge;
    snprintf(s->id, sizeof s->id, "%s-%s-%s-%d", cfg->registry_name, edge_names[edge], s->host, s->port);
}

bool consul_service_at(const struct config *cfg, const char *address, struct consul_service *out)
{
    static const struct {
        const char *scheme;
        enum consul_edge edge;
        bool tls;
    } schemes[] = {{"tls", CONSUL_RESP, true},
                   {"http", CONSUL_HTTP, false},
                   {"https", CONSUL_HTTP, true},
                   {"grpc", CONSUL_GRPC, false},
                   {"grpcs", CONSUL_GRPC, true}};
    *out = (struct consul_service){.edge = CONSUL_RESP};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (has_scheme(address, schemes[i].scheme)) {
            out->edge = schemes[i].edge;
            out->tls = schemes[i].tls;
            address += strlen(schemes[i].scheme) + 3;
            break;
        }
    }
    const char *colon = strrchr(address, ':');
    if (colon == NULL || strncmp(address, "unix:", 5) == 0) {
        return false;
    }
    bool v6 = address[0] == '[';
    snprintf(out->host, sizeof out->host, "%.*s", (int)(colon - address) - 2 * v6, address + v6);
    if (cfg->registry_address[0] != '\0') {
        snprintf(out->host, sizeof out->host, "%s", cfg->registry_address);
    }
    out->port = atoi(colon + 1);
    consul_name(cfg, out, out->edge);
    return true;
}

static void host_port(const struct consul_service *s, char *out, size_t size)
{
    snprintf(out, size, strchr(s->host, ':') != NULL ? "[%s]:%d" : "%s:%d", s->host, s->port);
}

/* Dubbo's tag is what its consumers ask for. */
static json_t *tags_of(const struct config *cfg, const struct consul_service *s, const char *role)
{
    json_t *tags = json_array();
    struct slice word;
    for (const char *at = cfg->registry_tags; tags != NULL && config_next_word(&at, &word);) {
        json_array_append_new(tags, json_stringn(word.data, word.len));
    }
    if (tags != NULL) {
        json_array_append_new(tags, json_string(role)); /* so that the name service tells them apart */
    }
    if (tags != NULL && s->edge == CONSUL_DUBBO_TRIPLE) {
        json_array_append_new(tags, json_string("dubbo"));
    }
    return tags;
}

/* Dubbo's consumers take all that they need from the URL. */
static json_t *meta_of(const struct consul_service *s, uint32_t seed_fingerprint, const char *role)
{
    char seed[16], address[CONSUL_HOST + 16], url[CONSUL_HOST + 256];
    snprintf(seed, sizeof seed, "%08" PRIx32, seed_fingerprint);
    json_t *meta = json_pack("{s:s, s:s, s:s, s:s, s:s}", "version", UNSEEN_VERSION, "seed", seed, "role", role,
                             "protocol", edge_names[s->edge], "tls", s->tls ? "yes" : "no");
    if (meta != NULL && s->edge == CONSUL_DUBBO_TRIPLE) {
        host_port(s, address, sizeof address);
        snprintf(url, sizeof url,
                 "tri://%s/" CONSUL_DUBBO "?application=unseen&category=providers&dubbo=2.0.2&interface=" CONSUL_DUBBO
                 "&side=provider%s",
                 address, s->tls ? "&ssl-enabled=true" : "");
        json_object_set_new(meta, "url", json_string(url));
    }
    return meta;
}

static json_t *check_of(const struct consul_service *s, const struct consul_service *grpc)
{
    char id[CONSUL_ID + 16], ttl[16], gone[16], address[CONSUL_HOST + 16];
    snprintf(id, sizeof id, "service:%s", s->id);
    snprintf(gone, sizeof gone, "%dm", CONSUL_GONE_MIN);
    if (grpc == NULL) {
        snprintf(ttl, sizeof ttl, "%ds", CONSUL_TTL_S);
        return json_pack("{s:s, s:s, s:s, s:s}", "CheckID", id, "Name", "recovered, and works", "TTL", ttl,
                         "DeregisterCriticalServiceAfter", gone);
    }
    host_port(grpc, address, sizeof address);
    return json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "CheckID", id, "Name", "gRPC's health", "GRPC", address,
                     "GRPCUseTLS", grpc->tls, "Interval", "5s", "Timeout", "2s", "DeregisterCriticalServiceAfter",
                     gone);
}

static char *text_of(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

char *consul_registration(const struct config *cfg, const struct consul_service *s, const struct consul_service *grpc,
                          uint32_t seed_fingerprint, const char *role)
{
    static const char *const endings[] = {"", "-http", "-grpc"};
    char name[CONFIG_TEXT + 8];
    if (s->edge == CONSUL_DUBBO_TRIPLE) {
        snprintf(name, sizeof name, "%s", CONSUL_DUBBO);
    } else {
        snprintf(name, sizeof name, "%s%s", cfg->registry_name, endings[s->edge]);
    }
    return text_of(json_pack("{s:s, s:s, s:o, s:s, s:i, s:o, s:o}", "ID", s->id, "Name", name, "Tags",
                             tags_of(cfg, s, role), "Address", s->host, "Port", s->port, "Meta",
                             meta_of(s, seed_fingerprint, role), "Check", check_of(s, grpc)));
}

char *consul_check_update(bool well, const char *cause)
{
    /* A cause may name a folder of any bytes, and may have been cut within a character. JSON takes UTF-8 alone. */
    char *output = strdup(well ? "ready" : cause);
    if (output == NULL) {
        return NULL;
    }
    utf8_clean(output);
    char *update = text_of(json_pack("{s:s, s:s}", "Status", well ? "passing" : "critical", "Output", output));
    free(output);
    return update;
}
