/* What this node writes for users, one thing after another for each.
 *
 * A user who is being written for has an entry with a queue. Events that wait there together become one operation, so
 * what comes while one is under way costs one more, however much it is: that is all the batching there is, and it needs
 * no timer. A forget, an un-seeing or an import has a turn of its own: what was handed in before is written before it,
 * what came after waits for it. Different users know nothing of each other. A batch is answered when its last event
 * is; one that fails says so for all of it, and those of its users that could be written are.
 *
 * Plays that the server stamped are written blind. One whose time was stated is checked first against the user's
 * tombstones, and written under the generation in which those were read: each forget makes another.
 *
 * A batch may have more events than the cluster should be asked for at once: so many are begun, and another one
 * whenever one is answered. Once one has failed, what was not begun is not: the batch has failed. The positions of a
 * batch (positions.c) move once all of its events are recorded.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/rados/fullness.h"
#include "store/rados/rados.h"

enum {
    USER_BUCKETS = 1024,
    ITEMS_A_WRITE = 4096,
    AT_ONCE = 256, /* events of a batch that are begun and not answered */
    POSITION_BYTES = 1024,
    CLUSTER_BYTES = 4096,     /* that librados has of an operation, and a little for its arena */
    ITEM_BYTES = 256,         /* its key and value: planned, and as librados sends them */
    TOMBSTONES_A_PAGE = 128,  /* few users have as many */
    STATED_BYTES = 32 * 1024, /* such a page, as librados has it, and a little for an arena */
    STATED_ARENA = 8 * 1024,  /* of that */
};

/* A batch, until all its events are answered. */
struct pending {
    struct rados_store *s;
    struct store_batch *batch;
    struct positions_write *positions;
    size_t n;                 /* events */
    atomic_size_t left, next; /* that are not answered; and the first that was not begun */
    atomic_size_t credits;    /* events that may be begun; the thread that makes it more than 0 begins them */
    atomic_bool failed;
    size_t bytes; /* that it is charged with */
    pthread_mutex_t mutex;
    struct err err; /* the first */
    struct event {
        struct writes_turn turn; /* first */
        struct pending *pending;
        struct store_event event;
    } events[];
};

struct user_writes {
    struct user_writes *next; /* in its bucket */
    int64_t key;
    struct writes_turn *first, **last;
    bool busy; /* something is under way */
    uint8_t len;
    char name[];
};

/* Events of one user that are written at once. */
struct run {
    struct update update; /* first */
    struct writes_turn *events;
    int64_t user_forgotten; /* INT64_MIN: never */
    struct forgotten {
        struct forgotten *next;
        uint64_t hash;
        int64_t ms;
    } * items_forgotten;
    uint64_t dropped;
    size_t keys;
    size_t bytes; /* charged beyond what its batches were: a user has many tombstones */
    uint8_t len;
    char name[];
};

static void pump(struct rados_store *s, int64_t key, struct slice user);

/* --- entries --- */

static struct writes_shard *shard_of(struct rados_store *s, int64_t key)
{
    return &s->shards[(uint64_t)key % RADOS_SHARDS];
}

static struct user_writes **entry_at(struct writes_shard *shard, int64_t key, struct slice user)
{
    struct user_writes **at = &shard->buckets[((uint64_t)key / RADOS_SHARDS) % USER_BUCKETS];
    while (*at != NULL && !((*at)->key == key && slice_eq(slice_of((*at)->name, (*at)->len), user))) {
        at = &(*at)->next;
    }
    return at;
}

static int enqueue(struct rados_store *s, int64_t key, struct slice user, struct writes_turn *turn)
{
    struct writes_shard *shard = shard_of(s, key);
    turn->next = NULL;
    pthread_mutex_lock(&shard->mutex);
    struct user_writes **at = entry_at(shard, key, user), *u = *at;
    if (u == NULL && (u = malloc(sizeof *u + user.len)) != NULL) {
        *u = (struct user_writes){.key = key, .len = (uint8_t)user.len};
        memcpy(u->name, user.data, user.len);
        u->last = &u->first;
        *at = u;
    }
    if (u != NULL) {
        *u->last = turn;
        u->last = &turn->next;
    }
    pthread_mutex_unlock(&shard->mutex);
    return u != NULL ? 0 : ERR_NOMEM;
}

