#include "store/sqlite/read/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/prefetch.h"

enum {
    BUCKETS = 4096,
    ASKED = 16384,
    PART_OF_ALL = 8, /* an entry takes at most this part of the limit */
    ALIGN = 8,       /* of a piece of an arena, */
    BLOCK = 64,      /* and more than its block needs beside the pieces */
    AHEAD = 4096,    /* so much of an entry is fetched at once */
};

/* Keys are hashes. */
static struct kept_user **bucket_of(const struct kept_users *kept, int64_t key)
{
    return &kept->buckets[(uint64_t)key % BUCKETS];
}

static bool begin(struct kept_users *kept)
{
    if (kept->buckets == NULL) {
        kept->buckets = calloc(BUCKETS, sizeof(struct kept_user *));
        kept->asked = calloc(ASKED, sizeof *kept->asked);
        if (kept->buckets == NULL || kept->asked == NULL) {
            kept_free(kept);
        }
    }
    return kept->buckets != NULL;
}

/* --- which go first --- */

static struct kept_user *oldest(const struct kept_users *kept)
{
    return (struct kept_user *)kept->uses.oldest;
}

static void end(struct kept_users *kept, struct kept_user *u)
{
    *u->at = u->next;
    if (u->next != NULL) {
        u->next->at = u->at;
    }
    uses_take(&kept->uses, &u->use);
    kept->n--;
    atomic_fetch_sub_explicit(&kept->bytes, u->bytes, memory_order_relaxed);
    arena_free(&u->arena);
    free(u);
}

void kept_cut(struct kept_users *kept, size_t limit)
{
    while (oldest(kept) != NULL && atomic_load_explicit(&kept->bytes, memory_order_relaxed) > limit) {
        struct kept_user *u = oldest(kept);
        if (u->used) {
            u->used = false;
            uses_take(&kept->uses, &u->use);
            uses_put(&kept->uses, &u->use);
        } else {
            end(kept, u);
        }
    }
}

void kept_free(struct kept_users *kept)
{
    while (oldest(kept) != NULL) {
        end(kept, oldest(kept));
    }
    free(kept->buckets);
    free(kept->asked);
    kept->buckets = NULL;
    kept->asked = NULL;
}

/* --- looking up --- */

/* Of one user there is one entry: an older version is of no use, and one that began with another month seldom, as the
 * window has moved for all (HISTORY alone asks about all months). */
static struct kept_user *entry_of(const struct kept_users *kept, int64_t key)
{
    struct kept_user *u = *bucket_of(kept, key);
    while (u != NULL && u->key != key) {
        u = u->next;
    }
    return u;
}

/* What of an entry is read first, all at once: else each line would be waited for by itself. */
static void fetch(const struct kept_user *u)
{
    const struct store_month *months = u->view.months; /* the block begins with them */
    const size_t begin = u->view.n_months * sizeof *months, rest = u->bytes - sizeof *u - BLOCK - begin;
    for (size_t i = 0; i < u->view.n_months; i++) {
        prefetch(&months[i], 2 * CACHE_LINE);
    }
    if (months != NULL) {
        prefetch(months + u->view.n_months, rest < AHEAD ? rest : AHEAD);
    }
}

const struct kept_user *kept_find(struct kept_users *kept, int64_t key, int first_month, unsigned version)
{
    struct kept_user *u = kept->n > 0 ? entry_of(kept, key) : NULL;
    if (u == NULL || u->first_month != first_month || u->version != version) {
        return NULL;
    }
    u->used = true;
    fetch(u);
    return u;
}

bool kept_wanted(struct kept_users *kept, int64_t key)
{
    if (!begin(kept)) {
        return false;
    }
    int64_t *place = &kept->asked[(uint64_t)key % ASKED];
    const bool is_asked = *place == key;
    *place = key;
    return is_asked;
}

/* --- adding --- */

static size_t piece(size_t n, size_t size)
{
    return n == 0 ? 0 : (n * size + ALIGN - 1) / ALIGN * ALIGN;
}

