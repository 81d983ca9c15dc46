/* `unseen replica --verify`: the users of two nodes side by side, in the order of their keys, as history has them once
 * both have flushed what was staged. What is recorded meanwhile makes users differ for a moment: those are looked at
 * again, after the replica has come level and both have flushed again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/replica/other_node.h"
#include "cli/replica/replica.h"
#include "store/codec/user_compare.h"

enum {
    PAGE_BYTES = 256 * 1024,
    AGAIN_MAX = 10000, /* users that are looked at again; more are as bad as that */
    NAMED_MAX = 10,
    PASSES = 3,
    LEVEL_MS = 60 * 1000,
    STEP_MS = 20,
};

struct side {
    struct other_node node;
    struct buf page; /* snapshots; ends in `ends` */
    struct buf ends;
    size_t at, n; /* of the page */
    int64_t next;
    bool ended;
    struct arena arena;
    struct user_snapshot user; /* the one that it stands at */
    bool there;
};

struct verify {
    struct side a, b; /* from, to */
    uint64_t compared, bytes;
    struct buf again; /* users that differ, each with a byte for its length in front */
    size_t n_again;
    char named[NAMED_MAX][USER_COMPARE_TEXT + 300];
    size_t n_named;
};

/* --- pages --- */

static int read_page(struct side *s, struct err *err)
{
    char from[NUMBER_TEXT], bytes[NUMBER_TEXT];
    const struct slice words[] = {slice_str("REPLICA"), slice_str("USERS"), number_text(s->next, from),
                                  number_text(PAGE_BYTES, bytes)};
    const struct reply *reply;
    int rc = other_node_call(&s->node, words, 4, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n == 0) {
        return err_set(err, ERR_INVALID, "%s answers REPLICA USERS with something else", s->node.address);
    }
    int64_t next = s->next;
    s->ended = !reply_integer(&reply->items[0], &next);
    if (!s->ended && next <= s->next) {
        return err_set(err, ERR_INVALID, "%s: a page of users does not go on", s->node.address);
    }
    s->next = next;
    buf_clear(&s->page);
    buf_clear(&s->ends);
    s->at = 0;
    s->n = reply->n - 1;
    for (size_t i = 1; i < reply->n; i++) {
        buf_add(&s->page, reply->items[i].text.data, reply->items[i].text.len);
        size_t end = s->page.len;
        buf_add(&s->ends, &end, sizeof end);
    }
    return s->page.failed || s->ends.failed ? err_set(err, ERR_NOMEM, "out of memory for a page of users") : 0;
}

/* To the next user; there: whether there is one. */
static int step(struct side *s, struct err *err)
{
    s->there = false;
    while (s->at == s->n) {
        int rc = s->ended ? 0 : read_page(s, err);
        if (rc < 0 || (s->ended && s->at == s->n)) {
            return rc;
        }
    }
    size_t from = 0, end;
    if (s->at > 0) {
        memcpy(&from, s->ends.data + (s->at - 1) * sizeof from, sizeof from);
    }
    memcpy(&end, s->ends.data + s->at * sizeof end, sizeof end);
    s->at++;
    arena_reset(&s->arena);
    int rc = user_snapshot_decode(s->page.data + from, end - from, &s->arena, &s->user, err);
    s->there = rc == 0;
    return rc < 0 ? err_prefix(err, "%s", s->node.address) : 0;
}

/* --- both --- */

static int put_again(struct verify *v, struct slice user, struct err *err)
{
    uint8_t len = (uint8_t)user.len;
    if (v->n_again == AGAIN_MAX) {
        return err_set(err, ERR_INVALID, "more than %d users differ: clone the replica again", AGAIN_MAX);
    }
    v->n_again++;
    return buf_add(&v->again, &len, 1) < 0 || buf_add(&v->again, user.data, user.len) < 0
               ? err_set(err, ERR_NOMEM, "out of memory for users that differ")
               : 0;
}

static int compare(struct verify *v, const struct user_snapshot *a, const struct user_snapshot *b, struct err *err)
{
    char why[USER_COMPARE_TEXT];
    int same = user_compare(a, b, v->a.node.seed, why, err);
    v->compared++;
    return same != 0 ? (same < 0 ? same : 0) : put_again(v, a != NULL ? a->user : b->user, err);
}