/* The turn may come, and be over, before this returns: the id is the owner's. */
int writes_take_turn(struct rados_store *s, int64_t key, struct slice user, struct writes_turn *turn)
{
    char name[255];
    memcpy(name, user.data, user.len);
    int result = enqueue(s, key, user, turn);
    if (result == 0) {
        pump(s, key, slice_of(name, user.len));
    }
    return result;
}

void writes_end_turn(struct rados_store *s, int64_t key, struct slice user)
{
    struct writes_shard *shard = shard_of(s, key);
    pthread_mutex_lock(&shard->mutex);
    (*entry_at(shard, key, user))->busy = false;
    pthread_mutex_unlock(&shard->mutex);
    pump(s, key, user);
}

/* --- a batch --- */

static void answer(void *owner, const struct err *err)
{
    struct pending *p = owner;
    struct rados_store *s = p->s;
    struct store_batch *batch = p->batch;
    batch->err = *err;
    pthread_mutex_lock(&s->mutex);
    if (batch->err.code == 0) {
        s->stats.commits++;
        s->stats.rows_recorded += batch->rows;
    } else {
        s->stats.commit_errors++;
    }
    pthread_mutex_unlock(&s->mutex);
    atomic_fetch_sub(&s->bytes, p->bytes);
    pthread_mutex_destroy(&p->mutex);
    free(p);
    batch->done(batch);
}

static void recorded(struct pending *p)
{
    if (p->err.code < 0 || p->positions == NULL) {
        struct err err = p->err;
        rados_positions_drop(p->positions);
        answer(p, &err);
    } else {
        rados_positions_write(p->positions, answer, p);
    }
}

/* Begins as many as there are credits for, and those that come meanwhile. */
static void use_credits(struct pending *p)
{
    do {
        size_t i = atomic_fetch_add(&p->next, 1);
        if (i < p->n) {
            pump(p->s, p->events[i].event.key, p->events[i].event.user);
        }
    } while (atomic_fetch_sub(&p->credits, 1) > 1);
}

/* Not from within itself, or what ends at once would go as deep as there are events. */
static void begin_another(struct pending *p)
{
    if (atomic_fetch_add(&p->credits, 1) == 0) {
        use_credits(p);
    }
}

static void one_less(struct pending *p)
{
    if (atomic_fetch_sub(&p->left, 1) == 1) {
        recorded(p);
    }
}

static void fail_batch(struct pending *p, const struct err *err)
{
    pthread_mutex_lock(&p->mutex);
    p->err = p->err.code == 0 ? *err : p->err;
    pthread_mutex_unlock(&p->mutex);
    atomic_store(&p->failed, true);
}

static void event_done(struct pending *p, const struct err *err)
{
    if (err->code < 0) {
        fail_batch(p, err);
    }
    begin_another(p);
    one_less(p);
}

/* --- a run --- */

static struct run *run_of(struct update *u)
{
    return (struct run *)u;
}

static void again(struct update *u)
{
    struct run *r = run_of(u);
    r->user_forgotten = INT64_MIN;
    r->items_forgotten = NULL;
    r->dropped = 0;
    r->keys = 0;
}

static int take(struct update *u, const struct layout_key *key, struct slice value)
{
    struct run *r = run_of(u);
    int64_t ms;
    if (key->kind != LAYOUT_FORGOTTEN) {
        return 0;
    }
    if (layout_ms(value, &ms) < 0) {
        return err_set(&u->err, ERR_CORRUPT, "user %s: a tombstone is damaged", log_quote(u->user));
    }
    ms = rados_store_forgotten(u->s, ms);
    if (!key->item) {
        r->user_forgotten = ms;
        return 0;
    }
    struct forgotten *item = arena_alloc(&u->arena, sizeof *item);
    if (item == NULL) {
        return update_nomem(u);
    }
    *item = (struct forgotten){r->items_forgotten, key->hash, ms};
    r->items_forgotten = item;
    return 0;
}

static bool is_dropped(const struct run *r, const struct store_event *event, uint64_t hash)
{
    if (event->time != STORE_STATED) {
        return false;
    }
    int64_t ms = r->user_forgotten;
    for (const struct forgotten *f = r->items_forgotten; f != NULL; f = f->next) {
        ms = f->hash == hash && f->ms > ms ? f->ms : ms;
    }
    return event->at_ms <= ms;
}