/* Of all that copy() makes. */
static size_t size_of(const struct store_view *view)
{
    size_t all = piece(view->n_months, sizeof *view->months) + piece(view->n_deliveries, sizeof *view->deliveries) +
                 piece(view->n_exceptions, sizeof *view->exceptions);
    for (size_t i = 0; i < view->n_months; i++) {
        const struct filter *f = &view->months[i].filter;
        for (unsigned p = 0; p < f->n_parts; p++) {
            all += piece(f->parts[p].n, sizeof *f->parts[p].positions);
            all += f->parts[p].tails != NULL ? piece(f->parts[p].n, sizeof *f->parts[p].tails) : 0;
        }
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        all += piece(view->deliveries[i].item.len, 1);
    }
    return all;
}

/* NULL, as there is none, or with *good = false when there is no memory. */
static void *copy_of(struct arena *arena, const void *array, size_t n, size_t size, bool *good)
{
    void *made = n > 0 ? arena_copy(arena, array, n * size) : NULL;
    *good = *good && (made != NULL || n == 0);
    return made;
}

static bool copy_filter(struct arena *arena, struct filter *f)
{
    bool good = true;
    for (unsigned p = 0; p < f->n_parts; p++) {
        struct filter_part *part = &f->parts[p];
        part->positions = copy_of(arena, part->positions, part->n, sizeof *part->positions, &good);
        if (part->tails != NULL) {
            part->tails = copy_of(arena, part->tails, part->n, sizeof *part->tails, &good);
        }
    }
    return good;
}

static bool copy(struct arena *arena, const struct store_view *from, struct store_view *to)
{
    bool good = true;
    struct store_month *months = copy_of(arena, from->months, from->n_months, sizeof *months, &good);
    struct store_delivery *deliveries = copy_of(arena, from->deliveries, from->n_deliveries, sizeof *deliveries, &good);
    *to = (struct store_view){.known = from->known,
                              .months = months,
                              .n_months = from->n_months,
                              .deliveries = deliveries,
                              .n_deliveries = from->n_deliveries,
                              .n_exceptions = from->n_exceptions};
    to->exceptions = copy_of(arena, from->exceptions, from->n_exceptions, sizeof *from->exceptions, &good);
    for (size_t i = 0; i < from->n_months && good; i++) {
        good = copy_filter(arena, &months[i].filter);
    }
    for (size_t i = 0; i < from->n_deliveries && good; i++) {
        deliveries[i].item.data = copy_of(arena, deliveries[i].item.data, deliveries[i].item.len, 1, &good);
    }
    return good;
}

void kept_add(struct kept_users *kept, const struct kept_user *user, size_t limit)
{
    const size_t pieces = size_of(&user->view), bytes = sizeof *user + BLOCK + pieces;
    if (!begin(kept)) {
        return;
    }
    struct kept_user *before = entry_of(kept, user->key);
    if (before != NULL) {
        end(kept, before);
    }
    kept_cut(kept, bytes <= limit / PART_OF_ALL ? limit - bytes : limit);
    if (bytes > limit / PART_OF_ALL) {
        return;
    }
    struct kept_user *made = malloc(sizeof *made);
    if (made == NULL) {
        return;
    }
    *made = (struct kept_user){.key = user->key,
                               .first_month = user->first_month,
                               .version = user->version,
                               .blob_bytes = user->blob_bytes,
                               .bytes = bytes,
                               .arena = {.block_size = pieces}};
    if (!copy(&made->arena, &user->view, &made->view)) {
        arena_free(&made->arena);
        free(made);
        return;
    }
    made->at = bucket_of(kept, made->key);
    made->next = *made->at;
    if (made->next != NULL) {
        made->next->at = &made->next;
    }
    *made->at = made;
    uses_put(&kept->uses, &made->use);
    kept->n++;
    atomic_fetch_add_explicit(&kept->bytes, bytes, memory_order_relaxed);
}
