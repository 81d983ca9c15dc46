/* Positions of sources outside, such as partitions of Kafka (store/positions.h), for all nodes of a pool: one object,
 * `positions`, with a key for each source, and a copy in memory.
 *
 *   key    the source's name, with every byte but A-Z a-z 0-9 . _ / : - as %XX
 *   value  <next><owner><count>   16 hex digits each: where to read on (16 dashes: nothing was read yet); which start
 * of a node has claimed it (0: none has); and a count of that one's writes
 *
 * No two values of a source are equal, since no two starts of nodes are and each counts. So a guard on the value that
 * was read or written last means: nothing has happened since. A claim sets its owner under such a guard; so does each
 * move of a claimed source. A write whose outcome was unknown is told by its owner when it is met later, and one that
 * is late itself fails by the guard of whatever came after it. In a pool that was put
 * back to an earlier state there may be an earlier value of this node: that counts as another's.
 *
 * A batch remembers which claim its sources were read under. A claim of this node that came since makes it void, too:
 * the node that reads by the later one has begun where that found the position.
 *
 * One operation at a time is under way for this node; others wait in a list.
 */
#include "store/positions.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/rados/rados.h"
#include "store/rados/wait.h"

#define WHAT "the positions of sources"

enum {
    KEY = 3 * STORE_SOURCE_MAX + 1,
    VALUE = 3 * LAYOUT_HEX,
    TRIES = 64,
};

/* A source that this node has claimed, or tries to. */
struct claimed {
    char value[VALUE];
    size_t value_len; /* of what is known to be there; 0: nothing is */
    uint64_t count;   /* of that; a lower one of ours is found in a pool that has gone back */
    uint64_t claim;   /* the number of ours that has it; 0: none has */
    size_t name_len;
    char name[];
};

struct one {
    struct slice source; /* the caller's */
    bool claims;         /* else it is only looked at */
    bool guarded;        /* it is moved as one that was claimed */
    bool has;            /* a position: next */
    int64_t next;
    uint64_t claim; /* as it was when the batch was taken in */
    uint64_t count; /* of what is written */
    char *key;
    size_t key_len;
    char was[VALUE + 1], now[VALUE];
    size_t was_len;
};

struct positions_write {
    struct positions_write *next; /* in the list */
    struct rados_store *s;
    struct store_claim *claim; /* NULL: it moves a batch's */
    uint64_t number;           /* of the claim */
    void (*done)(void *owner, const struct err *err);
    void *owner;
    struct cluster_read read;
    struct cluster_write write;
    struct cluster_pair *equals, *set;
    struct slice *keys;
    unsigned tries;
    struct err err;
    size_t n;
    struct one ones[];
};

struct positions {
    struct position_set *set;
    uint64_t owner; /* this start */
    pthread_mutex_t mutex;
    uint64_t claims, count;
    struct claimed **claimed; /* by name */
    size_t n, room;
    struct positions_write *first, **last;
    bool busy;
};

/* --- names and values --- */

static size_t key_of(struct slice source, char out[KEY])
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        unsigned char c = (unsigned char)source.data[i];
        if ((c < 0x80 && isalnum(c)) || (c != 0 && strchr("._/:-", c) != NULL)) {
            out[n++] = (char)c;
        } else {
            out[n++] = '%';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        }
    }
    out[n] = '\0';
    return n;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* False: it is no key of ours. */
static bool source_of(struct slice key, char out[STORE_SOURCE_MAX], size_t *len)
{
    *len = 0;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.data[i];
        if (*len == STORE_SOURCE_MAX) {
            return false;
        }
        if (c == '%') {
            int high = i + 2 < key.len ? digit(key.data[i + 1]) : -1, low = high < 0 ? -1 : digit(key.data[i + 2]);
            if (low < 0) {
                return false;
            }
            c = (char)(high << 4 | low);
            i += 2;
        }
        out[(*len)++] = c;
    }
    return *len > 0;
}

static const char no_position[] = "----------------";

static void value_write(bool has, int64_t next, uint64_t owner, uint64_t count, char out[VALUE])
{
    layout_hex((uint64_t)next, out);
    if (!has) {
        memcpy(out, no_position, LAYOUT_HEX);
    }
    layout_hex(owner, out + LAYOUT_HEX);
    layout_hex(count, out + 2 * LAYOUT_HEX);
}

