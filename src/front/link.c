#include "front/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/layout.h"
#include "net/client.h"
#include "net/tls.h"

enum { SHA = 40, NUMBER_TEXT = 24, VERSION_LEAST = 6 };

struct front_link {
    struct client *client;
    char address[CONFIG_TEXT];
    char sha[FRONT_SCRIPTS][SHA + 1]; /* "": not loaded over this connection */
    struct buf words;
};

static bool begins_with(struct slice text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && memcmp(text.data, word, len) == 0;
}

void front_link_close(struct front_link *l)
{
    if (l != NULL) {
        client_close(l->client);
        buf_free(&l->words);
        free(l);
    }
}

const char *front_link_address(const struct front_link *l)
{
    return l->address;
}

void front_link_be_patient(struct front_link *l, int ms)
{
    client_be_patient(l->client, ms);
}

int front_link_call(struct front_link *l, const struct slice *words, size_t n, const struct reply **reply,
                    struct err *err)
{
    return client_call(l->client, words, n, reply, err);
}

/* --- connecting --- */

static int dial(const struct config *cfg, const char *address, bool sentinel, int patience_ms, struct client **client,
                struct err *err)
{
    const struct config *live = config_now(cfg);
    const struct client_how how = {sentinel ? live->front_sentinel_user : live->front_user,
                                   sentinel ? live->front_sentinel_password : live->front_password,
                                   tls_files_to_connect(live),
                                   sentinel ? "front_sentinel_password, of front_sentinel_user"
                                            : "front_password, of front_user",
                                   patience_ms,
                                   FRONT_REPLY_MAX};
    return client_connect_as(address, &how, client, err);
}

/* What one Sentinel says of the master's address. */
static int ask_sentinel(const struct config *cfg, const char *sentinel, const char *name, int patience_ms,
                        char out[CONFIG_TEXT], struct err *err)
{
    const struct slice words[] = {slice_str("SENTINEL"), slice_str("get-master-addr-by-name"), slice_str(name)};
    const struct reply *reply;
    struct client *client = NULL;
    int rc = dial(cfg, sentinel, true, patience_ms, &client, err);
    if (rc < 0) {
        return rc;
    }
    rc = client_call(client, words, sizeof words / sizeof *words, &reply, err);
    if (rc == 0 && (reply->kind != REPLY_ARRAY || reply->n != 2)) {
        rc = err_set(err, ERR_INVALID, "the Sentinel %s knows no master \"%s\"", sentinel, name);
    }
    if (rc == 0) {
        const struct slice host = reply->items[0].text, port = reply->items[1].text;
        const bool v6 = memchr(host.data, ':', host.len) != NULL;
        int len = snprintf(out, CONFIG_TEXT, "%s%s%.*s%s:%.*s", strncmp(sentinel, "tls://", 6) == 0 ? "tls://" : "",
                           v6 ? "[" : "", (int)host.len, host.data, v6 ? "]" : "", (int)port.len, port.data);
        rc = len < CONFIG_TEXT && config_is_node(out)
                 ? 0
                 : err_set(err, ERR_INVALID, "the Sentinel %s names no address", sentinel);
    }
    client_close(client);
    return rc;
}

/* The first that answers knows; the last one's error counts. */
static int find_master(const struct config *cfg, int patience_ms, char out[CONFIG_TEXT], struct err *err)
{
    char one[CONFIG_TEXT];
    int rc = ERR_SYSTEM;
    for (const char *at = cfg->front_at.nodes; rc < 0 && config_next_redis(&at, one);) {
        rc = ask_sentinel(cfg, one, cfg->front_at.master, patience_ms, out, err);
    }
    return rc;
}

