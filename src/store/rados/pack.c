/* Parts of a month become one blob: as they are when there is one, else united as an import would do it. A month that
 * can't be read, or that the directory knows and that isn't there, is left out and marked. Plays that wait stay plays,
 * exceptions what they are: an item that is among the plays is hidden by those, there as here. */
#include "store/rados/pack.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "filter/error_budget.h"
#include "store/rados/gathered.h"
#include "store/user/deliveries.h"
#include "store/user/parcel.h"

struct packing {
    struct packer *p;
    struct gathered g;
    struct user_snapshot out;
    struct snapshot_month months[USER_SNAPSHOT_LISTS_MAX];
    int damaged[USER_SNAPSHOT_LISTS_MAX];
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while packing a user");
}

static void mark(struct packing *x, int month, const char *why)
{
    char text[STORE_ERROR_TEXT];
    if (parcel_mark(&x->out, x->damaged, month, why, text)) {
        x->p->damaged(x->p->arg, text);
    }
}

/* --- what is there --- */

static int take(struct packing *x, const struct walk_pair *pair, struct err *err)
{
    struct layout_key key = layout_key_read(pair->key);
    return key.kind == LAYOUT_OTHER || key.kind == LAYOUT_GENERATION ? 0 : gathered_take(&x->g, &key, pair->value, err);
}

static void take_marks(struct packing *x)
{
    for (size_t i = 0; i < x->g.n_damaged; i++) {
        mark(x, x->g.damaged[i], "marked as damaged, or can't be read");
    }
    if (x->g.forgotten_damaged || x->g.item_damaged) {
        char text[STORE_ERROR_TEXT];
        snprintf(text, sizeof text, "user %s: tombstone: it can't be read", log_quote(x->out.user));
        x->p->damaged(x->p->arg, text);
    }
}

/* --- months --- */

static int add_month(struct packing *x, int month, struct slice blob, struct err *err)
{
    if (x->out.n_months == USER_SNAPSHOT_LISTS_MAX) {
        return err_set(err, ERR_CORRUPT, "user %s has more than %d months", log_quote(x->out.user),
                       USER_SNAPSHOT_LISTS_MAX);
    }
    x->months[x->out.n_months++] = (struct snapshot_month){month, blob};
    return 0;
}

/* 0; ERR_NOMEM; ERR_CORRUPT, ERR_FULL: the month can't be packed. */
static int unite(struct packing *x, const struct gathered_part *parts, size_t n, struct slice *blob, struct err *why)
{
    struct arena *arena = &x->p->arena;
    uint32_t coarse_max = error_budget_coarse_max(x->p->s->error_rate);
    struct filter all = {0};
    struct buf bytes = {0};
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        struct filter part = {0};
        result = filter_decode(parts[i].blob.data, parts[i].blob.len, arena, &part, why);
        result = result < 0 ? result : filter_join(&all, &part, coarse_max, arena);
    }
    if (result == ERR_FULL) {
        return err_set(why, result, "it has more parts than a month can have");
    }
    if (result == 0 && filter_encode(&all, &bytes) < 0) {
        result = ERR_NOMEM;
    }
    const char *copy = result == 0 ? arena_copy(arena, bytes.data, bytes.len) : NULL;
    *blob = slice_of(copy, bytes.len);
    buf_free(&bytes);
    return result < 0 ? result : copy == NULL ? ERR_NOMEM : 0;
}

static int pack_month(struct packing *x, const struct gathered_part *parts, size_t n, struct err *err)
{
    struct slice blob = parts->blob;
    struct filter filter;
    struct err why = {0};
    int result = n == 1 ? filter_weigh(blob.data, blob.len, &filter, &why) : unite(x, parts, n, &blob, &why);
    if (result == ERR_NOMEM) {
        return no_memory(err);
    }
    if (result < 0) {
        mark(x, parts->month, why.text);
        return 0;
    }
    return n > 1 || filter_items(&filter) > 0 ? add_month(x, parts->month, blob, err) : 0;
}

static int pack_months(struct packing *x, struct err *err)
{
    const struct gathered *g = &x->g;
    int result = 0;
    for (size_t begin = 0, end; begin < g->n_parts && result == 0; begin = end) {
        end = begin + 1;
        while (end < g->n_parts && g->parts[end].month == g->parts[begin].month) {
            end++;
        }
        result = pack_month(x, &g->parts[begin], end - begin, err);
    }
    return result;
}