/* Of those who share a key, which hardly ever happens, each looks at the other's name again. */
static int compare_all(struct verify *v, struct progress *progress, struct err *err)
{
    int rc = step(&v->a, err);
    rc = rc < 0 ? rc : step(&v->b, err);
    while (rc == 0 && (v->a.there || v->b.there)) {
        bool only_a = v->a.there && (!v->b.there || v->a.user.key < v->b.user.key);
        bool only_b = v->b.there && (!v->a.there || v->b.user.key < v->a.user.key);
        if (!only_a && !only_b && !slice_eq(v->a.user.user, v->b.user.user)) {
            rc = put_again(v, v->a.user.user, err);
            rc = rc < 0 ? rc : put_again(v, v->b.user.user, err);
        } else {
            rc = compare(v, only_b ? NULL : &v->a.user, only_a ? NULL : &v->b.user, err);
        }
        int64_t key = only_b ? v->b.user.key : v->a.user.key;
        if (rc == 0 && !only_b) {
            rc = step(&v->a, err);
        }
        if (rc == 0 && !only_a) {
            rc = step(&v->b, err);
        }
        progress_show(progress, ((uint64_t)key - (uint64_t)INT64_MIN) >> 10, UINT64_MAX >> 10, "%" PRIu64 " users",
                      v->compared);
    }
    return rc;
}

/* --- level, and flushed --- */

static int ask_status(struct other_node *o, const char *map_name, const char *name, int64_t *out, struct err *err)
{
    const struct slice words[] = {slice_str("REPLICA"), slice_str("STATUS")};
    const struct reply *map;
    int rc = other_node_call(o, words, 2, &map, err);
    if (rc < 0) {
        return rc;
    }
    const struct reply *r = map_name != NULL ? reply_field(map, map_name) : map;
    r = r != NULL ? reply_field(r, name) : NULL;
    *out = 0;
    return r != NULL && reply_integer(r, out);
}

/* The one follows the other, or they are two that have the same from elsewhere: then none is waited for. */
static int come_level(struct other_node *from, struct other_node *to, struct err *err)
{
    int64_t last, applied, began = clock_real_us();
    if (to->leader != from->node) {
        return 0;
    }
    int rc = ask_status(from, NULL, "last", &last, err);
    while (rc >= 0 && (rc = ask_status(to, "follower", "applied", &applied, err)) == 1 && applied < last) {
        if (clock_real_us() - began > LEVEL_MS * 1000) {
            return err_set(err, ERR_LATE,
                           "%s is at event %" PRId64 " of %" PRId64 " after a minute: it doesn't come level",
                           to->address, applied, last);
        }
        usleep(STEP_MS * 1000);
    }
    return rc < 0 ? rc : 0;
}

