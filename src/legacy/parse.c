#include "legacy/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/calendar.h"
#include "base/unix_time.h"
#include "net/stream.h"

enum { SCORE_TEXT = 64, WHOLE_DIGITS = 15, DAY_MS = 24 * 3600 * 1000 };

/* No play was recorded before the year 2000: a smaller number is a counter, or seconds taken for milliseconds. */
#define TIME_MIN_MS 946684800000.0

bool legacy_key_user(const char *form, struct slice key, struct slice *user)
{
    const char *place = strstr(form, CONFIG_USER);
    if (place == NULL) {
        return false;
    }
    size_t before = (size_t)(place - form);
    const char *rest = place + strlen(CONFIG_USER);
    size_t after = strlen(rest);
    if (key.len < before + after || memcmp(key.data, form, before) != 0 ||
        memcmp(key.data + key.len - after, rest, after) != 0) {
        return false;
    }
    *user = slice_of(key.data + before, key.len - before - after);
    return true;
}

bool legacy_user_good(struct slice user)
{
    return user.len >= 1 && user.len <= 255;
}

/* Of two forms that fit one key. */
static bool narrower(const char *form, const char *other)
{
    size_t before = (size_t)(strstr(form, CONFIG_USER) - form), after = strlen(form) - before;
    size_t other_before = (size_t)(strstr(other, CONFIG_USER) - other), other_after = strlen(other) - other_before;
    return before >= other_before && after >= other_after;
}

enum legacy_key legacy_key_read(const char *played, const char *delivered, struct slice key, struct slice *user)
{
    struct slice player, receiver;
    bool plays = legacy_key_user(played, key, &player), deliveries = legacy_key_user(delivered, key, &receiver);
    if (plays && deliveries) {
        plays = narrower(played, delivered);
        deliveries = narrower(delivered, played);
        if (!plays && !deliveries) {
            return LEGACY_KEY_DOUBTFUL;
        }
    }
    if (plays || deliveries) {
        *user = plays ? player : receiver;
    }
    return plays ? LEGACY_KEY_PLAYED : deliveries ? LEGACY_KEY_DELIVERED : LEGACY_KEY_NONE;
}

struct slice legacy_key_make(const char *form, struct slice user, char out[LEGACY_KEY_MAX])
{
    const char *place = strstr(form, CONFIG_USER);
    size_t before = (size_t)(place - form);
    const char *rest = place + strlen(CONFIG_USER);
    size_t after = strlen(rest);
    memcpy(out, form, before);
    memcpy(out + before, user.data, user.len);
    memcpy(out + before + user.len, rest, after);
    return slice_of(out, before + user.len + after);
}

struct slice legacy_key_pattern(const char *form, char out[2 * LEGACY_KEY_MAX])
{
    const char *place = strstr(form, CONFIG_USER);
    size_t n = 0;
    for (const char *at = form; *at != '\0';) {
        if (at == place) {
            out[n++] = '*';
            at += strlen(CONFIG_USER);
            continue;
        }
        if (strchr("*?[]\\^-", *at) != NULL) {
            out[n++] = '\\';
        }
        out[n++] = *at++;
    }
    return slice_of(out, n);
}

const char *legacy_cursor_take(char cursor[LEGACY_CURSOR], struct slice came)
{
    bool digits = came.len > 0 && came.len < LEGACY_CURSOR;
    for (size_t i = 0; digits && i < came.len; i++) {
        digits = came.data[i] >= '0' && came.data[i] <= '9';
    }
    if (!digits) {
        return "the page of a scan came with a cursor that is no number";
    }
    if (!legacy_cursor_ended(cursor) && slice_eq(slice_str(cursor), came)) {
        return "the scan does not move on: a page came with the cursor that it was asked with";
    }
    memcpy(cursor, came.data, came.len);
    cursor[came.len] = '\0';
    return NULL;
}

bool legacy_cursor_ended(const char cursor[LEGACY_CURSOR])
{
    return strcmp(cursor, "0") == 0;
}

bool legacy_address(const char *address, char host[CONFIG_TEXT], char port[LEGACY_PORT_TEXT])
{
    stream_is_tls(&address);
    const char *colon = strrchr(address, ':');
    bool named = strncmp(address, "unix:", 5) == 0;
    if (named || address[0] == '/' || colon == NULL) {
        snprintf(host, CONFIG_TEXT, "%s", address + (named ? 5 : 0));
        return false;
    }
    int len = (int)(colon - address);
    bool v6 = len > 1 && address[0] == '[' && address[len - 1] == ']';
    snprintf(host, CONFIG_TEXT, "%.*s", v6 ? len - 2 : len, v6 ? address + 1 : address);
    snprintf(port, LEGACY_PORT_TEXT, "%d", atoi(colon + 1));
    return true;
}