static int set_play(struct update *u, uint64_t hash, int month, int64_t now)
{
    char value[LAYOUT_HEX];
    layout_hex((uint64_t)(now > 0 ? now : 0), value);
    return update_set(u, &(struct layout_key){.kind = LAYOUT_PLAY, .month = month, .hash = hash},
                      slice_of(value, sizeof value));
}

static int set_delivery(struct update *u, const struct store_item *item, int64_t at_ms)
{
    char value[LAYOUT_DELIVERY_VALUE];
    const struct layout_delivery d = {item->group, month_of_ms(at_ms), item->id};
    size_t len = layout_delivery_write(&d, value);
    const struct layout_key key = {
        .kind = LAYOUT_DELIVERY, .hash = item->hash, .stamp = delivered_stamp(at_ms, rados_store_stamp(u->s))};
    return update_set(u, &key, slice_of(value, len));
}

static int plan(struct update *u)
{
    struct run *r = run_of(u);
    int64_t later, earlier;
    int result = 0;
    guarded_clock_now(&u->s->clock, &later, &earlier);
    for (const struct writes_turn *t = r->events; t != NULL; t = t->next) {
        const struct store_event *event = &((const struct event *)t)->event;
        const uint8_t *at = event->items;
        int month = month_of_ms(event->at_ms);
        for (uint32_t i = 0; i < event->n && result == 0; i++) {
            struct store_item item;
            at = store_event_item(event, at, &item);
            if (is_dropped(r, event, item.hash)) {
                r->dropped++;
                continue;
            }
            r->keys++;
            result =
                event->kind == STORE_PLAY ? set_play(u, item.hash, month, later) : set_delivery(u, &item, event->at_ms);
        }
    }
    return result < 0 ? result : r->keys > 0 ? UPDATE_WRITE : UPDATE_NOTHING;
}

static int full(const struct rados_store *s, struct err *err)
{
    return err_set(err, ERR_BUSY, "too many writes wait for RADOS: staging_memory is %zu MiB",
                   (size_t)config_now(s->cfg)->staging_memory >> 20);
}

static void tell_events(struct writes_turn *events, const struct err *err)
{
    for (struct writes_turn *t = events, *next; t != NULL; t = next) {
        next = t->next;
        event_done(((struct event *)t)->pending, err);
    }
}

static void run_done(struct update *u)
{
    struct run *r = run_of(u);
    struct rados_store *s = u->s;
    struct slice user = slice_of(r->name, r->len);
    if (u->err.code == ERR_NOMEM && u->arena.refused) {
        full(s, &u->err);
    }
    if (u->err.code == 0) {
        pthread_mutex_lock(&s->mutex);
        s->stats.forgotten_dropped += r->dropped;
        s->stats.staged_rows += r->keys;
        pthread_mutex_unlock(&s->mutex);
    }
    tell_events(r->events, &u->err);
    writes_end_turn(s, u->key, user);
    if (u->err.code == 0 && r->keys > 0) {
        merges_recorded(s, u->key, user, r->keys);
    }
    size_t bytes = r->bytes;
    update_destroy(u);
    free(r);
    atomic_fetch_sub(&s->bytes, bytes);
}

/* More tombstones than are reckoned with. */
static bool grow(struct arena *arena, size_t bytes)
{
    struct run *r = arena->owner;
    struct rados_store *s = r->update.s;
    size_t limit = (size_t)config_now(s->cfg)->staging_memory;
    size_t more = bytes > STATED_BYTES ? bytes : STATED_BYTES, before = atomic_fetch_add(&s->bytes, more);
    if (before + more > limit) {
        atomic_fetch_sub(&s->bytes, more);
        return false;
    }
    r->bytes += more;
    arena->limit += more;
    return true;
}

/* Takes what can be written at once from the front of a queue. */
static struct writes_turn *take_events(struct user_writes *u, bool *stated)
{
    struct writes_turn *first = u->first, **end = &u->first;
    uint32_t items = 0;
    while (*end != NULL && (*end)->start == NULL) {
        const struct store_event *event = &((struct event *)*end)->event;
        if (items > 0 && items + event->n > ITEMS_A_WRITE) {
            break;
        }
        items += event->n;
        *stated = *stated || event->time == STORE_STATED;
        end = &(*end)->next;
    }
    u->first = *end;
    *end = NULL;
    if (u->first == NULL) {
        u->last = &u->first;
    }
    return first;
}

