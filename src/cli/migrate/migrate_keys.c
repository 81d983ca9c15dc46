/* Noting users: of a file of keys, or of the keys of the old Redis. Sent to the server by the thousand, pipelined. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/plural.h"
#include "cli/import/distinct.h"
#include "cli/import/import_input.h"
#include "cli/lib/output.h"
#include "cli/migrate/migrate.h"

enum {
    GROUP = 1000,
    PIPELINE = 8,
    READ_BYTES = 128 * 1024,
    LINE_MAX = 64 * 1024,
    BAD_SHOWN = 40,
    SCANS_MAX = 5,
    SCAN_DELAY_MS = 1000
};

struct notes {
    struct migrate *m;
    struct buf bytes; /* of the group's users */
    size_t lens[GROUP], n;
    size_t under_way;
    struct distinct users; /* one may have several keys */
    uint64_t keys, ids, bad, noted, forgotten;
    uint64_t bad_line;             /* the first; 0: no line, but a key of the old Redis */
    char bad_text[MIGRATE_QUOTED]; /* and how it begins */
};

static int collect(struct notes *notes, size_t left, struct err *err)
{
    int rc = 0;
    while (rc == 0 && notes->under_way > left) {
        const struct reply *reply;
        rc = client_answer(notes->m->client, &reply, err);
        if (rc == 0 && reply_field(reply, "noted") == NULL) {
            return server_something_else(client_address(notes->m->client), "LEGACY NOTE", "a map with noted", err);
        }
        if (rc == 0) {
            notes->under_way--;
            notes->noted += reply_count(reply, "noted");
            notes->forgotten += reply_count(reply, "forgotten");
        }
    }
    return rc;
}

static int send_group(struct notes *notes, struct err *err)
{
    static struct slice words[2 + GROUP];
    if (notes->n == 0) {
        return 0;
    }
    words[0] = slice_str("LEGACY");
    words[1] = slice_str(notes->m->forgotten ? "RENOTE" : "NOTE");
    const char *at = notes->bytes.data;
    for (size_t i = 0; i < notes->n; i++) {
        words[2 + i] = slice_of(at, notes->lens[i]);
        at += notes->lens[i];
    }
    int rc = client_queue(notes->m->client, words, 2 + notes->n, err);
    buf_clear(&notes->bytes);
    notes->n = 0;
    notes->under_way++;
    return rc < 0 ? rc : collect(notes, PIPELINE, err);
}

static int add(struct notes *notes, struct slice user, struct err *err)
{
    if (buf_add(&notes->bytes, user.data, user.len) < 0 || distinct_add(&notes->users, hash_id(0, user)) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    notes->lens[notes->n++] = user.len;
    return notes->n == GROUP ? send_group(notes, err) : 0;
}

static void quote(char out[MIGRATE_QUOTED], struct slice text)
{
    snprintf(out, MIGRATE_QUOTED, "%s", log_quote(slice_of(text.data, text.len < BAD_SHOWN ? text.len : BAD_SHOWN)));
}

static void note_bad(struct notes *notes, struct slice text, uint64_t line)
{
    if (notes->bad++ == 0) {
        notes->bad_line = line;
        quote(notes->bad_text, text);
    }
}

static void note_doubtful(struct migrate *m, struct slice key)
{
    if (m->doubtful++ == 0) {
        quote(m->first_doubtful, key);
    }
}

static int refuse_doubtful(const struct migrate *m, struct err *err)
{
    char count[OUTPUT_TEXT];
    if (m->doubtful == 0) {
        return 0;
    }
    return err_set(
        err, ERR_INVALID,
        "keys that fit both played_key and delivered_key were passed over, since it can't be told whose they "
        "are: %s, the first %s. Note their users by id, with LEGACY NOTE",
        count_text(m->doubtful, count), m->first_doubtful);
}

static int finish(struct notes *notes, const char *what, int rc, struct err *err)
{
    if (rc == 0) {
        rc = send_group(notes, err);
    }
    if (rc == 0) {
        rc = collect(notes, 0, err);
    }
    progress_end(&notes->m->progress);
    buf_free(&notes->bytes);
    if (rc < 0) {
        return rc;
    }
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT];
    uint64_t users = distinct_count(&notes->users);
    distinct_free(&notes->users);
    if (notes->m->json) {
        struct json j = {.out = stdout};
        json_open(&j, NULL, '{');
        json_number(&j, "keys", (int64_t)notes->keys);
        json_number(&j, "ids", (int64_t)notes->ids);
        json_number(&j, "bad", (int64_t)notes->bad);
        json_number(&j, "users", (int64_t)users);
        json_number(&j, "noted", (int64_t)notes->noted);
        json_number(&j, "forgotten", (int64_t)notes->forgotten);
        json_number(&j, "doubtful", (int64_t)notes->m->doubtful);
        json_close(&j, '}');
        return refuse_doubtful(notes->m, err);
    }
    printf("%s: %s user%s found, %s new\n", what, count_text(users, a), plural(users), count_text(notes->noted, b));
    if (notes->forgotten > 0) {
        printf("%s user%s forgotten here and not noted: --keys FILE --forgotten notes them all the same\n",
               count_text(notes->forgotten, a), plural(notes->forgotten));
    }
    if (notes->bad > 0) {
        char line[32] = "";
        if (notes->bad_line > 0) {
            snprintf(line, sizeof line, "line %" PRIu64 ", ", notes->bad_line);
        }
        printf("%s passed over, since they hold no id of 1 to 255 bytes; the first: %s%s\n", count_text(notes->bad, a),
               line, notes->bad_text);
    }
    return refuse_doubtful(notes->m, err);
}