static int flush(struct other_node *o, struct err *err)
{
    const struct slice words[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    return other_node_call(o, words, 2, &reply, err);
}

/* Asked again each time: one may have been promoted since. */
static int settle(struct verify *v, struct err *err)
{
    int rc = other_node_hello(&v->a.node, 0, 0, err);
    rc = rc < 0 ? rc : other_node_hello(&v->b.node, 0, 0, err);
    rc = rc < 0 ? rc : come_level(&v->a.node, &v->b.node, err);
    rc = rc < 0 ? rc : come_level(&v->b.node, &v->a.node, err);
    rc = rc < 0 ? rc : flush(&v->a.node, err);
    return rc < 0 ? rc : flush(&v->b.node, err);
}

/* --- again --- */

/* 1: there is one, in the side's arena and page. */
static int fetch_user(struct side *s, struct slice user, struct err *err)
{
    const struct slice words[] = {slice_str("REPLICA"), slice_str("USER"), user};
    const struct reply *reply;
    int rc = other_node_call(&s->node, words, 3, &reply, err);
    if (rc < 0 || reply->kind != REPLY_TEXT) {
        return rc;
    }
    buf_clear(&s->page);
    arena_reset(&s->arena);
    if (buf_add(&s->page, reply->text.data, reply->text.len) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a user");
    }
    rc = user_snapshot_decode(s->page.data, s->page.len, &s->arena, &s->user, err);
    return rc < 0 ? rc : 1;
}

static int look_again(struct verify *v, struct err *err)
{
    struct buf list = v->again;
    size_t n = v->n_again;
    v->again = (struct buf){0};
    v->n_again = v->n_named = 0;
    int rc = settle(v, err);
    for (size_t i = 0, at = 0; i < n && rc >= 0; i++) {
        struct slice user = slice_of(list.data + at + 1, (uint8_t)list.data[at]);
        char why[USER_COMPARE_TEXT];
        int a = fetch_user(&v->a, user, err), b = a < 0 ? a : fetch_user(&v->b, user, err);
        rc = b < 0 ? b : user_compare(a == 1 ? &v->a.user : NULL, b == 1 ? &v->b.user : NULL, v->a.node.seed, why, err);
        if (rc == 0) {
            if (v->n_named < NAMED_MAX) {
                snprintf(v->named[v->n_named++], sizeof v->named[0], "%s: %s", log_quote(user), why);
            }
            rc = put_again(v, user, err);
        }
        at += 1 + user.len;
    }
    buf_free(&list);
    return rc < 0 ? rc : 0;
}

/* --- the command --- */

static void print(const struct verify *v, bool json)
{
    char count[OUTPUT_TEXT], differ[OUTPUT_TEXT];
    if (json) {
        struct json j = {.out = stdout};
        json_open(&j, NULL, '{');
        json_number(&j, "users", (int64_t)v->compared);
        json_number(&j, "differ", (int64_t)v->n_again);
        json_open(&j, "first", '[');
        for (size_t i = 0; i < v->n_named; i++) {
            json_text(&j, NULL, v->named[i]);
        }
        json_close(&j, ']');
        json_close(&j, '}');
        return;
    }
    count_text(v->compared, count);
    if (v->n_again == 0) {
        printf("%s user%s the same at %s and %s\n", count, v->compared == 1 ? " is" : "s are", v->a.node.address,
               v->b.node.address);
        return;
    }
    printf("%s of %s user%s differ%s (here: %s, there: %s)\n", count_text(v->n_again, differ), count,
           plural(v->compared), v->n_again == 1 ? "s" : "", v->a.node.address, v->b.node.address);
    for (size_t i = 0; i < v->n_named; i++) {
        printf("  %s\n", v->named[i]);
    }
}

static int open_side(struct side *s, const struct config *cfg, const char *address, const char *user, struct err *err)
{
    int rc = other_node_open(cfg, address, user, &(struct other_told){"replica", NULL}, &s->node, err);
    s->next = INT64_MIN;
    return rc < 0 ? rc : other_node_hello(&s->node, 0, 0, err);
}

static void close_side(struct side *s)
{
    other_node_close(&s->node);
    buf_free(&s->page);
    buf_free(&s->ends);
    arena_free(&s->arena);
}

static int verify(struct verify *v, bool quiet, struct err *err)
{
    struct progress progress;
    if (v->a.node.seed != v->b.node.seed) {
        return err_set(err, ERR_SEED, "%s and %s have different seeds: neither is a copy of the other",
                       v->a.node.address, v->b.node.address);
    }
    int rc = settle(v, err);
    if (rc < 0) {
        return rc;
    }
    progress_begin(&progress, "compared", quiet);
    rc = compare_all(v, &progress, err);
    progress_end(&progress);
    for (int pass = 0; pass < PASSES && rc == 0 && v->n_again > 0; pass++) {
        rc = look_again(v, err);
    }
    return rc;
}

int replica_verify(const struct config *cfg, const char *from, const char *to, const char *user, bool json)
{
    struct verify *v = calloc(1, sizeof *v);
    struct err err = {0};
    if (v == NULL) {
        err_set(&err, ERR_NOMEM, "out of memory");
        return cli_fail(&err);
    }
    int rc = open_side(&v->a, cfg, from, user, &err);
    rc = rc < 0 ? rc : open_side(&v->b, cfg, to, user, &err);
    rc = rc < 0 ? rc : verify(v, json, &err);
    int exit_code = rc < 0 ? cli_fail(&err) : v->n_again > 0 ? EXIT_FAILED : EXIT_GOOD;
    if (rc == 0) {
        print(v, json);
    }
    close_side(&v->a);
    close_side(&v->b);
    buf_free(&v->again);
    free(v);
    return exit_code;
}
