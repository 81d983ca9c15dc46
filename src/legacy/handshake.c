#include "legacy/handshake.h"

#include <stdio.h>
#include <string.h>

#include "legacy/parse.h"
#include "legacy/redis_connection.h"
#include "legacy/redis_reply.h"

enum { GREET_AUTH, GREET_SELECT, GREET_ZREVRANGE, GREET_ZMSCORE, HANDSHAKES };
enum { NUMBER_TEXT = 24 };

void handshake_begin(struct handshake *g, const struct config *cfg, struct buf *out)
{
    const struct config *live = config_now(cfg);
    char number[NUMBER_TEXT], key[LEGACY_KEY_MAX];
    *g = (struct handshake){.cfg = cfg, .next = GREET_SELECT};
    if (live->legacy_password[0] != '\0') {
        g->next = GREET_AUTH;
        redis_connection_add_count(out, 2);
        redis_connection_add_word(out, slice_str("AUTH"));
        redis_connection_add_word(out, slice_str(live->legacy_password));
    }
    snprintf(number, sizeof number, "%d", (int)cfg->legacy_database);
    redis_connection_add_count(out, 2);
    redis_connection_add_word(out, slice_str("SELECT"));
    redis_connection_add_word(out, slice_str(number));
    if (cfg->legacy_delivered_key[0] != '\0') {
        redis_connection_add_count(out, 4);
        redis_connection_add_word(out, slice_str("ZREVRANGE"));
        redis_connection_add_word(out, legacy_key_make(cfg->legacy_delivered_key, slice_str("?"), key));
        redis_connection_add_word(out, slice_str("0"));
        redis_connection_add_word(out, slice_str("0"));
    }
    redis_connection_add_count(out, 3);
    redis_connection_add_word(out, slice_str("ZMSCORE"));
    redis_connection_add_word(out, legacy_key_make(cfg->legacy_played_key, slice_str("?"), key));
    redis_connection_add_word(out, slice_str("?"));
}

/* A password that is refused shows in the reply of AUTH, or of whatever needs one. */
enum handshake_verdict handshake_reply(struct handshake *g, const struct redisReply *reply, struct slice *why)
{
    bool bad = redis_is_error(reply, why);
    int which = g->next++;
    g->next += g->next == GREET_ZREVRANGE && g->cfg->legacy_delivered_key[0] == '\0';
    if (which == GREET_ZMSCORE && bad &&
        (memmem(why->data, why->len, "unknown command", 15) != NULL ||
         memmem(why->data, why->len, " to run ", 8) != NULL)) {
        g->no_zmscore = true;
    } else if (bad && (which < GREET_ZREVRANGE || !legacy_refuses_key(*why))) {
        return HANDSHAKE_REFUSED;
    }
    return g->next == HANDSHAKES ? HANDSHAKE_LET_IN : HANDSHAKE_MORE;
}