/* --- a file --- */

static int take_line(struct notes *notes, struct slice line, uint64_t number, struct err *err)
{
    const struct config *cfg = &notes->m->cfg;
    struct slice user;
    if (line.len > 0 && line.data[line.len - 1] == '\r') {
        line.len--;
    }
    if (line.len == 0) {
        return 0;
    }
    enum legacy_key kind = legacy_key_read(cfg->legacy_played_key, cfg->legacy_delivered_key, line, &user);
    if (kind == LEGACY_KEY_DOUBTFUL) {
        note_doubtful(notes->m, line);
        return 0;
    }
    if (kind == LEGACY_KEY_NONE) {
        user = line;
    }
    if (!legacy_user_good(user)) {
        note_bad(notes, line, number);
        return 0;
    }
    *(kind != LEGACY_KEY_NONE ? &notes->keys : &notes->ids) += 1;
    return add(notes, user, err);
}

/* Whole lines from the front; what is left moves there. A line of more than LINE_MAX bytes comes in parts, all bad. */
static int take_lines(struct notes *notes, struct buf *in, bool ended, uint64_t *number, struct err *err)
{
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && at < in->len) {
        const char *end = memchr(in->data + at, '\n', in->len - at);
        if (end == NULL && !ended && in->len - at < LINE_MAX) {
            break;
        }
        size_t len = end != NULL ? (size_t)(end - in->data) - at : in->len - at;
        rc = take_line(notes, slice_of(in->data + at, len), ++*number, err);
        at += len + (end != NULL);
    }
    memmove(in->data, in->data + at, in->len - at);
    in->len -= at;
    return rc;
}

int migrate_keys(struct migrate *m, const char *path, struct err *err)
{
    static struct notes notes;
    struct import_input *input;
    struct buf in = {0};
    uint64_t number = 0;
    notes.m = m;
    int rc = import_input_open(path, &input, err);
    if (rc < 0) {
        return rc;
    }
    char count[OUTPUT_TEXT], what[256];
    snprintf(what, sizeof what, "%s", import_input_name(input));
    progress_begin(&m->progress, "note", m->quiet || m->json);
    for (size_t n = 1; rc == 0 && n > 0;) {
        if (buf_reserve(&in, READ_BYTES) < 0) {
            rc = err_set(err, ERR_NOMEM, "out of memory");
            break;
        }
        rc = import_input_read(input, in.data + in.len, READ_BYTES, &n, err);
        if (rc == 0) {
            in.len += n;
            rc = take_lines(&notes, &in, n == 0, &number, err);
            progress_show(&m->progress, import_input_done(input), import_input_size(input), "%s line%s",
                          count_text(number, count), plural(number));
        }
    }
    import_input_close(input);
    buf_free(&in);
    return finish(&notes, what, rc, err);
}

/* --- the old Redis --- */

static int take_key(struct migrate *m, enum legacy_key kind, struct slice key,
                    int (*each)(void *arg, struct slice user, struct err *err), void *arg, struct err *err)
{
    struct slice user;
    enum legacy_key found = legacy_key_read(m->cfg.legacy_played_key, m->cfg.legacy_delivered_key, key, &user);
    if (found == LEGACY_KEY_DOUBTFUL && kind == LEGACY_KEY_PLAYED) {
        note_doubtful(m, key);
    }
    return found == kind ? each(arg, user, err) : 0;
}

