#include "archive/catalog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- names --- */

const char *catalog_segment_name(const struct catalog_segment *s, char out[DEPOT_NAME_MAX])
{
    snprintf(out, DEPOT_NAME_MAX, "%016" PRIx64 "/seg/%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64, s->node, s->run,
             s->from, s->to);
    return out;
}

const char *catalog_shard_name(const struct catalog_shard *s, char out[DEPOT_NAME_MAX])
{
    snprintf(out, DEPOT_NAME_MAX, "%016" PRIx64 "/base/%08" PRIx32 "/%08" PRIx32 "-%016" PRIx64 "-%016" PRIx64, s->node,
             s->round, s->shard, s->from, s->to);
    return out;
}

const char *catalog_end_name(uint64_t node, uint32_t round, char out[DEPOT_NAME_MAX])
{
    snprintf(out, DEPOT_NAME_MAX, "%016" PRIx64 "/base/%08" PRIx32 "/end", node, round);
    return out;
}

/* Hexadecimal digits, as many as that, and what stands behind them. */
static bool take(const char **at, int digits, const char *behind, uint64_t *n)
{
    *n = 0;
    for (int i = 0; i < digits; i++) {
        char c = (*at)[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) {
            return false;
        }
        *n = *n << 4 | (uint64_t)digit;
    }
    *at += digits;
    size_t len = strlen(behind);
    bool same = len > 0 ? strncmp(*at, behind, len) == 0 : **at == '\0';
    *at += len;
    return same;
}

static bool read_segment(const char *name, struct catalog_segment *s)
{
    return take(&name, 16, "/seg/", &s->node) && take(&name, 16, "-", &s->run) && take(&name, 16, "-", &s->from) &&
           take(&name, 16, "", &s->to) && s->from < s->to;
}

static bool read_shard(const char *name, struct catalog_shard *s)
{
    uint64_t round, shard;
    bool good = take(&name, 16, "/base/", &s->node) && take(&name, 8, "/", &round) && take(&name, 8, "-", &shard) &&
                take(&name, 16, "-", &s->from) && take(&name, 16, "", &s->to) && s->from <= s->to;
    s->round = good ? (uint32_t)round : 0;
    s->shard = good ? (uint32_t)shard : 0;
    return good;
}

static bool read_end(const char *name, struct catalog_round *r)
{
    uint64_t round;
    bool good = take(&name, 16, "/base/", &r->node) && take(&name, 8, "/", &round) && strcmp(name, "end") == 0;
    r->round = good ? (uint32_t)round : 0;
    return good;
}

/* --- reading --- */

static int add(void *arg, const char *name, uint64_t bytes, struct err *err)
{
    struct catalog *c = arg;
    struct catalog_segment segment = {.bytes = bytes};
    struct catalog_shard shard = {.bytes = bytes};
    struct catalog_round round = {.ended = true};
    int rc = 0;
    if (read_segment(name, &segment)) {
        rc = buf_add(&c->segment_list, &segment, sizeof segment);
    } else if (read_shard(name, &shard)) {
        rc = buf_add(&c->shard_list, &shard, sizeof shard);
    } else if (read_end(name, &round)) {
        rc = buf_add(&c->round_list, &round, sizeof round);
    }
    return rc < 0 ? err_set(err, ERR_NOMEM, "out of memory for the list of an archive") : 0;
}

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int by_from(const void *a, const void *b)
{
    const struct catalog_segment *x = a, *y = b;
    return x->node != y->node   ? ORDER(x->node, y->node)
           : x->from != y->from ? ORDER(x->from, y->from)
           : x->to != y->to     ? ORDER(x->to, y->to)
                                : ORDER(x->run, y->run);
}

static int by_shard(const void *a, const void *b)
{
    const struct catalog_shard *x = a, *y = b;
    return x->node != y->node     ? ORDER(x->node, y->node)
           : x->round != y->round ? ORDER(x->round, y->round)
           : x->shard != y->shard ? ORDER(x->shard, y->shard)
           : x->from != y->from   ? ORDER(x->from, y->from)
                                  : ORDER(x->to, y->to);
}

static int by_round(const void *a, const void *b)
{
    const struct catalog_round *x = a, *y = b;
    return x->node != y->node ? ORDER(x->node, y->node) : ORDER(x->round, y->round);
}

static void sort(struct buf *list, size_t size, int (*order)(const void *a, const void *b))
{
    if (list->len > size) {
        qsort(list->data, list->len / size, size, order);
    }
}

/* Rounds that have no end are those that shards alone tell of. */
static int find_rounds(struct catalog *c, struct err *err)
{
    const struct catalog_shard *s = (const struct catalog_shard *)(const void *)c->shard_list.data;
    size_t n = c->shard_list.len / sizeof *s, n_ended = c->round_list.len / sizeof(struct catalog_round);
    for (size_t i = 0, end; i < n; i = end) {
        struct catalog_round r = {.node = s[i].node, .round = s[i].round, .from = s[i].from, .to = s[i].to};
        for (end = i; end < n && s[end].node == r.node && s[end].round == r.round; end++) {
            r.shards += s[end].shard == r.shards;
            r.from = s[end].from < r.from ? s[end].from : r.from;
            r.to = s[end].to > r.to ? s[end].to : r.to;
            r.bytes += s[end].bytes;
        }
        struct catalog_round *ended = (struct catalog_round *)(void *)c->round_list.data;
        size_t k = 0;
        while (k < n_ended && (ended[k].node != r.node || ended[k].round != r.round)) {
            k++;
        }
        r.ended = k < n_ended;
        if (k < n_ended) {
            ended[k] = r;
        } else if (buf_add(&c->round_list, &r, sizeof r) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for the list of an archive");
        }
    }
    return 0;
}