/* The value of a line "name:value" of INFO. */
static bool info_field(struct slice info, const char *name, char *out, size_t size)
{
    const size_t len = strlen(name);
    const char *at = info.data, *end = info.data + info.len;
    while (at < end) {
        const char *stop = memchr(at, '\r', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        if ((size_t)(stop - at) > len && memcmp(at, name, len) == 0 && at[len] == ':') {
            snprintf(out, size, "%.*s", (int)(stop - at - (ptrdiff_t)len - 1), at + len + 1);
            return true;
        }
        at = stop + 2;
    }
    return false;
}

static int ask_info(struct front_link *l, const char *section, struct slice *info, struct err *err)
{
    const struct slice words[] = {slice_str("INFO"), slice_str(section)};
    const struct reply *reply;
    int rc = client_call(l->client, words, 2, &reply, err);
    if (rc == 0 && reply->kind != REPLY_TEXT) {
        rc = err_set(err, ERR_INVALID, "%s: INFO answers something else", l->address);
    }
    *info = rc == 0 ? reply->text : slice_str("");
    return rc;
}

int front_link_check(struct front_link *l, uint64_t *evicted, struct err *err)
{
    struct slice info;
    char policy[64], number[NUMBER_TEXT];
    int rc = ask_info(l, "memory", &info, err);
    if (rc == 0 && !info_field(info, "maxmemory_policy", policy, sizeof policy)) {
        rc = err_set(err, ERR_INVALID, "%s: INFO says no maxmemory_policy", l->address);
    }
    if (rc == 0 && strcmp(policy, "noeviction") != 0) {
        rc = err_set(err, ERR_INVALID,
                     "%s: its maxmemory-policy is %s, so it may drop what it holds: noeviction is needed", l->address,
                     policy);
    }
    if (rc == 0) {
        rc = ask_info(l, "stats", &info, err);
    }
    if (rc == 0) {
        *evicted = info_field(info, "evicted_keys", number, sizeof number) ? strtoull(number, NULL, 10) : 0;
    }
    return rc;
}

static int check_version(struct front_link *l, struct err *err)
{
    struct slice info;
    char version[64];
    int rc = ask_info(l, "server", &info, err);
    if (rc == 0 && (!info_field(info, "redis_version", version, sizeof version) || atoi(version) < VERSION_LEAST)) {
        rc = err_set(err, ERR_INVALID, "%s: it is no Redis of version %d.0 or later", l->address, VERSION_LEAST);
    }
    return rc;
}

/* What a Sentinel names may have just become a replica. */
static int check_role(struct front_link *l, struct err *err)
{
    const struct slice word = slice_str("ROLE");
    const struct reply *reply;
    int rc = client_call(l->client, &word, 1, &reply, err);
    if (rc == 0 && (reply->kind != REPLY_ARRAY || reply->n == 0 || reply->items[0].kind != REPLY_TEXT ||
                    !slice_eq(reply->items[0].text, slice_str("master")))) {
        rc = err_set(err, ERR_SYSTEM, "%s: a Sentinel says that it is the master, and ROLE there says that it is none",
                     l->address);
    }
    return rc;
}

static int greet(struct front_link *l, const struct config *cfg, struct err *err)
{
    char number[NUMBER_TEXT];
    const struct reply *reply;
    int rc = 0;
    if (cfg->front_at.database != 0) {
        snprintf(number, sizeof number, "%" PRId64, cfg->front_at.database);
        const struct slice words[] = {slice_str("SELECT"), slice_str(number)};
        rc = client_call(l->client, words, 2, &reply, err);
    }
    if (rc == 0) {
        rc = check_version(l, err);
    }
    if (rc == 0 && cfg->front_at.kind == REDIS_AT_SENTINEL) {
        rc = check_role(l, err);
    }
    return rc;
}

int front_link_open(const struct config *cfg, int patience_ms, struct front_link **link, struct err *err)
{
    struct front_link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the front");
    }
    int rc = 0;
    if (cfg->front_at.kind == REDIS_AT_SENTINEL) {
        rc = find_master(cfg, patience_ms, l->address, err);
    } else {
        const char *at = cfg->front_at.nodes;
        config_next_redis(&at, l->address);
    }
    if (rc == 0 && (rc = dial(cfg, l->address, false, patience_ms, &l->client, err)) == 0) {
        rc = greet(l, cfg, err);
    }
    if (rc < 0) {
        front_link_close(l);
        return rc;
    }
    *link = l;
    return 0;
}

/* --- scripts --- */

static int load(struct front_link *l, enum front_script script, struct err *err)
{
    const struct slice words[] = {slice_str("SCRIPT"), slice_str("LOAD"), slice_str(front_script_text(script))};
    const struct reply *reply;
    int rc = client_call(l->client, words, sizeof words / sizeof *words, &reply, err);
    if (rc == 0 && (reply->kind != REPLY_TEXT || reply->text.len != SHA)) {
        rc = err_set(err, ERR_INVALID, "%s: SCRIPT LOAD answers something else", l->address);
    }
    if (rc == 0) {
        memcpy(l->sha[script], reply->text.data, SHA);
    }
    return rc;
}

int front_link_run(struct front_link *l, enum front_script script, const struct slice *words, size_t n,
                   const struct reply **reply, struct err *err)
{
    for (int tries = 0;; tries++) {
        int rc = l->sha[script][0] == '\0' ? load(l, script, err) : 0;
        if (rc < 0) {
            return rc;
        }
        const struct slice first[] = {slice_str("EVALSHA"), slice_of(l->sha[script], SHA)};
        buf_clear(&l->words);
        buf_add(&l->words, first, sizeof first);
        if (buf_add(&l->words, words, n * sizeof *words) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for the front");
        }
        rc = client_queue(l->client, (const struct slice *)l->words.data, n + 2, err);
        rc = rc < 0 ? rc : client_read(l->client, reply, err);
        if (rc < 0 || (*reply)->kind != REPLY_ERROR) {
            return rc;
        }
        struct slice text = (*reply)->text;
        if (begins_with(text, "NOSCRIPT") && tries == 0) { /* SCRIPT FLUSH */
            l->sha[script][0] = '\0';
            continue;
        }
        return err_set(err, begins_with(text, "LOADING") ? ERR_LOADING : ERR_INVALID, "%s: %.*s", l->address,
                       (int)(text.len < 200 ? text.len : 200), text.data);
    }
}
