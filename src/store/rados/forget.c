/* Forgetting a user, and un-seeing items. Both are written under the version that was read: a play that came between
 * makes them read again, so that they take all that was answered before them, and one that is late takes nothing that
 * came after. Both leave tombstones in the object, for replays of what they took. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/filter.h"
#include "store/rados/gathered.h"
#include "store/rados/rados.h"

/* Filters are looked through on the store's thread, once they are all there: the directory, which is read first, tells
 * what memory to claim for them. */

/* A month's filter, in part. */
struct blob {
    struct blob *next;
    int month;
    struct slice bytes;
};

/* A key that goes. */
struct going {
    struct going *next;
    struct layout_key key;
};

/* A delivery of the user, of any item. */
struct sent {
    struct sent *next;
    struct store_delivery of;
};

/* What is found of an item. */
struct item {
    bool exact;    /* a play of the window, or one of the last deliveries */
    bool filtered; /* in any month ... */
    bool window;   /* ... or in one of the window */
    bool excepted;
    bool found; /* in the blob that is being read */
    int64_t forgotten_ms;
};

struct op {
    struct update update; /* first */
    struct writes_turn turn;
    struct store_forget *forget;
    bool known;
    bool was_forgotten;
    int64_t forgotten_ms;
    size_t n_tombstones; /* of items */
    bool listed;         /* of items: all but the filters was read */
    size_t filters_bytes;
    struct blob *blobs;
    struct going *going;
    struct sent *sent;
    size_t n_sent;
    size_t n; /* distinct items */
    uint64_t *hashes;
    struct item *items;
};

static struct op *op_of(struct update *u)
{
    return (struct op *)u;
}

static void again(struct update *u)
{
    static const struct fetch_range user[] = {{"d", 1}, {"f", CLUSTER_PAGE}, {"p", 1}, {"q", 1}};
    static const struct slice directory[] = {{"w", 1}};
    struct op *o = op_of(u);
    u->fetch.ranges = o->n > 0 ? gathered_but_filters : user;
    u->fetch.n_ranges = o->n > 0 ? GATHERED_RANGES - 1 : sizeof user / sizeof *user;
    u->fetch.keys = directory;
    u->fetch.n_keys = 1;
    u->fetch.first_page = o->n == 0;
    o->listed = false;
    o->filters_bytes = 0;
    o->blobs = NULL;
    o->known = o->was_forgotten = false;
    o->forgotten_ms = INT64_MIN;
    o->n_tombstones = 0;
    o->going = NULL;
    o->sent = NULL;
    o->n_sent = 0;
    for (size_t i = 0; i < o->n; i++) {
        o->items[i] = (struct item){.forgotten_ms = INT64_MIN};
    }
}

static int set_tombstone(struct op *o, bool item, uint64_t hash, int64_t before_ms)
{
    struct update *u = &o->update;
    char value[LAYOUT_HEX];
    int64_t later = o->forget->stated_ms, earlier;
    if (later == 0) {
        guarded_clock_now(&u->s->clock, &later, &earlier);
    }
    int64_t ms = later > before_ms ? later : before_ms;
    layout_hex((uint64_t)(ms > 0 ? ms : 0), value);
    return update_set(u, &(struct layout_key){.kind = LAYOUT_FORGOTTEN, .item = item, .hash = hash},
                      slice_of(value, sizeof value));
}

/* --- a user --- */

static int take_of_user(struct update *u, const struct layout_key *key, struct slice value)
{
    struct op *o = op_of(u);
    switch (key->kind) {
    case LAYOUT_DELIVERY:
    case LAYOUT_PLAY:
    case LAYOUT_DAMAGED:
        o->known = true;
        break;
    case LAYOUT_DIRECTORY:
        o->known = o->known || value.len > LAYOUT_LIMIT;
        break;
    case LAYOUT_FORGOTTEN:
        o->n_tombstones += key->item;
        o->was_forgotten = o->was_forgotten || !key->item;
        if (!key->item) {
            layout_ms(value, &o->forgotten_ms); /* one that can't be read is written again */
        }
        break;
    default:
        break;
    }
    return 0;
}

/* As it is to be by the merge whose second half this is. */
static bool is_as_merged(const struct update *u, const struct store_forget *f)
{
    return f->merge == NULL || (u->existed == (f->before > 0) && (!u->existed || u->version == f->before - 1));
}

static int plan_user(struct update *u)
{
    struct op *o = op_of(u);
    if (!is_as_merged(u, o->forget)) {
        return err_set(&u->err, ERR_BUSY, "user %s is changed by others all the time", log_quote(u->user));
    }
    o->forget->answer = o->known;
    update_clear(u);
    int result = set_tombstone(o, false, 0, o->forgotten_ms);
    result = result < 0 ? result : update_generation(u);
    return result < 0 ? result : UPDATE_WRITE;
}

/* --- items --- */