/* What the directory knows and isn't there was lost. */
static void look_for_lost(struct packing *x)
{
    const struct gathered *g = &x->g;
    int n = layout_directory_count(g->directory);
    for (int i = 0; i < n; i++) {
        struct layout_part want = layout_directory_part(g->directory, (size_t)i);
        bool found = false;
        for (size_t j = 0; j < g->n_parts && !found; j++) {
            found = g->parts[j].month == want.month && g->parts[j].part == want.part;
        }
        if (!found && want.month <= USER_SNAPSHOT_MONTH_MAX) {
            mark(x, want.month, "a part of it is missing");
        }
    }
}

/* --- the rest --- */

static int pack_deliveries(struct packing *x, struct err *err)
{
    struct buf blob = {0};
    const struct delivered last = gathered_unite(&x->g, DELIVERED_MAX);
    if (last.n == 0) {
        return 0;
    }
    int result = delivered_pack(&x->p->codec, &last, &blob);
    const char *copy = result == 0 ? arena_copy(&x->p->arena, blob.data, blob.len) : NULL;
    x->out.deliveries = slice_of(copy, copy != NULL ? blob.len : 0);
    buf_free(&blob);
    if (result == ERR_INVALID) {
        mark(x, 0, "they are in no order");
        return 0;
    }
    return copy == NULL ? no_memory(err) : 0;
}

static int encode(struct packing *x, struct buf *out, struct err *err)
{
    struct user_snapshot *u = &x->out;
    if (u->n_months + u->n_plays + u->deliveries.len + u->n_exceptions + u->n_damaged + u->n_forgotten == 0 &&
        u->forgotten_ms == 0) {
        return 0;
    }
    int result = user_snapshot_encode(u, out);
    return result == 0           ? 1
           : result == ERR_NOMEM ? no_memory(err)
                                 : err_set(err, ERR_CORRUPT, "user %s: has a month that can't be", log_quote(u->user));
}

static struct packing *packing_new(struct packer *p, int64_t key, struct slice user)
{
    struct packing *x = calloc(1, sizeof *x);
    if (x != NULL) {
        x->p = p;
        x->out = (struct user_snapshot){.key = key, .user = user, .months = x->months, .damaged = x->damaged};
    }
    return x;
}

static int pack(struct packing *x, struct buf *out, struct err *err)
{
    take_marks(x);
    int result = pack_months(x, err);
    if (result == 0) {
        look_for_lost(x);
        result = pack_deliveries(x, err);
    }
    if (result == 0) {
        struct gathered *g = &x->g;
        x->out.n_plays = user_snapshot_sort_plays(g->plays, g->n_plays);
        x->out.plays = g->plays;
        x->out.exceptions = g->exceptions;
        x->out.n_exceptions = g->n_exceptions;
        x->out.last_month = g->last_month > 0 ? g->last_month : 0;
        x->out.forgotten_ms = g->forgotten_ms > 0 ? g->forgotten_ms : 0;
        x->out.forgotten = g->forgotten;
        x->out.n_forgotten = user_snapshot_later_items(g->forgotten, g->n_forgotten, x->out.forgotten_ms);
        result = encode(x, out, err);
    }
    return result;
}

int pack_user(struct packer *p, int64_t key, struct slice user, const struct walked *object, struct buf *out,
              struct err *err)
{
    struct packing *x = packing_new(p, key, user);
    int result = x == NULL ? no_memory(err) : 0;
    if (result < 0) {
        return result;
    }
    arena_reset(&p->arena);
    gathered_begin(&x->g, &p->arena, 0);
    x->g.keeps_forgotten = true;
    for (size_t i = 0; i < object->n && result == 0; i++) {
        result = take(x, &object->pairs[i], err);
    }
    result = result == 0 ? pack(x, out, err) : result;
    free(x);
    return result;
}

int pack_gathered(struct packer *p, int64_t key, struct slice user, const struct gathered *g, struct buf *out,
                  struct err *err)
{
    struct packing *x = packing_new(p, key, user);
    if (x == NULL) {
        return no_memory(err);
    }
    arena_reset(&p->arena);
    x->g = *g;
    x->g.forgotten_ms = INT64_MIN;
    x->g.n_forgotten = 0;
    x->g.forgotten_damaged = x->g.item_damaged = false;
    int result = pack(x, out, err);
    free(x);
    return result;
}

void packer_free(struct packer *p)
{
    arena_free(&p->arena);
    delivered_codec_free(&p->codec);
}
