#include "replica/reach.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "net/peer.h"
#include "net/tls.h"

static const char tls[] = "tls://";

enum where { ELSEWHERE, HERE, NOWHERE };

static bool is_tls(const char *address)
{
    return strncmp(address, tls, sizeof tls - 1) == 0;
}

/* Of an address with a good form. No name server is asked: but for localhost, a name leads elsewhere. */
static enum where leads_to(const char *address)
{
    char host[NODE_ADDRESS_TEXT];
    const char *at = is_tls(address) ? address + sizeof tls - 1 : address, *colon = strrchr(at, ':');
    bool v6 = at[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - at) - 2 * v6, at + v6);
    if (config_is_wildcard(host)) {
        return NOWHERE;
    }
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    if (getaddrinfo(host, NULL, &hints, &list) != 0) {
        return strcmp(host, "localhost") == 0 ? HERE : ELSEWHERE;
    }
    enum where where = peer_is_local(list->ai_addr) ? HERE : ELSEWHERE;
    freeaddrinfo(list);
    return where;
}

static void add_own(struct reach *r, const char *address)
{
    enum where where = leads_to(address);
    if (where != NOWHERE && r->n < CONFIG_ADDRESSES_MAX) {
        struct reach_own *own = &r->own[r->n++];
        snprintf(own->text, sizeof own->text, "%s", address);
        own->local = where == HERE;
        own->tls = is_tls(address);
    }
}

/* Whether others can reach it by TLS only. */
static bool is_reached_by_tls(const struct reach *r)
{
    bool all_local = true, any = false;
    for (int i = 0; i < r->n; i++) {
        all_local = all_local && r->own[i].local;
    }
    for (int i = 0; i < r->n; i++) {
        if (all_local || !r->own[i].local) {
            any = true;
            if (!r->own[i].tls) {
                return false;
            }
        }
    }
    return any;
}

void reach_init(struct reach *r, const struct config *cfg, const char *listens, const char *follows)
{
    struct config_address a;
    *r = (struct reach){.cfg = cfg};
    snprintf(r->follows, sizeof r->follows, "%s", follows);
    if (cfg->replica_address[0] != '\0') {
        add_own(r, cfg->replica_address);
    } else {
        for (const char *at = listens; config_next_address(&at, &a) > 0;) {
            char text[NODE_ADDRESS_TEXT];
            bool v6 = strchr(a.host, ':') != NULL;
            snprintf(text, sizeof text, "%s%s%s%s:%d", a.tls ? tls : "", v6 ? "[" : "", a.host, v6 ? "]" : "", a.port);
            add_own(r, text);
        }
    }
    r->tls = cfg->replica_of[0] != '\0' ? is_tls(cfg->replica_of)
             : follows[0] != '\0'       ? is_tls(follows)
                                        : is_reached_by_tls(r);
}

/* The first that fits best. */
static const struct reach_own *choose(const struct reach *r, bool wants_tls, bool may_be_local)
{
    const struct reach_own *best = NULL;
    for (int i = 0; i < r->n; i++) {
        const struct reach_own *own = &r->own[i];
        if ((may_be_local || !own->local) && (best == NULL || (best->tls != wants_tls && own->tls == wants_tls))) {
            best = own;
        }
    }
    return best;
}

const char *reach_own(struct reach *r, const struct client *to)
{
    bool local = client_is_local(to);
    const struct reach_own *own = choose(r, client_has_tls(to), local);
    if (own == NULL && !atomic_exchange(&r->told, true)) {
        log_warn("other nodes and clients can't be told how to reach this node: set address in the section [replica]",
                 "listen=%s address=%s", log_quote_str(r->cfg->listen), log_quote_str(r->cfg->replica_address));
    }
    return own != NULL ? own->text : "";
}

const char *reach_shown(const struct reach *r)
{
    const struct reach_own *own = choose(r, r->tls, false);
    own = own != NULL ? own : choose(r, r->tls, true);
    return own != NULL ? own->text : "";
}

int reach_take(struct slice text, bool local, char out[NODE_ADDRESS_TEXT], struct err *err)
{
    out[0] = '\0';
    if (text.len == 0) {
        return 0;
    }
    bool fits = text.len < NODE_ADDRESS_TEXT && memchr(text.data, '\0', text.len) == NULL;
    if (fits) {
        memcpy(out, text.data, text.len);
        out[text.len] = '\0';
    }
    if (!fits || !config_is_node(out)) {
        out[0] = '\0';
        return err_set(err, ERR_INVALID, "an address is host:port or tls://host:port, of at most %d bytes, got %s",
                       NODE_ADDRESS_TEXT - 1, log_quote(slice_of(text.data, text.len < 64 ? text.len : 64)));
    }
    enum where where = leads_to(out);
    if (where == NOWHERE || (where == HERE && !local)) {
        out[0] = '\0';
    }
    return 0;
}

int reach_take_shown(const struct reach *r, const char *text, char out[NODE_ADDRESS_TEXT], struct err *err)
{
    return reach_take(slice_str(text), choose(r, r->tls, false) == NULL, out, err);
}

void reach_secure(const struct reach *r, const char *address, char out[NODE_ADDRESS_TEXT])
{
    char text[NODE_ADDRESS_TEXT];
    bool add = r->tls && address[0] != '\0' && !is_tls(address) && strncmp(address, "unix:", 5) != 0;
    snprintf(text, sizeof text, "%s%s", add ? tls : "", address);
    memcpy(out, text, sizeof text);
}

/* An old primary that comes back had no need of an account until then. */
bool reach_is_named(const struct reach *r, const char *secured)
{
    char of[NODE_ADDRESS_TEXT], follows[NODE_ADDRESS_TEXT];
    reach_secure(r, r->cfg->replica_of, of);
    reach_secure(r, r->follows, follows);
    bool named = strcmp(secured, of) == 0 || strcmp(secured, follows) == 0;
    for (int i = 0; i < r->n_named; i++) {
        named = named || strcmp(secured, r->named[i]) == 0;
    }
    return named;
}

void reach_name(struct reach *r, const char *secured)
{
    if (r->n_named < REACH_NAMED_MAX) {
        snprintf(r->named[r->n_named++], NODE_ADDRESS_TEXT, "%s", secured);
    }
}

int reach_connect(const struct reach *r, const char *address, int patience_ms, size_t reply_max, struct client **client,
                  struct err *err)
{
    const struct config *live = config_now(r->cfg);
    char secured[NODE_ADDRESS_TEXT];
    reach_secure(r, address, secured);
    bool own = live->replica_user[0] == '\0' && live->replica_password[0] == '\0' && reach_is_named(r, secured);
    const struct client_how how = {live->replica_user,
                                   own ? live->requirepass : live->replica_password,
                                   tls_files_to_connect(live),
                                   own ? "requirepass, or replica_password of replica_user"
                                       : "replica_password, of replica_user",
                                   patience_ms,
                                   reply_max};
    return client_connect_as(secured, &how, client, err);
}
