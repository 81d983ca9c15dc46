/* The guarded clock that all nodes of a pool keep together: the key `clock` of the object `meta`, as a folder has it in
 * its own. A node judges its clock at its start by what is there.
 *
 *   <changes><newest><unsure><leapt>   16 hex digits each; see struct guard_kept
 *
 * `newest` is the highest time that any node has believed: a node that believes one ten minutes later, or of another
 * month, writes it, under a guard on what it has read. Each node looks every ten minutes, so however many there are,
 * the key is written once in that time. Only an administrator writes an earlier one (unseen clock): that
 * counts `changes` up, and every node that finds another count than before judges its clock again, as at a start. So
 * what was accepted or set back at one node holds for all, and none of them brings back the time before. How far a node
 * got in doubt isn't kept: it goes on from the newest after a restart.
 *
 * One round of reading and writing is under way at a time, begun by the store's thread, or by a tick. */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/rados/rados.h"
#include "store/rados/wait.h"

enum {
    FIELDS = 4,
    VALUE = FIELDS * LAYOUT_HEX,
    SAVE_MS = 10 * 60 * 1000,
    SOON_MS = 60 * 1000, /* after an error, and in doubt */
    TRIES = 16,
};

struct kept {
    uint64_t changes;
    struct guard_kept guard;
};

struct pool_clock {
    struct rados_store *s;
    pthread_mutex_t mutex; /* of busy, next_ms, the list */
    bool busy;
    int64_t next_ms, not_before_ms;      /* monotonic: when it is due, and not before if there is something to write */
    struct store_message *first, **last; /* changes that wait */

    /* Of the round, and known from the last one. */
    struct kept known, wanted;
    struct guard planned;
    struct store_clock_change *change; /* that the round is for; NULL: none */
    bool found, bad;
    unsigned tries;
    char was[VALUE], now[VALUE];
    struct slice key;
    struct cluster_pair equals, set;
    struct cluster_read read;
    struct cluster_write write;
};

static void begin_round(struct pool_clock *c);

static bool value_read(struct slice value, struct kept *out)
{
    uint64_t n[FIELDS];
    for (size_t i = 0; i < FIELDS; i++) {
        if (value.len != VALUE || !layout_unhex(slice_of(value.data + i * LAYOUT_HEX, LAYOUT_HEX), &n[i])) {
            return false;
        }
    }
    *out = (struct kept){n[0], {.newest = (int64_t)n[1], .unsure = (int64_t)n[2], .leapt = (int64_t)n[3]}};
    return out->guard.newest >= 0 && out->guard.unsure >= 0 && out->guard.leapt >= 0;
}

static void value_write(const struct kept *kept, char out[VALUE])
{
    const uint64_t n[FIELDS] = {kept->changes, (uint64_t)kept->guard.newest, (uint64_t)kept->guard.unsure,
                                (uint64_t)kept->guard.leapt};
    for (size_t i = 0; i < FIELDS; i++) {
        layout_hex(n[i], out + i * LAYOUT_HEX);
    }
}

/* As a folder has it: a new month too, so that after a crash nothing is stamped with the one before. */
static bool is_worth_saving(const struct guard_kept *saved, const struct guard_kept *now)
{
    return now->unsure != saved->unsure || now->leapt != saved->leapt || now->newest - saved->newest >= SAVE_MS ||
           (now->newest > saved->newest && month_of_ms(now->newest) != month_of_ms(saved->newest));
}

/* --- a round --- */

/* Answers the change that the round was for, if it was; err NULL: well. */
static void end_round(struct pool_clock *c, const struct err *err, int64_t again_ms)
{
    struct rados_store *s = c->s;
    struct store_clock_change *change = c->change;
    pthread_mutex_lock(&c->mutex);
    c->change = NULL;
    c->busy = false;
    c->next_ms = clock_mono_ms() + again_ms;
    c->not_before_ms = clock_mono_ms() + (err != NULL ? again_ms : 0);
    pthread_mutex_unlock(&c->mutex);
    if (change != NULL) {
        change->call.err = err != NULL ? *err : (struct err){0};
        change->call.done(&change->call);
    } else if (err != NULL) {
        log_error("newest time not saved", "error=%s", log_quote_str(err->text));
    }
    thread_queue_wake(&s->queue); /* more may wait */
    rados_store_ended(s);
}

