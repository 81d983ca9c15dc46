#include "store/user/deliveries.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST = 16,
    KEEP_BYTES = 1024 * 1024, /* as an arena does with its blocks */
    /* Items that are remembered while a list is united, at a load of at most a half. */
    CELLS_MAX = 32768,
};

_Static_assert(CELLS_MAX >= 2 * DELIVERED_MAX, "the table of kept items is at most half full");
_Static_assert(DELIVERED_MAX < UINT16_MAX, "a cell holds the number of a kept item");

/* --- a list --- */

void delivered_free(struct delivered *d)
{
    if (d->cap > 0) {
        free(d->list);
    }
    *d = (struct delivered){0};
}

void delivered_clear(struct delivered *d)
{
    if (d->cap == 0 || d->cap * sizeof *d->list > KEEP_BYTES) {
        delivered_free(d);
    }
    d->n = 0;
}

int delivered_reserve(struct delivered *d, size_t need)
{
    if (need <= d->cap) {
        return 0;
    }
    size_t cap = d->cap < FIRST ? FIRST : d->cap + d->cap / 2;
    cap = cap < need ? need : cap;
    struct store_delivery *list = reallocarray(d->cap > 0 ? d->list : NULL, cap, sizeof *list);
    if (list == NULL) {
        return ERR_NOMEM;
    }
    if (d->cap == 0 && d->n > 0) {
        memcpy(list, d->list, d->n * sizeof *list);
    }
    d->list = list;
    d->cap = cap;
    return 0;
}

int delivered_add(struct delivered *d, const struct store_delivery *list, size_t n)
{
    int rc = n > 0 ? delivered_reserve(d, d->n + n) : 0;
    if (rc == 0 && n > 0) {
        memcpy(d->list + d->n, list, n * sizeof *list);
        d->n += n;
    }
    return rc;
}

/* --- what counts ---
 * What comes newest first, as it nearly always does, is only read. Otherwise a heap with the newest on top gives them
 * up in order; each that is kept is kept at the end of the array, from behind, where the heap has just shrunk; so
 * nothing needs memory, and the rest is never sorted. The last item that counts ends it. */

static bool older(const struct store_delivery *a, const struct store_delivery *b)
{
    return a->stamp != b->stamp ? a->stamp < b->stamp : a->hash != b->hash ? a->hash < b->hash : a->group < b->group;
}

/* What is kept: from `first` on, upwards or, of a heap, downwards. */
struct kept {
    struct store_delivery *first;
    ptrdiff_t step;
    size_t n, items, most; /* most: of items */
    size_t mask;
    uint32_t cells[CELLS_MAX]; /* an open-addressing table by hash: 1 + the number of an item's oldest kept one */
};

static void kept_begin(struct kept *k, struct store_delivery *first, ptrdiff_t step, size_t most)
{
    k->first = first;
    k->step = step;
    k->n = k->items = 0;
    k->most = most < DELIVERED_MAX ? most : DELIVERED_MAX;
    k->mask = 1;
    while (k->mask + 1 < 2 * k->most) {
        k->mask = 2 * k->mask + 1;
    }
    memset(k->cells, 0, (k->mask + 1) * sizeof(k->cells[0]));
}

/* Keeps the next newest, unless it is there, or newer times of its item are enough. */
static inline void keep(struct kept *k, const struct store_delivery *d)
{
    size_t at = (size_t)d->hash & k->mask;
    uint32_t which = (uint32_t)k->items, nth = 0;
    for (; k->cells[at] != 0; at = (at + 1) & k->mask) {
        const struct store_delivery *newer = k->first + k->step * (ptrdiff_t)(k->cells[at] - 1);
        if (newer->hash == d->hash && slice_eq(newer->item, d->item)) {
            if (delivered_ms(newer->stamp) == delivered_ms(d->stamp) || newer->nth + 1 == DELIVERED_TIMES) {
                return;
            }
            which = newer->which;
            nth = newer->nth + 1;
            break;
        }
    }
    struct store_delivery *to = k->first + k->step * (ptrdiff_t)k->n;
    if (to != d) {
        *to = *d;
    }
    to->which = which;
    to->nth = nth;
    k->items += nth == 0;
    k->cells[at] = (uint32_t)++k->n;
}

static bool comes_newest_first(const struct store_delivery *list, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (older(&list[i - 1], &list[i])) {
            return false;
        }
    }
    return true;
}

/* Puts d where it belongs, from place i of a heap of n downwards. */
static void sift(struct store_delivery *heap, size_t n, size_t i, struct store_delivery d)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && older(&heap[child], &heap[child + 1])) {
            child++;
        }
        if (!older(&d, &heap[child])) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = d;
}

/* Into the end of the list. */
static void keep_by_heap(struct kept *k, struct store_delivery *list, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) {
        sift(list, n, i, list[i]);
    }
    while (n > 0 && k->items < k->most) {
        struct store_delivery newest = list[0];
        n--;
        if (n > 0) {
            sift(list, n, 0, list[n]);
        }
        keep(k, &newest);
    }
}

size_t delivered_unite(struct delivered *d, size_t max)
{
    struct store_delivery *list = d->list;
    const size_t n = d->n, most = max < n ? max : n;
    struct kept k;
    if (comes_newest_first(list, n)) {
        kept_begin(&k, list, 1, most);
        for (size_t i = 0; i < n && k.items < k.most; i++) {
            keep(&k, &list[i]);
        }
        d->n = k.n;
        return k.items;
    }
    kept_begin(&k, list + n - 1, -1, most);
    keep_by_heap(&k, list, n);
    for (size_t i = 0, j = n; i + 1 < j; i++) {
        j--;
        struct store_delivery swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
    d->n = k.n;
    return k.items;
}

size_t delivered_items(const struct store_delivery *list, size_t n)
{
    size_t items = 0;
    for (size_t i = 0; i < n; i++) {
        items += list[i].nth == 0;
    }
    return items;
}

uint64_t delivered_group(const struct store_delivery *list, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].hash == hash && list[i].group != 0) {
            return list[i].group;
        }
    }
    return 0;
}

bool delivered_has(const struct delivered *d, const struct store_delivery *one)
{
    size_t low = 0, high = d->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (older(one, &d->list[middle])) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < d->n && !older(&d->list[low], one); low++) { /* two items may have one hash */
        if (slice_eq(d->list[low].item, one->item)) {
            return true;
        }
    }
    return false;
}

size_t delivered_unsee(struct delivered *d, const struct delivered_unseen *what)
{
    size_t left = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct store_delivery *of = &d->list[i];
        bool gone = of->stamp < what->cut;
        for (size_t j = 0; j < what->n && !gone; j++) {
            gone = of->hash == what->hashes[j] && (what->items == NULL || slice_eq(of->item, what->items[j]));
        }
        if (!gone) {
            d->list[left++] = *of;
        }
    }
    const size_t went = d->n - left;
    d->n = left;
    if (went > 0) {
        delivered_unite(d, DELIVERED_MAX); /* others came before */
    }
    return went;
}
