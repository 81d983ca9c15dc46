#include "legacy/handshake.h"

#include <stdio.h>
#include <string.h>

#include "legacy/cluster.h"
#include "legacy/parse.h"
#include "legacy/redis_reply.h"
#include "legacy/redis_words.h"

enum { GREET_AUTH, GREET_SELECT, GREET_ROLE, GREET_SLOTS, GREET_ZREVRANGE, GREET_ZMSCORE, HANDSHAKES };
enum { NUMBER_TEXT = 24 };

size_t handshake_auth(const struct config *live, bool sentinel, struct slice words[3])
{
    const char *user = sentinel ? live->legacy_sentinel_user : live->legacy_user;
    const char *password = sentinel ? live->legacy_sentinel_password : live->legacy_password;
    size_t n = 0;
    if (password[0] == '\0') {
        return 0;
    }
    words[n++] = slice_str("AUTH");
    if (user[0] != '\0') {
        words[n++] = slice_str(user);
    }
    words[n++] = slice_str(password);
    return n;
}

static bool asks(const struct handshake *g, int which)
{
    if (g->sentinel) {
        return which == GREET_SLOTS || (which == GREET_AUTH && g->password);
    }
    return which == GREET_AUTH        ? g->password
           : which == GREET_ROLE      ? g->cfg->legacy_at.kind == REDIS_AT_SENTINEL
           : which == GREET_SLOTS     ? g->slots
           : which == GREET_ZREVRANGE ? g->cfg->legacy_delivered_key[0] != '\0'
                                      : true;
}

static void move_on(struct handshake *g)
{
    while (g->next < HANDSHAKES && !asks(g, g->next)) {
        g->next++;
    }
}

static void add_command(const struct handshake *g, int which, struct buf *out)
{
    const struct config *live = config_now(g->cfg);
    char number[NUMBER_TEXT], key[LEGACY_KEY_MAX];
    struct slice words[4];
    size_t n = 0;
    switch (which) {
    case GREET_AUTH:
        n = handshake_auth(live, g->sentinel, words);
        break;
    case GREET_SELECT:
        snprintf(number, sizeof number, "%d", (int)g->cfg->legacy_at.database);
        words[n++] = slice_str("SELECT");
        words[n++] = slice_str(number);
        break;
    case GREET_ROLE:
        words[n++] = slice_str("ROLE");
        break;
    case GREET_SLOTS:
        n = cluster_words(g->cfg, words);
        break;
    case GREET_ZREVRANGE:
        words[n++] = slice_str("ZREVRANGE");
        words[n++] = legacy_key_make(g->cfg->legacy_delivered_key, slice_str("?"), key);
        words[n++] = slice_str("0");
        words[n++] = slice_str("0");
        break;
    default:
        words[n++] = slice_str("ZMSCORE");
        words[n++] = legacy_key_make(g->cfg->legacy_played_key, slice_str("?"), key);
        words[n++] = slice_str("?");
    }
    redis_words_all(out, words, n);
}

void handshake_begin(struct handshake *g, const struct config *cfg, bool slots, struct buf *out)
{
    const bool sentinel = cfg->legacy_at.kind == REDIS_AT_SENTINEL;
    struct slice words[3];
    *g = (struct handshake){.cfg = cfg,
                            .slots = slots && (sentinel || legacy_may_be_cluster(cfg)),
                            .sentinel = slots && sentinel,
                            .password = handshake_auth(config_now(cfg), slots && sentinel, words) > 0};
    for (move_on(g); g->next < HANDSHAKES; g->next++, move_on(g)) {
        add_command(g, g->next, out);
    }
    g->next = GREET_AUTH;
    move_on(g);
}

bool handshake_is_master(const struct redisReply *role)
{
    struct slice text;
    return redis_count(role) > 0 && redis_text(redis_item(role, 0), &text) && slice_eq(text, slice_str("master"));
}

/* A password that is refused shows in the reply of AUTH, or of whatever needs one. */
enum handshake_verdict handshake_reply(struct handshake *g, const struct redisReply *reply, struct slice *why)
{
    bool bad = redis_is_error(reply, why);
    int which = g->next++;
    move_on(g);
    if (g->sentinel) {
        return bad ? HANDSHAKE_REFUSED : which == GREET_AUTH ? HANDSHAKE_MORE : HANDSHAKE_MASTER;
    }
    if (which == GREET_SLOTS && (!bad || g->cfg->legacy_at.kind != REDIS_AT_CLUSTER)) {
        return HANDSHAKE_SLOTS;
    }
    if (which == GREET_ROLE && !bad && !handshake_is_master(reply)) {
        *why = slice_str(HANDSHAKE_NO_MASTER);
        return HANDSHAKE_REFUSED;
    }
    if (which == GREET_ZMSCORE && bad &&
        (memmem(why->data, why->len, "unknown command", 15) != NULL ||
         memmem(why->data, why->len, " to run ", 8) != NULL)) {
        g->no_zmscore = true;
    } else if (bad && (which < GREET_ZREVRANGE || !legacy_refuses_key(*why))) {
        return HANDSHAKE_REFUSED;
    }
    return g->next == HANDSHAKES ? HANDSHAKE_LET_IN : HANDSHAKE_MORE;
}