static int each_key_of_master(struct migrate *m, size_t node, enum legacy_key kind,
                              int (*each)(void *arg, struct slice user, struct err *err), void *arg, struct err *err)
{
    const char *form = kind == LEGACY_KEY_PLAYED ? m->cfg.legacy_played_key : m->cfg.legacy_delivered_key;
    char pattern[2 * LEGACY_KEY_MAX], cursor[LEGACY_CURSOR] = "0";
    struct slice match = legacy_key_pattern(form, pattern);
    int rc = 0;
    do {
        struct redisReply *reply = NULL;
        struct slice text;
        const struct slice words[] = {slice_str("SCAN"),  slice_str(cursor), slice_str("MATCH"), match,
                                      slice_str("COUNT"), slice_str("1000")};
        rc = redis_call_master(m->redis, node, words, 6, &reply, err);
        if (rc < 0) {
            return rc;
        }
        const char *wrong = redis_count(reply) != 2 || !redis_text(redis_item(reply, 0), &text)
                                ? "the answer to SCAN is no list of keys"
                                : legacy_cursor_take(cursor, text);
        if (wrong != NULL) {
            redis_free(reply);
            return err_set(err, ERR_INVALID, "%s: %s", config_legacy(&m->cfg), wrong);
        }
        const struct redisReply *keys = redis_item(reply, 1);
        for (size_t i = 0; i < redis_count(keys) && rc == 0; i++) {
            if (redis_text(redis_item(keys, i), &text)) {
                rc = take_key(m, kind, text, each, arg, err);
            }
        }
        redis_free(reply);
    } while (rc == 0 && !legacy_cursor_ended(cursor));
    return rc;
}

int migrate_each_key(struct migrate *m, enum legacy_key kind,
                     int (*each)(void *arg, struct slice user, struct err *err), void *arg, struct err *err)
{
    int rc = 0;
    for (size_t node = 0; rc == 0 && redis_next_master(m->redis, &node); node++) {
        rc = each_key_of_master(m, node, kind, each, arg, err);
    }
    return rc;
}

static int note_key(void *arg, struct slice user, struct err *err)
{
    struct notes *notes = arg;
    char count[OUTPUT_TEXT];
    if (!legacy_user_good(user)) {
        note_bad(notes, user, 0);
        return 0;
    }
    notes->keys++;
    progress_show(&notes->m->progress, 0, 0, "%s key%s", count_text(notes->keys, count), plural(notes->keys));
    return add(notes, user, err);
}

static int scan_once(struct migrate *m, struct notes *notes, struct err *err)
{
    int rc = migrate_each_key(m, LEGACY_KEY_PLAYED, note_key, notes, err);
    if (rc == 0 && m->cfg.legacy_delivered_key[0] != '\0') {
        rc = migrate_each_key(m, LEGACY_KEY_DELIVERED, note_key, notes, err);
    }
    return rc;
}

/* A key that moves to a master behind its scan's back, from one that is scanned later, would be missed. So all masters
 * are scanned again unless each slot has one and the same master before and after, and none is on the move. The same
 * after a master is lost: another one takes its place, and can't go on with its cursor. Who is found twice is noted
 * once. */
static int scan_cluster(struct migrate *m, struct notes *notes, struct err *err)
{
    uint64_t before, after;
    int rc = ERR_BUSY;
    for (int pass = 0; pass < SCANS_MAX && (rc == ERR_BUSY || rc == ERR_SYSTEM); pass++) {
        if (pass > 0) {
            poll(NULL, 0, SCAN_DELAY_MS);
            redis_disconnect(m->redis);
            if ((rc = redis_connect(m->redis, &m->cfg, err)) < 0) {
                continue;
            }
        }
        int settled = redis_layout(m->redis, &before, err);
        rc = settled == 0 || settled == ERR_BUSY ? scan_once(m, notes, err) : settled;
        if (rc == 0 && (rc = redis_layout(m->redis, &after, err)) == 0 && before != after) {
            rc = err_set(err, ERR_BUSY, "%s: slots have moved", config_legacy(&m->cfg));
        }
    }
    return rc == ERR_BUSY ? err_prefix(err,
                                       "scanned %d times, and keys may still be missing; try again once slots "
                                       "stay where they are",
                                       SCANS_MAX)
                          : rc;
}

int migrate_scan(struct migrate *m, struct err *err)
{
    static struct notes notes;
    struct redis_cluster_figures figures;
    notes.m = m;
    progress_begin(&m->progress, "note", m->quiet || m->json);
    redis_cluster_figures(m->redis, &figures);
    int rc = figures.masters > 0 ? scan_cluster(m, &notes, err) : scan_once(m, &notes, err);
    return finish(&notes, config_legacy(&m->cfg), rc, err);
}
