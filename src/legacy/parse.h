/* Parses input from the old Redis: keys, scores, refusals. Pure. */
#ifndef UNSEEN_LEGACY_PARSE_H
#define UNSEEN_LEGACY_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "config/config.h"

enum { LEGACY_KEY_MAX = CONFIG_TEXT + 256, LEGACY_WHY = 160 };

/* Whether a key matches a pattern such as "played:{user}", and whose it is. The id may be empty or too long: see
 * legacy_user_good(). The pattern "" matches nothing. */
bool legacy_key_user(const char *form, struct slice key, struct slice *user);

bool legacy_user_good(struct slice user); /* 1..255 bytes */

/* Which of the two keys it is, and whose. If both patterns match, it belongs to the narrower one, whose keys all match
 * the other too ("delivered:u1" of "{user}" and "delivered:{user}"). If neither is narrower, as with "u:{user}" and
 * "{user}:d", it is ambiguous. */
enum legacy_key { LEGACY_KEY_NONE, LEGACY_KEY_PLAYED, LEGACY_KEY_DELIVERED, LEGACY_KEY_DOUBTFUL };
enum legacy_key legacy_key_read(const char *played, const char *delivered, struct slice key, struct slice *user);

/* The user's key, in out. */
struct slice legacy_key_make(const char *form, struct slice user, char out[LEGACY_KEY_MAX]);

/* The form as a pattern for SCAN ... MATCH. */
struct slice legacy_key_pattern(const char *form, char out[2 * LEGACY_KEY_MAX]);

/* The cursor of SCAN or ZSCAN, as text with its NUL: "0" at first, and again behind the last page. */
enum { LEGACY_CURSOR = 24 };

/* Takes over the cursor of a page. Returns NULL, or what is wrong with it: then cursor is unchanged. */
const char *legacy_cursor_take(char cursor[LEGACY_CURSOR], struct slice came);
bool legacy_cursor_ended(const char cursor[LEGACY_CURSOR]);

/* "host:port", "[::1]:6379": true, with both apart. Else the path of a socket, in host. */
enum { LEGACY_PORT_TEXT = 8 };
bool legacy_address(const char *address, char host[CONFIG_TEXT], char port[LEGACY_PORT_TEXT]);

/* Whether the Redis of legacy_redis may turn out to be a cluster: a Unix socket leads to a single one. */
bool legacy_may_be_cluster(const struct config *cfg);

/* The n-th of the addresses in legacy_redis or legacy_sentinel, which come again and again. */
void legacy_seed(const struct config *cfg, unsigned n, char out[CONFIG_TEXT]);
unsigned legacy_seeds(const struct config *cfg);

struct legacy_times {
    enum config_score unit;
    int64_t oldest_ms; /* earlier ones are old */
    int64_t newest_ms; /* later ones are no time */
};

/* Of the plays and of the deliveries that are taken over, by the configuration in force and the store's two times. */
void legacy_times_now(const struct config *live, int64_t later_ms, int64_t earlier_ms, struct legacy_times *plays,
                      struct legacy_times *deliveries);

enum legacy_time { LEGACY_TIME_GOOD, LEGACY_TIME_OLD, LEGACY_TIME_BAD };

/* Reads a score as Redis prints it. Parts of a millisecond are cut off. LEGACY_TIME_BAD: why says what is wrong. */
enum legacy_time legacy_time_parse(const struct legacy_times *times, struct slice score, int64_t *at_ms,
                                   char why[LEGACY_WHY]);

/* Whether an error reply is about the one key that was asked for, so that others may be asked for: WRONGTYPE, MOVED.
 * Any other (LOADING, READONLY, NOAUTH, a proxy's own ...) concerns all keys, and is temporary. */
bool legacy_refuses_key(struct slice error);

#endif