bool legacy_may_be_cluster(const struct config *cfg)
{
    const char *address = cfg->legacy_at.nodes;
    return cfg->legacy_at.kind == REDIS_AT_CLUSTER ||
           (cfg->legacy_at.kind == REDIS_AT_ANY && address[0] != '/' && strncmp(address, "unix:", 5) != 0);
}

unsigned legacy_seeds(const struct config *cfg)
{
    char ignored[CONFIG_TEXT];
    unsigned n = 0;
    for (const char *at = cfg->legacy_at.nodes; config_next_redis(&at, ignored);) {
        n++;
    }
    return n;
}

void legacy_seed(const struct config *cfg, unsigned n, char out[CONFIG_TEXT])
{
    const char *at = cfg->legacy_at.nodes;
    for (unsigned i = 0; i <= n % legacy_seeds(cfg); i++) {
        config_next_redis(&at, out);
    }
}

void legacy_times_now(const struct config *live, int64_t later_ms, int64_t earlier_ms, struct legacy_times *plays,
                      struct legacy_times *deliveries)
{
    int kept = month_of_ms(earlier_ms) - (int)live->retention;
    int taken = month_of_ms(earlier_ms) - (int)live->legacy_months + 1;
    *deliveries = (struct legacy_times){(enum config_score)live->legacy_score, month_start_ms(kept), later_ms + DAY_MS};
    *plays = *deliveries;
    plays->oldest_ms = month_start_ms(taken > kept ? taken : kept);
}

static enum legacy_time bad(char why[LEGACY_WHY], struct slice score, const char *what)
{
    snprintf(why, LEGACY_WHY, "the score %.*s %s", (int)(score.len < SCORE_TEXT ? score.len : SCORE_TEXT - 1),
             score.data, what);
    return LEGACY_TIME_BAD;
}

/* Whole numbers, as nearly all scores are, without the ways of strtod(). */
static bool parse_whole(struct slice text, double *number)
{
    int64_t n = 0;
    if (text.len < 1 || text.len > WHOLE_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned char)text.data[i] - '0';
        if (digit > 9) {
            return false;
        }
        n = n * 10 + digit;
    }
    *number = (double)n;
    return true;
}

static bool parse_number(struct slice text, double *number)
{
    char copy[SCORE_TEXT], *end = copy;
    if (text.len >= sizeof copy) {
        return false;
    }
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    *number = strtod(copy, &end);
    return end != copy && end == copy + text.len;
}

enum legacy_time legacy_time_parse(const struct legacy_times *times, struct slice score, int64_t *at_ms,
                                   char why[LEGACY_WHY])
{
    double number;
    bool seconds = times->unit == SCORE_S;
    if (!parse_whole(score, &number) && !parse_number(score, &number)) {
        return bad(why, score, "is no number");
    }
    if (!isfinite(number) || number < 0) {
        return bad(why, score, "is no time");
    }
    double ms = floor(seconds ? number * 1000 : number);
    if (ms < TIME_MIN_MS || ms > (double)times->newest_ms) {
        const char *other = number < 9e18 && number * 1000 >= TIME_MIN_MS
                                ? unix_time_looks_like((int64_t)number, seconds ? UNIX_S : UNIX_MS)
                                : NULL;
        if (other != NULL) {
            char what[64];
            snprintf(what, sizeof what, "looks like %s, and legacy_score is %s", other, seconds ? "s" : "ms");
            return bad(why, score, what);
        }
        return bad(why, score, ms < TIME_MIN_MS ? "is no time since the year 2000" : "lies more than a day ahead");
    }
    *at_ms = (int64_t)ms;
    return *at_ms < times->oldest_ms ? LEGACY_TIME_OLD : LEGACY_TIME_GOOD;
}

bool legacy_refuses_key(struct slice error)
{
    static const char *const words[] = {"WRONGTYPE ", "MOVED ", "ASK ", "NOPERM "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if (error.len >= len && memcmp(error.data, words[i], len) == 0) {
            /* Of the ACL: whom it forbids the key, and not the command. */
            return words[i][0] != 'N' || memmem(error.data, error.len, " to access ", 11) != NULL;
        }
    }
    return false;
}