static void see(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n)
{
    struct op *o = arg;
    if (n == 0) {
        return;
    }
    for (size_t i = 0; i < o->n; i++) {
        uint32_t wanted = filter_part_position(part, o->hashes[i]);
        if (wanted < positions[0] || wanted > positions[n - 1]) {
            continue;
        }
        uint32_t low = 0, high = n;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (positions[middle] < wanted) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        o->items[i].found |=
            low < n && positions[low] == wanted && filter_part_fits(part->tails, before + low, o->hashes[i]);
    }
}

static int take_filter(struct update *u, const struct layout_key *key, struct slice bytes)
{
    struct op *o = op_of(u);
    struct blob *blob = arena_alloc(&u->arena, sizeof *blob);
    const char *copy = arena_copy(&u->arena, bytes.data, bytes.len);
    if (blob == NULL || copy == NULL) {
        return update_nomem(u);
    }
    *blob = (struct blob){o->blobs, key->month, slice_of(copy, bytes.len)};
    o->blobs = blob;
    return 0;
}

static int look_through(struct op *o, const struct blob *blob)
{
    struct update *u = &o->update;
    struct filter filter;
    char name[MONTH_TEXT];
    int code = filter_scan(blob->bytes.data, blob->bytes.len, see, o, &filter, NULL);
    bool good = code == 0;
    if (code == ERR_NOMEM) {
        return update_nomem(u);
    }
    if (!good && config_now(u->s->cfg)->on_damage == DAMAGE_ERROR) {
        return err_set(&u->err, ERR_CORRUPT, "user %s: %s is damaged", log_quote(u->user),
                       month_name(blob->month, name));
    }
    for (size_t i = 0; i < o->n; i++) {
        struct item *item = &o->items[i];
        item->found = item->found && good;
        item->filtered = item->filtered || item->found;
        item->window = item->window || (item->found && blob->month >= o->forget->first_month);
        item->found = false;
    }
    return 0;
}

static int add_going(struct op *o, const struct layout_key *key)
{
    struct going *going = arena_alloc(&o->update.arena, sizeof *going);
    if (going == NULL) {
        return update_nomem(&o->update);
    }
    *going = (struct going){o->going, *key};
    o->going = going;
    return 0;
}

/* One that can't be read is for the check to name. */
static int add_sent(struct op *o, const struct layout_key *key, struct slice value)
{
    struct layout_delivery d;
    if (layout_delivery_read(value, &d) < 0) {
        return 0;
    }
    struct sent *sent = arena_alloc(&o->update.arena, sizeof *sent);
    const char *copy = arena_copy(&o->update.arena, d.item.data, d.item.len);
    if (sent == NULL || copy == NULL) {
        return update_nomem(&o->update);
    }
    *sent = (struct sent){o->sent, {.stamp = key->stamp, .hash = key->hash, .item = slice_of(copy, d.item.len)}};
    o->sent = sent;
    o->n_sent++;
    return 0;
}

/* Of the deliveries, the last ones are seen. Those that have fallen off the list are still there or not, by when a
 * merge was. So they go once an item of a full list does: else they would come back. */
static int look_at_deliveries(struct op *o)
{
    const size_t max = (size_t)config_now(o->update.s->cfg)->delivered_max;
    struct delivered last = {.list = arena_alloc(&o->update.arena, o->n_sent * sizeof *last.list + 1)};
    if (last.list == NULL) {
        return update_nomem(&o->update);
    }
    for (const struct sent *s = o->sent; s != NULL; s = s->next) {
        last.list[last.n++] = s->of;
    }
    const bool full = delivered_unite(&last, max) == max;
    for (size_t i = 0; i < last.n; i++) {
        const size_t at = hash_place(o->hashes, o->n, last.list[i].hash);
        if (at < o->n) {
            o->items[at].exact = true;
        }
    }
    int result = 0;
    for (const struct sent *s = o->sent; s != NULL && result == 0 && full; s = s->next) {
        const struct layout_key key = {.kind = LAYOUT_DELIVERY, .stamp = s->of.stamp, .hash = s->of.hash};
        const bool of_item = hash_place(o->hashes, o->n, key.hash) < o->n;
        result = !of_item && key.stamp < last.list[last.n - 1].stamp ? add_going(o, &key) : 0;
    }
    return result;
}

static int take_of_items(struct update *u, const struct layout_key *key, struct slice value)
{
    struct op *o = op_of(u);
    size_t at = hash_place(o->hashes, o->n, key->hash);
    struct item *item = at < o->n ? &o->items[at] : NULL;
    switch (key->kind) {
    case LAYOUT_FILTER:
        return take_filter(u, key, value);
    case LAYOUT_DIRECTORY:
        o->filters_bytes = layout_directory_sum(value);
        return 0;
    case LAYOUT_DAMAGED:
        return config_now(u->s->cfg)->on_damage == DAMAGE_ERROR
                   ? err_set(&u->err, ERR_CORRUPT, "user %s came with a mark of damage", log_quote(u->user))
                   : 0;
    case LAYOUT_EXCEPTION:
        if (item != NULL) {
            item->excepted = true;
        }
        return 0;
    case LAYOUT_FORGOTTEN:
        if (item != NULL && key->item) {
            o->n_tombstones++;
            layout_ms(value, &item->forgotten_ms);
        }
        return 0;
    case LAYOUT_PLAY:
    case LAYOUT_DELIVERY:
        break;
    default:
        return 0;
    }
    int result = key->kind == LAYOUT_DELIVERY ? add_sent(o, key, value) : 0;
    if (item == NULL || result < 0) {
        return result;
    }
    item->exact = item->exact || (key->kind == LAYOUT_PLAY && key->month >= o->forget->first_month);
    return add_going(o, key);
}