static void fail_round(struct pool_clock *c, const struct cluster_op *op, const char *doing)
{
    struct err err = {0};
    cluster_error_of(c->s, op, doing, "the pool's clock", &err);
    end_round(c, &err, SOON_MS);
}

static void on_written(struct cluster_op *op)
{
    struct pool_clock *c = op->owner;
    struct err err = {0};
    if (op->result == CLUSTER_DIFFERS && ++c->tries < TRIES) {
        begin_round(c);
        return;
    }
    if (op->result == CLUSTER_DIFFERS) {
        err_set(&err, ERR_BUSY, "the pool's clock is changed by other nodes all the time");
        end_round(c, &err, SOON_MS);
        return;
    }
    if (op->result != CLUSTER_DONE) {
        fail_round(c, op, "writing");
        return;
    }
    c->known = c->wanted;
    if (c->change != NULL) {
        guarded_clock_become(&c->s->clock, c->change, &c->planned);
    }
    end_round(c, NULL, SAVE_MS);
}

static void write_it(struct pool_clock *c)
{
    struct rados_store *s = c->s;
    value_write(&c->wanted, c->now);
    c->equals = (struct cluster_pair){c->key, slice_of(c->was, c->found ? VALUE : 0)};
    c->set = (struct cluster_pair){c->key, slice_of(c->now, VALUE)};
    c->write = (struct cluster_write){.op = {.object = LAYOUT_META, .done = on_written, .owner = c},
                                      .equals = &c->equals,
                                      .n_equals = 1,
                                      .set = &c->set,
                                      .n_set = 1,
                                      .must = true};
    if (s->ops->write(s->cluster, &c->write) < 0) {
        c->write.op.result = CLUSTER_NOMEM;
        fail_round(c, &c->write.op, "writing");
    }
}

static void on_pair(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct pool_clock *c = (struct pool_clock *)((char *)read - offsetof(struct pool_clock, read));
    (void)range, (void)key;
    c->found = true;
    c->bad = value.len != VALUE;
    if (!c->bad) {
        memcpy(c->was, value.data, VALUE);
    }
}

static void on_read(struct cluster_op *op)
{
    struct pool_clock *c = op->owner;
    struct kept pool = {0};
    struct err err = {0};
    if (op->result != CLUSTER_DONE) {
        fail_round(c, op, "reading");
        return;
    }
    if (c->found && (c->bad || !value_read(slice_of(c->was, VALUE), &pool))) {
        err_set(&err, ERR_CORRUPT, "RADOS: the key clock of the object meta is damaged");
        end_round(c, &err, SAVE_MS);
        return;
    }
    guarded_clock_heard(&c->s->clock, &pool.guard, pool.changes != c->known.changes);
    c->known = pool;
    c->wanted = pool;
    if (c->change != NULL) {
        if (guarded_clock_plan(&c->s->clock, c->change, &c->planned, &err) < 0) {
            end_round(c, &err, SAVE_MS);
            return;
        }
        c->wanted.changes++;
        c->wanted.guard = c->planned.kept;
        write_it(c);
        return;
    }
    struct guard_kept ours;
    bool doubted = guarded_clock_kept(&c->s->clock, &ours);
    c->wanted.guard = ours;
    c->wanted.guard.newest = ours.newest > pool.guard.newest ? ours.newest : pool.guard.newest;
    if (!doubted && is_worth_saving(&pool.guard, &c->wanted.guard)) {
        write_it(c);
    } else {
        end_round(c, NULL, doubted ? SOON_MS : SAVE_MS);
    }
}

static void begin_round(struct pool_clock *c)
{
    struct rados_store *s = c->s;
    c->found = c->bad = false;
    c->read = (struct cluster_read){
        .op = {.object = LAYOUT_META, .done = on_read, .owner = c}, .keys = &c->key, .n_keys = 1, .pair = on_pair};
    if (s->ops->read(s->cluster, &c->read) < 0) {
        c->read.op.result = CLUSTER_NOMEM;
        fail_round(c, &c->read.op, "reading");
    }
}

/* --- on the store's thread, and on that of a tick --- */