int catalog_read(struct depot *d, uint64_t node, struct catalog *c, struct err *err)
{
    char folder[DEPOT_NAME_MAX] = "";
    buf_clear(&c->segment_list);
    buf_clear(&c->shard_list);
    buf_clear(&c->round_list);
    if (node != 0) {
        snprintf(folder, sizeof folder, "%016" PRIx64 "/", node);
    }
    int rc = d->ops->list(d, folder, add, c, err);
    if (rc < 0) {
        return rc;
    }
    sort(&c->segment_list, sizeof(struct catalog_segment), by_from);
    sort(&c->shard_list, sizeof(struct catalog_shard), by_shard);
    if ((rc = find_rounds(c, err)) < 0) {
        return rc;
    }
    sort(&c->round_list, sizeof(struct catalog_round), by_round);
    c->segments = (const struct catalog_segment *)(const void *)c->segment_list.data;
    c->shards = (const struct catalog_shard *)(const void *)c->shard_list.data;
    c->rounds = (const struct catalog_round *)(const void *)c->round_list.data;
    c->n_segments = c->segment_list.len / sizeof *c->segments;
    c->n_shards = c->shard_list.len / sizeof *c->shards;
    c->n_rounds = c->round_list.len / sizeof *c->rounds;
    return 0;
}

void catalog_free(struct catalog *c)
{
    buf_free(&c->segment_list);
    buf_free(&c->shard_list);
    buf_free(&c->round_list);
    *c = (struct catalog){0};
}

/* --- chains --- */

const struct catalog_segment *catalog_next(const struct catalog *c, uint64_t node, uint64_t reached, size_t *i)
{
    const struct catalog_segment *best = NULL;
    while (*i < c->n_segments && c->segments[*i].node < node) {
        ++*i;
    }
    for (size_t k = *i; k < c->n_segments && c->segments[k].node == node && c->segments[k].from <= reached; k++) {
        const struct catalog_segment *s = &c->segments[k];
        if (s->to > reached && (best == NULL || s->to > best->to)) {
            best = s;
        }
        if (s->to <= reached && k == *i) {
            ++*i; /* nothing that comes later looks at it again */
        }
    }
    return best;
}

uint64_t catalog_reach(const struct catalog *c, uint64_t node, uint64_t from)
{
    const struct catalog_segment *s;
    for (size_t i = 0; (s = catalog_next(c, node, from, &i)) != NULL; from = s->to) {
    }
    return from;
}

/* Of another run, behind the first one of its run and before it. */
static const struct catalog_segment *find_between(const struct catalog *c, size_t i)
{
    const struct catalog_segment *s = &c->segments[i];
    size_t first = i;
    for (size_t k = i; k > 0 && c->segments[k - 1].node == s->node; k--) {
        first = c->segments[k - 1].run == s->run ? k - 1 : first;
    }
    for (size_t k = first; k < i; k++) {
        const struct catalog_segment *t = &c->segments[k];
        if (t->run != s->run && t->from > c->segments[first].from && t->from < s->from) {
            return t;
        }
    }
    return NULL;
}

const struct catalog_segment *catalog_beside(const struct catalog *c, uint64_t node)
{
    const struct catalog_segment *beside = NULL;
    for (size_t i = 1; i < c->n_segments && beside == NULL; i++) {
        const struct catalog_segment *s = &c->segments[i];
        if (s->node == node && s[-1].node == node && s[-1].run != s->run) {
            beside = find_between(c, i);
        }
    }
    return beside;
}

const struct catalog_shard *catalog_shards(const struct catalog *c, uint64_t node, uint32_t round, size_t *n)
{
    size_t i = 0;
    while (i < c->n_shards && (c->shards[i].node != node || c->shards[i].round != round)) {
        i++;
    }
    for (*n = 0; i + *n < c->n_shards && c->shards[i + *n].node == node && c->shards[i + *n].round == round; ++*n) {
    }
    return c->shards + i;
}

int catalog_check_segment(const struct catalog_segment *s, const struct object_head *h, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    bool same =
        h->kind == OBJECT_SEGMENT && h->node == s->node && h->run == s->run && h->from == s->from && h->to == s->to;
    return same ? 0 : err_set(err, ERR_CORRUPT, "%s holds another object", catalog_segment_name(s, name));
}

int catalog_check_shard(const struct catalog_shard *s, const struct object_head *h, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    bool same = h->kind == OBJECT_SHARD && h->node == s->node && h->round == s->round && h->shard == s->shard &&
                h->from == s->from && h->to == s->to;
    return same ? 0 : err_set(err, ERR_CORRUPT, "%s holds another object", catalog_shard_name(s, name));
}
