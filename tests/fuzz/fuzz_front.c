/* What a Redis says of a user and of what it holds: any bytes as replies, then any replies as a state, events and meta.
 * Refused with a text, or sound: lists within bounds, a view that can be asked, a snapshot that can be written. */
#include <string.h>

#include "base/hash.h"
#include "front/layout.h"
#include "fuzz.h"

enum { SEED = 7 };

static struct delivered_codec codec;

static void check_refused(int rc, const struct err *err)
{
    CHECK(rc == ERR_CORRUPT && err->code == rc && err->text[0] != '\0');
}

static void check_view(const struct store_view *v)
{
    for (size_t i = 0; i < v->n_months; i++) {
        CHECK(i == 0 || v->months[i].month <= v->months[i - 1].month);
        filter_has(&v->months[i].filter, 5);
    }
    for (size_t i = 0; i < v->n_plays; i++) {
        CHECK(v->plays[i].month >= 0 && v->plays[i].month <= USER_SNAPSHOT_MONTH_MAX);
    }
    CHECK(delivered_items(v->deliveries, v->n_deliveries) <= 100);
    for (size_t i = 0; i < v->n_deliveries; i++) {
        CHECK(i == 0 || v->deliveries[i].stamp <= v->deliveries[i - 1].stamp);
        CHECK(v->deliveries[i].item.len >= 1 && v->deliveries[i].item.len <= HASH_ID_MAX);
    }
}

static void check_snapshot(const struct user_snapshot *p, struct arena *arena)
{
    struct buf words = {0};
    struct err err = {0};
    for (size_t i = 1; i < p->n_plays; i++) {
        const struct store_play *a = &p->plays[i - 1], *b = &p->plays[i];
        CHECK(a->month < b->month || (a->month == b->month && a->hash < b->hash));
    }
    CHECK(front_state_write(p, arena, &words, &err) == 0);
    buf_free(&words);
}

static void try_user(const struct reply *state, const struct reply *events, struct arena *arena)
{
    struct front_user u;
    struct store_view view;
    struct user_snapshot snapshot;
    struct buf blob = {0};
    struct err err = {0};
    int rc = front_user_read(state, events, arena, &u, &err);
    if (rc < 0) {
        check_refused(rc, &err);
        return;
    }
    CHECK(u.n_months <= USER_SNAPSHOT_LISTS_MAX && u.plays.len % 12 == 0 && u.exceptions.len % 8 == 0);
    rc = front_user_view(&u, SEED, 0, 100, &codec, arena, &view, &err);
    if (rc < 0) {
        check_refused(rc, &err);
    } else {
        check_view(&view);
    }
    err = (struct err){.code = 0};
    rc = front_user_snapshot(&u, slice_str("user"), SEED, 100, &codec, arena, &blob, &snapshot, &err);
    if (rc < 0) {
        check_refused(rc, &err);
    } else {
        check_snapshot(&snapshot, arena);
    }
    buf_free(&blob);
}

static void try_meta(const struct reply *hash)
{
    struct front_meta meta;
    struct err err = {0};
    int rc = front_meta_read(hash, &meta, &err);
    if (rc < 0) {
        CHECK((rc == ERR_CORRUPT || rc == ERR_VERSION) && err.code == rc && err.text[0] != '\0' && !meta.present);
    } else {
        CHECK(!meta.present || (meta.to < (uint64_t)1 << 53 && meta.epoch < (uint64_t)1 << 53));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct reply replies[3]; /* a state, events, meta */
    size_t at = 0, used, n = 0;
    while (n < 3 && reply_parse((const char *)data + at, size - at, &arena, &replies[n], &used, NULL) == REPLY_DONE) {
        at += used;
        n++;
    }
    if (n >= 2) {
        try_user(&replies[0], &replies[1], &arena);
        try_user(&replies[1], &replies[0], &arena);
    }
    for (size_t i = 0; i < n; i++) {
        try_meta(&replies[i]);
    }
    arena_free(&arena);
    return 0;
}