static bool value_read(struct slice value, bool *has, int64_t *next, uint64_t *owner, uint64_t *count)
{
    uint64_t n = 0;
    if (value.len != VALUE || !layout_unhex(slice_of(value.data + LAYOUT_HEX, LAYOUT_HEX), owner) ||
        !layout_unhex(slice_of(value.data + 2 * LAYOUT_HEX, LAYOUT_HEX), count)) {
        return false;
    }
    *has = memcmp(value.data, no_position, LAYOUT_HEX) != 0;
    if (*has && !layout_unhex(slice_of(value.data, LAYOUT_HEX), &n)) {
        return false;
    }
    *next = (int64_t)n;
    return true;
}

/* --- what is claimed --- */

static size_t place_of(const struct positions *p, struct slice source, bool *there)
{
    size_t low = 0, high = p->n;
    *there = false;
    while (low < high && !*there) {
        size_t middle = low + (high - low) / 2;
        const struct claimed *c = p->claimed[middle];
        size_t least = c->name_len < source.len ? c->name_len : source.len;
        int order = memcmp(c->name, source.data, least);
        order = order != 0 ? order : (c->name_len > source.len) - (c->name_len < source.len);
        if (order == 0) {
            *there = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* NULL: never by this node. The caller has the lock. */
static struct claimed *find_claimed(const struct positions *p, struct slice source)
{
    bool there;
    size_t at = place_of(p, source, &there);
    return there ? p->claimed[at] : NULL;
}

static int make_claimed(struct positions *p, struct slice source)
{
    bool there;
    size_t at = place_of(p, source, &there);
    if (there) {
        return 0;
    }
    if (p->n == p->room) {
        size_t room = p->room == 0 ? 16 : 2 * p->room;
        struct claimed **now = realloc((void *)p->claimed, room * sizeof *now);
        if (now == NULL) {
            return ERR_NOMEM;
        }
        p->claimed = now;
        p->room = room;
    }
    struct claimed *c = malloc(sizeof *c + source.len);
    if (c == NULL) {
        return ERR_NOMEM;
    }
    *c = (struct claimed){.name_len = source.len};
    memcpy(c->name, source.data, source.len);
    memmove((void *)(p->claimed + at + 1), (void *)(p->claimed + at), (p->n - at) * sizeof(struct claimed *));
    p->claimed[at] = c;
    p->n++;
    return 0;
}

/* --- an operation --- */

static void start(struct positions_write *w);
static void write_it(struct positions_write *w);

static struct positions_write *make(struct rados_store *s, size_t n)
{
    struct positions_write *w = calloc(1, sizeof *w + n * sizeof *w->ones);
    if (w != NULL) {
        w->s = s;
        w->n = n;
        w->equals = calloc(2 * n + 1, sizeof *w->equals);
        w->set = w->equals == NULL ? NULL : w->equals + n;
        w->keys = calloc(n + 1, sizeof *w->keys);
    }
    if (w != NULL && (w->equals == NULL || w->keys == NULL)) {
        rados_positions_drop(w);
        w = NULL;
    }
    return w;
}

void rados_positions_drop(struct positions_write *w)
{
    if (w != NULL) {
        for (size_t i = 0; i < w->n; i++) {
            free(w->ones[i].key);
        }
        free(w->equals);
        free(w->keys);
        free(w);
    }
}

static int add(struct positions_write *w, size_t i, struct slice source)
{
    char key[KEY];
    struct one *one = &w->ones[i];
    one->source = source;
    one->key_len = key_of(source, key);
    one->key = malloc(one->key_len + 1);
    if (one->key == NULL) {
        return ERR_NOMEM;
    }
    memcpy(one->key, key, one->key_len + 1);
    return 0;
}

static void queue(struct positions_write *w)
{
    struct positions *p = w->s->positions;
    pthread_mutex_lock(&p->mutex);
    bool begins = !p->busy;
    p->busy = true;
    if (!begins) {
        *p->last = w;
        p->last = &w->next;
    }
    pthread_mutex_unlock(&p->mutex);
    rados_store_begun(w->s);
    if (begins) {
        start(w);
    }
}

static void finish(struct positions_write *w)
{
    struct rados_store *s = w->s;
    struct positions *p = s->positions;
    pthread_mutex_lock(&p->mutex);
    struct positions_write *next = p->first;
    if (next != NULL) {
        p->first = next->next;
        p->last = p->first == NULL ? &p->first : p->last;
    }
    p->busy = next != NULL;
    pthread_mutex_unlock(&p->mutex);
    if (w->claim != NULL) {
        struct store_call *call = &w->claim->call;
        call->err = w->err;
        call->done(call);
    } else {
        w->done(w->owner, &w->err);
    }
    rados_positions_drop(w);
    if (next != NULL) {
        start(next);
    }
    rados_store_ended(s);
}

static void fail(struct positions_write *w, const struct cluster_op *op, const char *doing)
{
    cluster_error_of(w->s, op, doing, WHAT, &w->err);
    finish(w);
}

static void nomem(struct positions_write *w)
{
    err_set(&w->err, ERR_NOMEM, "out of memory for " WHAT);
    finish(w);
}

/* --- reading what is there --- */

static void on_pair(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct positions_write *w = read->op.owner;
    (void)range;
    for (size_t i = 0; i < w->n; i++) {
        struct one *one = &w->ones[i];
        if (slice_eq(key, slice_of(one->key, one->key_len))) {
            one->was_len = value.len < sizeof one->was ? value.len : sizeof one->was; /* a longer one is damaged */
            memcpy(one->was, value.data, one->was_len);
        }
    }
}

/* What was found of one. Of a claim it is kept for find(), and for the guard; else it says whether this is still ours
 * to move. */
static int look_at(struct positions_write *w, struct one *one)
{
    struct positions *p = w->s->positions;
    uint64_t owner = 0, count = 0;
    bool has = false;
    int64_t next = 0;
    if (one->was_len > 0 && !value_read(slice_of(one->was, one->was_len), &has, &next, &owner, &count)) {
        return err_set(&w->err, ERR_CORRUPT, "RADOS: the key %s of the object " LAYOUT_POSITIONS " is damaged",
                       one->key);
    }
    if (w->claim != NULL) {
        one->has = has;
        one->next = next;
    }
    pthread_mutex_lock(&p->mutex);
    struct claimed *c = one->claims || one->guarded ? find_claimed(p, one->source) : NULL;
    bool lost = one->guarded && (owner != p->owner || c->claim != one->claim || count < c->count);
    if (c != NULL && !lost) {
        memcpy(c->value, one->was, one->was_len);
        c->value_len = one->was_len;
        c->count = count;
    }
    pthread_mutex_unlock(&p->mutex);
    return lost ? err_set(&w->err, ERR_LOCKED, "another node has taken over what is read from %s", one->key) : 0;
}

static void on_read(struct cluster_op *op)
{
    struct positions_write *w = op->owner;
    if (op->result != CLUSTER_DONE && op->result != CLUSTER_ABSENT) {
        fail(w, op, "reading");
        return;
    }
    int result = 0;
    for (size_t i = 0; i < w->n && result == 0; i++) {
        result = look_at(w, &w->ones[i]);
    }
    if (result < 0) {
        finish(w);
    } else {
        write_it(w);
    }
}

static void read_them(struct positions_write *w)
{
    struct rados_store *s = w->s;
    for (size_t i = 0; i < w->n; i++) {
        w->ones[i].was_len = 0;
        w->keys[i] = slice_of(w->ones[i].key, w->ones[i].key_len);
    }
    w->read = (struct cluster_read){.op = {.object = LAYOUT_POSITIONS, .done = on_read, .owner = w},
                                    .keys = w->keys,
                                    .n_keys = w->n,
                                    .pair = on_pair};
    if (s->ops->read(s->cluster, &w->read) < 0) {
        nomem(w);
    }
}

/* --- writing --- */

/* What is there now is known, and in memory, too: places for that were made before. */
static void keep(struct positions_write *w)
{
    struct positions *p = w->s->positions;
    struct err ignored;
    for (size_t i = 0; i < w->n; i++) {
        struct one *one = &w->ones[i];
        pthread_mutex_lock(&p->mutex);
        struct claimed *c = one->claims || one->guarded ? find_claimed(p, one->source) : NULL;
        if (c != NULL) {
            memcpy(c->value, one->now, VALUE);
            c->value_len = VALUE;
            c->count = one->count;
            c->claim = one->claims ? w->number : c->claim;
        }
        pthread_mutex_unlock(&p->mutex);
        if (one->has) {
            position_set_load(p->set, &(struct store_position){one->source, one->next}, &ignored);
        } else {
            position_set_forget(p->set, one->source);
        }
    }
}

static void again(struct positions_write *w)
{
    if (++w->tries >= TRIES) {
        err_set(&w->err, ERR_BUSY, WHAT " are changed by other nodes all the time");
        finish(w);
    } else {
        read_them(w);
    }
}

static void on_made(struct cluster_op *op)
{
    struct positions_write *w = op->owner;
    if (op->result == CLUSTER_DONE || op->result == CLUSTER_EXISTS) {
        again(w);
    } else {
        fail(w, op, "writing");
    }
}

static void make_object(struct positions_write *w)
{
    w->write =
        (struct cluster_write){.op = {.object = LAYOUT_POSITIONS, .done = on_made, .owner = w}, .exclusive = true};
    if (w->s->ops->write(w->s->cluster, &w->write) < 0) {
        nomem(w);
    }
}

static void on_written(struct cluster_op *op)
{
    struct positions_write *w = op->owner;
    switch (op->result) {
    case CLUSTER_DONE:
        keep(w);
        finish(w);
        break;
    case CLUSTER_ABSENT:
        make_object(w);
        break;
    case CLUSTER_DIFFERS:
        again(w);
        break;
    default:
        fail(w, op, "writing");
    }
}

/* False: what is to be moved was claimed by a later claim of this node. */
static bool prepare(struct positions_write *w, size_t *n_equals, size_t *n_set)
{
    struct positions *p = w->s->positions;
    bool good = true;
    *n_equals = *n_set = 0;
    pthread_mutex_lock(&p->mutex);
    for (size_t i = 0; i < w->n && good; i++) {
        struct one *one = &w->ones[i];
        struct slice key = slice_of(one->key, one->key_len);
        const struct claimed *c = one->claims || one->guarded ? find_claimed(p, one->source) : NULL;
        good = !one->guarded || c->claim == one->claim;
        if (c != NULL) {
            memcpy(one->was, c->value, c->value_len);
            one->was_len = c->value_len;
            w->equals[(*n_equals)++] = (struct cluster_pair){key, slice_of(one->was, one->was_len)};
        }
        if (w->claim == NULL || one->claims) {
            one->count = ++p->count;
            value_write(one->has, one->next, c != NULL ? p->owner : 0, one->count, one->now);
            w->set[(*n_set)++] = (struct cluster_pair){key, slice_of(one->now, VALUE)};
        }
    }
    pthread_mutex_unlock(&p->mutex);
    return good;
}

static void write_it(struct positions_write *w)
{
    struct rados_store *s = w->s;
    size_t n_equals, n_set;
    if (!prepare(w, &n_equals, &n_set)) {
        err_set(&w->err, ERR_LOCKED, "what was read is claimed again by this node");
        finish(w);
        return;
    }
    if (n_set == 0) { /* a claim that only looks */
        keep(w);
        finish(w);
        return;
    }
    w->write = (struct cluster_write){.op = {.object = LAYOUT_POSITIONS, .done = on_written, .owner = w},
                                      .equals = w->equals,
                                      .n_equals = n_equals,
                                      .set = w->set,
                                      .n_set = n_set};
    if (s->ops->write(s->cluster, &w->write) < 0) {
        nomem(w);
    }
}

/* A claim has to see what is there; a move knows. */
static void start(struct positions_write *w)
{
    if (w->claim != NULL) {
        read_them(w);
    } else {
        write_it(w);
    }
}

/* --- the seam --- */

int rados_positions_admit(struct rados_store *s, struct store_batch *batch, struct positions_write **write)
{
    struct positions *p = s->positions;
    *write = NULL;
    if (batch->n_positions == 0) {
        return 0;
    }
    int result = position_set_admit(p->set, batch);
    if (result < 0) {
        return result;
    }
    struct positions_write *w = make(s, batch->n_positions);
    for (size_t i = 0; w != NULL && i < w->n && result == 0; i++) {
        struct one *one = &w->ones[i];
        result = add(w, i, batch->positions[i].source);
        one->has = true;
        one->next = batch->positions[i].next;
        pthread_mutex_lock(&p->mutex);
        const struct claimed *c = find_claimed(p, one->source);
        one->claim = c != NULL ? c->claim : 0;
        one->guarded = one->claim != 0;
        pthread_mutex_unlock(&p->mutex);
    }
    if (w == NULL || result < 0) {
        rados_positions_drop(w);
        return err_set(&batch->err, ERR_NOMEM, "out of memory for " WHAT);
    }
    *write = w;
    return 0;
}

void rados_positions_write(struct positions_write *w, void (*done)(void *owner, const struct err *err), void *owner)
{
    w->done = done;
    w->owner = owner;
    queue(w);
}

static int find_position(struct store *base, struct slice source, int64_t *next)
{
    return position_set_find(rados_of(base)->positions->set, source, next);
}

/* A place for each, in both lists. */
static int admit_claim(struct positions *p, struct positions_write *w, const struct store_claim *claim, struct err *err)
{
    struct store_batch room = {.n_positions = 1};
    int result = 0;
    for (size_t i = 0; i < w->n && result == 0; i++) {
        bool claims = i < claim->n;
        struct slice source = claims ? claim->sources[i] : claim->looked_at[i - claim->n];
        room.positions = &(struct store_position){source, 0};
        if ((result = position_set_admit(p->set, &room)) < 0) {
            return err_set(err, result, "%s", room.err.text);
        }
        pthread_mutex_lock(&p->mutex);
        result = claims ? make_claimed(p, source) : 0;
        pthread_mutex_unlock(&p->mutex);
        result = result < 0 ? result : add(w, i, source);
        w->ones[i].claims = claims;
    }
    return result < 0 ? err_set(err, result, "out of memory for " WHAT) : 0;
}

static void claim_positions(struct store *base, struct store_claim *claim)
{
    struct rados_store *s = rados_of(base);
    struct positions *p = s->positions;
    struct positions_write *w = make(s, claim->n + claim->n_looked_at);
    claim->call.err = (struct err){0};
    int result = w == NULL ? err_set(&claim->call.err, ERR_NOMEM, "out of memory for " WHAT)
                           : admit_claim(p, w, claim, &claim->call.err);
    if (result < 0) {
        rados_positions_drop(w);
        rados_store_post(s, &claim->call.message, RADOS_CALL); /* this thread is the caller's */
        return;
    }
    w->claim = claim;
    pthread_mutex_lock(&p->mutex);
    w->number = ++p->claims;
    pthread_mutex_unlock(&p->mutex);
    queue(w);
}

const struct store_positions_ops rados_positions_ops = {.find = find_position, .claim = claim_positions};

/* --- opening --- */

struct loading {
    struct cluster_read read; /* first */
    struct positions *positions;
    char after[KEY];
    struct err err;
};

static void on_loaded(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct loading *l = (struct loading *)read;
    char source[STORE_SOURCE_MAX];
    struct store_position position = {.source = {.data = source}};
    uint64_t owner, count;
    bool has;
    (void)range;
    if (key.len < sizeof l->after && memchr(key.data, 0, key.len) == NULL) {
        memcpy(l->after, key.data, key.len);
        l->after[key.len] = '\0';
    }
    if (!source_of(key, source, &position.source.len) || !value_read(value, &has, &position.next, &owner, &count)) {
        log_error("a position of a source can't be read", "object=" LAYOUT_POSITIONS " key=%s", log_quote(key));
    } else if (has && l->err.code == 0) {
        position_set_load(l->positions->set, &position, &l->err);
    }
}

static int load_all(struct rados_store *s, struct err *err)
{
    struct loading l = {.positions = s->positions};
    enum cluster_result result;
    do {
        char after[KEY];
        memcpy(after, l.after, sizeof after);
        l.read = (struct cluster_read){.op = {.object = LAYOUT_POSITIONS},
                                       .ranges = {{.prefix = "", .after = after, .max = CLUSTER_PAGE}},
                                       .n_ranges = 1,
                                       .pair = on_loaded};
        result = wait_read(s->ops, s->cluster, &l.read);
    } while (result == CLUSTER_DONE && l.read.ranges[0].more && l.err.code == 0);
    if (result != CLUSTER_DONE && result != CLUSTER_ABSENT) {
        return cluster_error_of(s, &l.read.op, "reading", WHAT, err);
    }
    return l.err.code < 0 ? err_set(err, l.err.code, "%s", l.err.text) : 0;
}

int rados_positions_open(struct rados_store *s, struct err *err)
{
    struct positions *p = calloc(1, sizeof *p);
    if (p != NULL && (p->set = position_set_new()) == NULL) {
        free(p);
        p = NULL;
    }
    if (p == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for " WHAT);
    }
    s->positions = p;
    pthread_mutex_init(&p->mutex, NULL);
    p->last = &p->first;
    while (p->owner == 0) {
        p->owner = rados_store_random(s);
    }
    const struct store_position lineage = {slice_str(STORE_LINEAGE), (int64_t)s->meta.lineage};
    int result = position_set_load(p->set, &lineage, err);
    return result < 0 ? result : load_all(s, err);
}

void rados_positions_free(struct rados_store *s)
{
    struct positions *p = s->positions;
    if (p != NULL) {
        for (size_t i = 0; i < p->n; i++) {
            free(p->claimed[i]);
        }
        free((void *)p->claimed);
        position_set_free(p->set);
        pthread_mutex_destroy(&p->mutex);
        free(p);
    }
}
