/* `unseen migrate --verify`: every member of the old sorted sets inside the window must be seen. Users who were
 * forgotten here are skipped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/plural.h"
#include "cli/lib/output.h"
#include "cli/lib/random.h"
#include "cli/migrate/migrate.h"
#include "legacy/parse.h"

enum { ASK_MAX = 1000, SHOWN_MAX = 1000, DAY_MS = 24 * 3600 * 1000 };

struct member {
    struct slice item;
    int64_t at_ms;
};

struct verify {
    struct migrate *m;
    struct legacy_times times;
    uint64_t wanted; /* users; 0: all */
    char (*drawn)[256];
    size_t *drawn_len;
    uint64_t n_keys; /* met so far */
    struct random random;
    uint64_t users, plays, missing, skipped, forgotten, unread;
    struct json json;
};

static void print_missing(struct verify *v, struct slice user, const struct member *play, const char *state)
{
    char time[TIME_TEXT];
    if (v->missing++ >= SHOWN_MAX) {
        return;
    }
    if (v->m->json) {
        json_open(&v->json, NULL, '{');
        json_id(&v->json, "user", user);
        json_id(&v->json, "item", play->item);
        json_number(&v->json, "unix_ms", play->at_ms);
        json_text(&v->json, "state", state);
        json_close(&v->json, '}');
        return;
    }
    struct buf line = {0};
    escape_id(&line, user);
    buf_addf(&line, "  ");
    escape_id(&line, play->item);
    progress_end(&v->m->progress);
    printf("not seen: %.*s  %s  (the user is %s)\n", (int)line.len, line.data, time_text(play->at_ms, time), state);
    buf_free(&line);
}

static int ask_state(struct verify *v, struct slice user, char state[32], struct err *err)
{
    const struct slice words[] = {slice_str("LEGACY"), slice_str("STATE"), user};
    const struct reply *reply;
    int rc = client_call(v->m->client, words, 3, &reply, err);
    state[0] = '\0';
    if (rc == 0 && reply->n == 1) {
        slice_show(reply->items[0].text, state, 32);
    }
    if (strcmp(state, "none") == 0) {
        strcpy(state, "not noted");
    }
    return rc;
}

static int compare(struct verify *v, struct slice user, const struct member *plays, size_t n, const char *state,
                   struct err *err)
{
    static struct slice words[2 + ASK_MAX];
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += ASK_MAX) {
        size_t some = n - at < ASK_MAX ? n - at : ASK_MAX;
        const struct reply *reply;
        words[0] = slice_str("SEEN");
        words[1] = user;
        for (size_t i = 0; i < some; i++) {
            words[2 + i] = plays[at + i].item;
        }
        rc = client_call(v->m->client, words, 2 + some, &reply, err);
        if (rc == 0 && (reply->kind != REPLY_ARRAY || reply->n != some)) {
            rc = err_set(err, ERR_INVALID, "SEEN gave no list of %zu numbers", some);
        }
        for (size_t i = 0; i < some && rc == 0; i++) {
            if (reply->items[i].integer == 0) {
                print_missing(v, user, &plays[at + i], state);
            }
        }
    }
    return rc;
}

/* One page of ZSCAN. */
static int compare_page(struct verify *v, struct slice user, const struct redisReply *list, const char *state,
                        struct err *err)
{
    size_t n = redis_count(list) / 2, taken = 0;
    struct member *plays = calloc(n + 1, sizeof *plays);
    if (plays == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        struct slice score;
        struct member *play = &plays[taken];
        char why[LEGACY_WHY];
        bool good = redis_text(redis_item(list, 2 * i), &play->item) &&
                    redis_text(redis_item(list, 2 * i + 1), &score) && play->item.len >= 1 && play->item.len <= 255;
        enum legacy_time time = good ? legacy_time_parse(&v->times, score, &play->at_ms, why) : LEGACY_TIME_BAD;
        taken += time == LEGACY_TIME_GOOD;
        v->skipped += time == LEGACY_TIME_BAD;
    }
    v->plays += taken;
    int rc = compare(v, user, plays, taken, state, err);
    free(plays);
    return rc;
}

static int verify_user(struct verify *v, struct slice user, struct err *err)
{
    char key[LEGACY_KEY_MAX], cursor[LEGACY_CURSOR] = "0", state[32], users[OUTPUT_TEXT], missing[OUTPUT_TEXT];
    struct slice name = legacy_key_make(v->m->cfg.legacy_played_key, user, key);
    int rc = ask_state(v, user, state, err);
    v->users++;
    if (rc < 0) {
        return rc;
    }
    if (strcmp(state, "forgotten") == 0) {
        v->forgotten++;
        return 0;
    }
    const void *place = NULL;
    bool again;
    do {
        struct redisReply *reply = NULL;
        struct slice text;
        const bool first = legacy_cursor_ended(cursor);
        const struct slice words[] = {slice_str("ZSCAN"), name, slice_str(cursor), slice_str("COUNT"),
                                      slice_str("1000")};
        rc = redis_send(v->m->redis, words, 5, err);
        if (rc < 0 || (rc = redis_read(v->m->redis, &reply, err)) < 0) {
            return rc;
        }
        if (redis_is_error(reply, &text) || redis_count(reply) != 2 || !redis_text(redis_item(reply, 0), &text) ||
            legacy_cursor_take(cursor, text) != NULL) {
            redis_free(reply);
            v->unread++; /* --problems says why */
            return 0;
        }
        again = !first && place != redis_place(v->m->redis);
        place = redis_place(v->m->redis);
        if (again) {
            strcpy(cursor, "0"); /* the key has moved, and a cursor means nothing to another node */
        } else {
            rc = compare_page(v, user, redis_item(reply, 1), state, err);
        }
        redis_free(reply);
    } while (rc == 0 && (again || !legacy_cursor_ended(cursor)));
    progress_show(&v->m->progress, v->wanted > 0 ? v->users : 0, v->wanted, "%s user%s, %s missing",
                  count_text(v->users, users), plural(v->users), count_text(v->missing, missing));
    return rc;
}