static void close_changes(struct pool_clock *c)
{
    for (struct store_message *m = c->first, *next; m != NULL; m = next) {
        struct store_call *call = (struct store_call *)m;
        next = m->next;
        err_set(&call->err, ERR_CLOSED, "the store is closing");
        call->done(call);
    }
    c->first = NULL;
    c->last = &c->first;
}

void pool_clock_look(struct rados_store *s)
{
    struct pool_clock *c = s->pool_clock;
    struct guard_kept ours;
    bool doubted = guarded_clock_kept(&s->clock, &ours), begins = false;
    pthread_mutex_lock(&c->mutex);
    if (!c->busy && s->use != RADOS_ASKS) { /* which writes nothing */
        int64_t mono = clock_mono_ms();
        bool leapt = !doubted && mono >= c->not_before_ms && is_worth_saving(&c->known.guard, &ours);
        begins = c->first != NULL || mono >= c->next_ms || leapt;
        c->busy = begins && !rados_store_closing(s);
        if (c->busy && c->first != NULL) {
            c->change = (struct store_clock_change *)c->first;
            c->first = c->first->next;
            c->last = c->first == NULL ? &c->first : c->last;
        }
    }
    bool closes = begins && !c->busy;
    pthread_mutex_unlock(&c->mutex);
    if (closes) {
        close_changes(c);
    } else if (begins) {
        c->tries = 0;
        rados_store_begun(s);
        begin_round(c);
    }
}

void pool_clock_change(struct rados_store *s, struct store_clock_change *change)
{
    struct pool_clock *c = s->pool_clock;
    change->call.message.next = NULL;
    pthread_mutex_lock(&c->mutex);
    *c->last = &change->call.message;
    c->last = &change->call.message.next;
    pthread_mutex_unlock(&c->mutex);
    pool_clock_look(s);
}

/* --- opening --- */

/* Blocks; before anything else is asked of the store. What is believed now is kept at once. */
static int first_round(struct pool_clock *c, int64_t built_ms, struct err *err)
{
    struct rados_store *s = c->s;
    struct guard_kept ours;
    c->read = (struct cluster_read){.op = {.object = LAYOUT_META}, .keys = &c->key, .n_keys = 1, .pair = on_pair};
    if (wait_read(s->ops, s->cluster, &c->read) != CLUSTER_DONE) {
        return cluster_error_of(s, &c->read.op, "reading", "the pool's clock", err);
    }
    if (c->found && (c->bad || !value_read(slice_of(c->was, VALUE), &c->known))) {
        return err_set(err, ERR_CORRUPT, "RADOS: the key clock of the object meta is damaged");
    }
    guarded_clock_start(&s->clock, s->cfg, built_ms, &c->known.guard);
    c->wanted = c->known;
    bool doubted = guarded_clock_kept(&s->clock, &ours);
    if (!doubted && s->use != RADOS_ASKS && is_worth_saving(&c->known.guard, &ours)) {
        c->wanted.guard = ours;
        value_write(&c->wanted, c->now);
        c->equals = (struct cluster_pair){c->key, slice_of(c->was, c->found ? VALUE : 0)};
        c->set = (struct cluster_pair){c->key, slice_of(c->now, VALUE)};
        c->write = (struct cluster_write){.op = {.object = LAYOUT_META},
                                          .equals = &c->equals,
                                          .n_equals = 1,
                                          .set = &c->set,
                                          .n_set = 1,
                                          .must = true};
        enum cluster_result result = wait_write(s->ops, s->cluster, &c->write);
        c->known = result == CLUSTER_DONE ? c->wanted : c->known; /* else a look does it */
    }
    c->next_ms = clock_mono_ms() + (doubted ? SOON_MS : SAVE_MS);
    return 0;
}

int pool_clock_open(struct rados_store *s, int64_t built_ms, struct err *err)
{
    struct pool_clock *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->pool_clock = c;
    pthread_mutex_init(&c->mutex, NULL);
    c->s = s;
    c->last = &c->first;
    c->key = slice_str("clock");
    return first_round(c, built_ms, err);
}

void pool_clock_free(struct rados_store *s)
{
    if (s->pool_clock != NULL) {
        pthread_mutex_destroy(&s->pool_clock->mutex);
        free(s->pool_clock);
    }
}
