/* MERGE: the first user is packed as a snapshot, which is imported as the second one. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "store/codec/user_snapshot.h"
#include "store/memory/memory.h"

struct packing {
    struct arena arena;
    struct delivered_codec codec;
    struct buf out;
    struct err *err;
};

static int no_memory(struct packing *p)
{
    return err_set(p->err, ERR_NOMEM, "out of memory while merging users");
}

static int by_number(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static int pack_deliveries(struct packing *p, const struct memory_user *u, struct slice *out)
{
    const struct delivered list = {.list = u->deliveries, .n = u->n_deliveries};
    struct buf blob = {0};
    if (list.n == 0) {
        return 0;
    }
    int result = delivered_pack(&p->codec, &list, &blob);
    const char *copy = result == 0 ? arena_copy(&p->arena, blob.data, blob.len) : NULL;
    *out = slice_of(copy, copy != NULL ? blob.len : 0);
    buf_free(&blob);
    return copy != NULL ? 0 : no_memory(p);
}

/* Lists in the order that a snapshot has. */
static int pack_lists(struct packing *p, const struct memory_user *u, struct user_snapshot *out)
{
    struct snapshot_month *months = arena_alloc(&p->arena, u->n_months * sizeof *months + 1);
    struct store_play *plays = arena_copy(&p->arena, u->plays, u->n_plays * sizeof *plays);
    uint64_t *exceptions = arena_copy(&p->arena, u->exceptions, u->n_exceptions * sizeof *exceptions);
    int *damaged = arena_copy(&p->arena, u->damaged, u->n_damaged * sizeof *damaged);
    if (months == NULL || plays == NULL || exceptions == NULL || damaged == NULL) {
        return no_memory(p);
    }
    for (size_t i = 0; i < u->n_months; i++) {
        const struct memory_month *m = &u->months[u->n_months - 1 - i];
        months[i] = (struct snapshot_month){m->month, slice_of((const char *)m->blob, m->len)};
    }
    hash_sort(exceptions, u->n_exceptions);
    if (u->n_damaged > 1) {
        qsort(damaged, u->n_damaged, sizeof *damaged, by_number);
    }
    out->n_plays = user_snapshot_sort_plays(plays, u->n_plays);
    out->plays = plays;
    out->months = months;
    out->n_months = u->n_months;
    out->exceptions = exceptions;
    out->n_exceptions = u->n_exceptions;
    out->damaged = damaged;
    out->n_damaged = u->n_damaged;
    return pack_deliveries(p, u, &out->deliveries);
}

/* 1; 0: nothing is known of the user. */
static int pack(struct memory_store *s, struct packing *p, const struct store_merge *merge)
{
    const struct memory_user *u = memory_find(s, merge->from_key, merge->from);
    struct user_snapshot out = {.key = merge->from_key, .user = merge->from};
    if (u == NULL || !u->known) {
        return 0;
    }
    out.last_month = u->last_month;
    int result = pack_lists(p, u, &out);
    return result < 0 ? result : user_snapshot_encode(&out, &p->out) < 0 ? no_memory(p) : 1;
}

static void on_forgotten(struct store_forget *forget)
{
    struct store_merge *merge = forget->merge;
    merge->err = forget->err;
    merge->done(merge);
}

void memory_merge(struct memory_store *s, struct store_merge *merge)
{
    struct packing p = {.err = &merge->err};
    merge->err = (struct err){0};
    merge->answer = 0;
    int result = merge->from_key == merge->into_key && slice_eq(merge->from, merge->into)
                     ? err_set(p.err, ERR_INVALID, "%s can't be merged into itself", log_quote(merge->from))
                     : memory_time_known(&s->base, p.err);
    if (result == 0) {
        pthread_mutex_lock(&s->mutex);
        result = pack(s, &p, merge);
        pthread_mutex_unlock(&s->mutex);
    }
    if (result > 0) {
        merge->answer = 1;
        result = memory_import_as(s, buf_slice(&p.out), merge->into_key, merge->into, p.err);
        arena_reset(&s->arena);
    }
    arena_free(&p.arena);
    delivered_codec_free(&p.codec);
    buf_free(&p.out);
    if (result < 0 || !merge->forgets) {
        merge->done(merge);
        return;
    }
    merge->leaving =
        (struct store_forget){.key = merge->from_key, .user = merge->from, .merge = merge, .done = on_forgotten};
    memory_forget(s, &merge->leaving);
}