/* Keeps each key with the same chance: the k-th replaces one of the drawn with the chance wanted / k. */
static int draw(void *arg, struct slice user, struct err *err)
{
    struct verify *v = arg;
    if (!legacy_user_good(user)) {
        return 0; /* --scan names it */
    }
    if (v->wanted == 0) {
        /* The page of keys is read; this connection's next command comes after it. */
        return verify_user(v, user, err);
    }
    uint64_t at = v->n_keys++;
    if (at >= v->wanted) {
        at = random_below(&v->random, v->n_keys);
    }
    if (at < v->wanted) {
        memcpy(v->drawn[at], user.data, user.len);
        v->drawn_len[at] = user.len;
    }
    return 0;
}

static int verify_drawn(struct verify *v, struct err *err)
{
    uint64_t n = v->n_keys < v->wanted ? v->n_keys : v->wanted;
    int rc = 0;
    v->wanted = n;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        rc = verify_user(v, slice_of(v->drawn[i], v->drawn_len[i]), err);
    }
    return rc;
}

static void print_sum(struct verify *v)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT];
    if (v->m->json) {
        json_close(&v->json, ']');
        json_number(&v->json, "users", (int64_t)v->users);
        json_number(&v->json, "plays", (int64_t)v->plays);
        json_number(&v->json, "missing", (int64_t)v->missing);
        json_number(&v->json, "skipped", (int64_t)v->skipped);
        json_number(&v->json, "forgotten", (int64_t)v->forgotten);
        json_number(&v->json, "unreadable", (int64_t)v->unread);
        json_number(&v->json, "doubtful", (int64_t)v->m->doubtful);
        json_close(&v->json, '}');
        return;
    }
    if (v->missing > SHOWN_MAX) {
        printf("... and %s more\n", count_text(v->missing - SHOWN_MAX, a));
    }
    printf("%s user%s, %s play%s inside of the window: %s missing\n", count_text(v->users, a), plural(v->users),
           count_text(v->plays, b), plural(v->plays), count_text(v->missing, c));
    if (v->skipped + v->forgotten + v->unread > 0) {
        printf("not compared: %s member%s that can't be taken over, %s user%s forgotten here, %s key%s that can't be "
               "read\n",
               count_text(v->skipped, a), plural(v->skipped), count_text(v->forgotten, b), plural(v->forgotten),
               count_text(v->unread, c), plural(v->unread));
    }
    if (v->m->doubtful > 0) {
        printf("not compared: %s key%s fitting both played_key and delivered_key; the first: %s\n",
               count_text(v->m->doubtful, a), plural(v->m->doubtful), v->m->first_doubtful);
    }
}

int migrate_verify(struct migrate *m, uint64_t users, struct err *err)
{
    const struct config *cfg = &m->cfg;
    int64_t now = clock_wall_ms();
    int window = month_of_ms(now) - (int)cfg->window, taken = month_of_ms(now) - (int)cfg->legacy_months + 1;
    struct verify v = {
        .m = m,
        .times = {(enum config_score)cfg->legacy_score, month_start_ms(window > taken ? window : taken), now + DAY_MS},
        .wanted = users,
        .random = {(uint64_t)clock_wall_ms()},
        .json = {.out = stdout},
    };
    int rc = 0;
    if (users > 0) {
        v.drawn = calloc(users, sizeof *v.drawn);
        v.drawn_len = calloc(users, sizeof *v.drawn_len);
        if (v.drawn == NULL || v.drawn_len == NULL) {
            rc = err_set(err, ERR_NOMEM, "out of memory for %llu users", (unsigned long long)users);
        }
    }
    if (m->json && rc == 0) {
        json_open(&v.json, NULL, '{');
        json_open(&v.json, "not_seen", '[');
    }
    progress_begin(&m->progress, "verify", m->quiet || m->json);
    if (rc == 0) {
        rc = migrate_each_key(m, LEGACY_KEY_PLAYED, draw, &v, err);
    }
    if (rc == 0 && users > 0) {
        rc = verify_drawn(&v, err);
    }
    progress_end(&m->progress);
    if (rc == 0) {
        print_sum(&v);
    }
    free(v.drawn);
    free(v.drawn_len);
    return rc < 0 ? rc : v.missing > 0;
}