/* Takes out those whose batch has failed: no client waits for them any more. */
static struct writes_turn *take_void(struct rados_store *s, struct writes_turn **events)
{
    struct writes_turn *found = NULL;
    bool closing = rados_store_closing(s);
    while (*events != NULL) {
        struct writes_turn *t = *events;
        struct pending *p = ((struct event *)t)->pending;
        if (!atomic_load(&p->failed) && !(closing && p->batch->events > AT_ONCE)) {
            events = &t->next;
            continue;
        }
        *events = t->next;
        t->next = found;
        found = t;
    }
    return found;
}

static size_t count_items(const struct writes_turn *events)
{
    size_t n = 0;
    for (const struct writes_turn *t = events; t != NULL; t = t->next) {
        n += ((const struct event *)t)->event.n;
    }
    return n;
}

static void start_run(struct rados_store *s, int64_t key, struct slice user, struct writes_turn *events, bool stated)
{
    static const struct fetch_range forgotten[] = {{"f", TOMBSTONES_A_PAGE}};
    struct writes_turn *gone = take_void(s, &events);
    if (gone != NULL) {
        struct err closed;
        err_set(&closed, ERR_CLOSED, "the store is closing"); /* those that have failed keep their own error */
        tell_events(gone, &closed);
    }
    if (events == NULL) {
        writes_end_turn(s, key, user);
        return;
    }
    struct run *r = malloc(sizeof *r + user.len);
    if (r == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, "out of memory while recording");
        tell_events(events, &err);
        writes_end_turn(s, key, user);
        return;
    }
    memset(r, 0, sizeof *r);
    r->len = (uint8_t)user.len;
    memcpy(r->name, user.data, user.len);
    r->events = events;
    update_init(&r->update, s, key, slice_of(r->name, r->len));
    if (stated) {
        r->update.arena.limit = STATED_ARENA + count_items(events) * ITEM_BYTES;
        r->update.arena.more = grow;
        r->update.arena.owner = r;
    }
    r->update.blind = !stated;
    r->update.again = again;
    r->update.take = take;
    r->update.plan = plan;
    r->update.done = run_done;
    r->update.fetch.ranges = forgotten;
    r->update.fetch.n_ranges = 1;
    update_start(&r->update);
}

/* Starts what is first, or ends the entry. */
static void pump(struct rados_store *s, int64_t key, struct slice user)
{
    struct writes_shard *shard = shard_of(s, key);
    struct writes_turn *turn = NULL, *events = NULL;
    bool stated = false;
    pthread_mutex_lock(&shard->mutex);
    struct user_writes **at = entry_at(shard, key, user), *u = *at;
    if (u != NULL && !u->busy && u->first == NULL) {
        *at = u->next;
        free(u);
    } else if (u != NULL && !u->busy) {
        u->busy = true;
        if (u->first->start == NULL) {
            events = take_events(u, &stated);
        } else {
            turn = u->first;
            u->first = turn->next;
            u->last = u->first == NULL ? &u->first : u->last;
        }
    }
    pthread_mutex_unlock(&shard->mutex);
    if (events != NULL) {
        start_run(s, key, user, events, stated);
    } else if (turn != NULL) {
        turn->start(turn);
    }
}

/* --- the seam --- */

int writes_refusal(struct rados_store *s, struct err *err)
{
    return atomic_load(&s->bytes) >= (size_t)config_now(s->cfg)->staging_memory ? full(s, err) : 0;
}

/* On the store's thread, since this one is the caller's. */
static void refuse(struct rados_store *s, struct store_batch *batch)
{
    if (batch->err.code == ERR_FULL) {
        RADOS_COUNT(s, full_refusals, 1);
    } else {
        RADOS_COUNT(s, busy_refusals, 1);
    }
    rados_store_post(s, &batch->message, RADOS_BATCH);
}

/* What the batch takes, the entries of its users, and the operations that may be under way for it: one for each user,
 * or run of their events. */