static int read_filters(struct op *o)
{
    static const struct fetch_range filters[] = {{"m", 4}};
    struct update *u = &o->update;
    o->listed = true;
    u->fetch.n_keys = 0;
    u->fetch.ranges = filters;
    u->fetch.n_ranges = 1;
    int result = update_expect(u, o->filters_bytes);
    return result < 0 ? result : UPDATE_READ;
}

static int plan_items(struct update *u)
{
    struct op *o = op_of(u);
    int64_t answer = 0;
    if (!o->listed && update_existed(u)) {
        return read_filters(o);
    }
    int result = update_generation(u);
    result = result < 0 ? result : look_at_deliveries(o);
    for (const struct blob *b = o->blobs; b != NULL && result == 0; b = b->next) {
        result = look_through(o, b);
        heartbeat_now(&u->s->queue.task.heartbeat);
    }
    for (size_t i = 0; i < o->n && result == 0; i++) {
        const struct item *item = &o->items[i];
        answer += item->exact || (item->window && !item->excepted);
        if (item->filtered && !item->excepted) {
            result =
                update_set(u, &(struct layout_key){.kind = LAYOUT_EXCEPTION, .hash = o->hashes[i]}, slice_of("", 0));
        }
        result = result < 0 ? result : set_tombstone(o, true, o->hashes[i], item->forgotten_ms);
    }
    for (const struct going *g = o->going; g != NULL && result == 0; g = g->next) {
        result = update_remove(u, &g->key);
    }
    o->forget->answer = answer;
    return result < 0 ? result : UPDATE_WRITE;
}

/* --- both --- */

static void count(struct op *o)
{
    struct rados_store *s = o->update.s;
    const struct store_forget *f = o->forget;
    pthread_mutex_lock(&s->mutex);
    if (f->n_items == 0) {
        s->stats.users_forgotten += (uint64_t)f->answer;
        s->stats.tombstones += !o->was_forgotten;
        s->stats.tombstones -= o->n_tombstones < s->stats.tombstones ? o->n_tombstones : s->stats.tombstones;
    } else {
        s->stats.items_forgotten += (uint64_t)f->answer;
        s->stats.tombstones += o->n - o->n_tombstones;
    }
    pthread_mutex_unlock(&s->mutex);
}

static void done(struct update *u)
{
    struct op *o = op_of(u);
    struct rados_store *s = u->s;
    struct store_forget *f = o->forget;
    char name[255];
    struct slice user = slice_of(name, u->user.len);
    memcpy(name, u->user.data, u->user.len);
    f->err = u->err;
    if (f->err.code == 0) {
        count(o);
    } else {
        f->answer = 0;
    }
    int64_t key = u->key;
    update_destroy(u);
    free(o);
    f->done(f);
    writes_end_turn(s, key, user);
}

static void start(struct writes_turn *turn)
{
    struct op *o = (struct op *)((char *)turn - offsetof(struct op, turn));
    update_start(&o->update);
}

static struct op *op_new(struct store_forget *f)
{
    struct op *o = calloc(1, sizeof *o + f->n_items * (sizeof(uint64_t) + sizeof(struct item)));
    if (o != NULL) {
        o->forget = f;
        o->items = (struct item *)(o + 1);
        o->hashes = (uint64_t *)(o->items + f->n_items);
        if (f->n_items > 0) {
            memcpy(o->hashes, f->hashes, f->n_items * sizeof *o->hashes);
            o->n = hash_distinct(o->hashes, f->n_items);
        }
    }
    return o;
}

/* Also when staging_memory is used up: a forget makes room. */
void rados_forget(struct store *base, struct store_forget *forget)
{
    struct rados_store *s = rados_of(base);
    bool items = forget->n_items > 0;
    struct op *o = op_new(forget);
    forget->err = (struct err){0};
    forget->answer = 0;
    if (o != NULL) {
        struct update *u = &o->update;
        update_init(u, s, forget->key, forget->user);
        u->guard = UPDATE_BY_VERSION;
        u->heavy = items;
        u->must = true;
        u->again = again;
        u->take = items ? take_of_items : take_of_user;
        u->plan = items ? plan_items : plan_user;
        u->done = done;
        u->quota = items ? &s->large : &s->small;
        u->quota_bytes = items ? RADOS_LARGE_BYTES : RADOS_QUESTION_BYTES;
        o->turn.start = start;
    }
    if (o == NULL || writes_take_turn(s, forget->key, forget->user, &o->turn) < 0) {
        if (o != NULL) {
            update_destroy(&o->update);
            free(o);
        }
        err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
        rados_store_post(s, &forget->message, RADOS_FORGET);
    }
}