static size_t weigh(const struct store_batch *batch, size_t pending)
{
    size_t at = 0, runs = 0, items = 0, of_run = 0, largest = 0;
    bool stated = false;
    int64_t last = 0;
    struct store_event event;
    while (store_batch_next(batch, &at, &event)) {
        bool next = runs == 0 || event.key != last;
        runs += next;
        of_run = (next ? 0 : of_run) + event.n;
        items += event.n;
        largest = of_run > largest ? of_run : largest;
        stated = stated || event.time == STORE_STATED;
        last = event.key;
    }
    size_t at_once = runs < AT_ONCE ? runs : AT_ONCE;
    size_t begun = largest < items / (at_once > 0 ? at_once : 1) ? largest * at_once : items;
    return pending + batch->bytes.cap + batch->n_positions * POSITION_BYTES + runs * sizeof(struct user_writes) +
           at_once * (sizeof(struct run) + CLUSTER_BYTES + (stated ? STATED_BYTES : 0)) + begun * ITEM_BYTES;
}

/* NULL: batch->err says why. It is charged. */
static struct pending *admit(struct rados_store *s, struct store_batch *batch)
{
    size_t size = sizeof(struct pending) + batch->events * sizeof(struct event);
    size_t bytes = weigh(batch, size);
    if (guarded_clock_known(&s->clock, &batch->err) < 0 || fullness_refusal(s, &batch->err) < 0) {
        return NULL;
    }
    if (atomic_fetch_add(&s->bytes, bytes) + bytes > (size_t)config_now(s->cfg)->staging_memory) {
        atomic_fetch_sub(&s->bytes, bytes);
        full(s, &batch->err);
        return NULL;
    }
    struct pending *p = malloc(size);
    if (p == NULL) {
        err_set(&batch->err, ERR_NOMEM, "out of memory while recording");
    }
    struct positions_write *positions = NULL;
    if (p == NULL || rados_positions_admit(s, batch, &positions) < 0) {
        atomic_fetch_sub(&s->bytes, bytes);
        free(p);
        return NULL;
    }
    *p = (struct pending){.s = s, .batch = batch, .positions = positions, .bytes = bytes};
    atomic_init(&p->left, 1);
    atomic_init(&p->next, 0);
    atomic_init(&p->credits, 1); /* until all have their turns, no other begins any */
    atomic_init(&p->failed, false);
    pthread_mutex_init(&p->mutex, NULL);
    return p;
}

/* All events take their turns before the first is written, so that those of one user go at once. */
void writes_record(struct store *base, struct store_batch *batch)
{
    struct rados_store *s = rados_of(base);
    batch->err = (struct err){0};
    struct pending *p = admit(s, batch);
    if (p == NULL) {
        refuse(s, batch);
        return;
    }
    int first_kept = guarded_clock_first_kept(&s->clock);
    size_t at = 0, too_old = 0;
    struct store_event event;
    struct err err = {0};
    rados_store_begun(s);
    while (err.code == 0 && store_batch_next(batch, &at, &event)) {
        if (event.n == 0 || month_of_ms(event.at_ms) < first_kept) {
            too_old += event.n;
            continue;
        }
        struct event *e = &p->events[p->n];
        *e = (struct event){.pending = p, .event = event};
        atomic_fetch_add(&p->left, 1);
        if (enqueue(s, event.key, event.user, &e->turn) < 0) {
            err_set(&err, ERR_NOMEM, "out of memory while recording");
            fail_batch(p, &err);
            atomic_fetch_sub(&p->left, 1);
        } else {
            p->n++;
        }
    }
    if (too_old > 0) {
        RADOS_COUNT(s, plays_too_old, too_old);
    }
    atomic_fetch_add(&p->credits, AT_ONCE - 1);
    use_credits(p);
    one_less(p);
    rados_store_ended(s);
}

int writes_init(struct rados_store *s)
{
    int result = 0;
    for (size_t i = 0; i < RADOS_SHARDS; i++) {
        pthread_mutex_init(&s->shards[i].mutex, NULL);
        s->shards[i].buckets = calloc(USER_BUCKETS, sizeof(struct user_writes *));
        result = s->shards[i].buckets != NULL ? result : ERR_NOMEM;
    }
    return result;
}

void writes_destroy(struct rados_store *s)
{
    for (size_t i = 0; i < RADOS_SHARDS; i++) {
        free((void *)s->shards[i].buckets);
        pthread_mutex_destroy(&s->shards[i].mutex);
    }
}
