#include "store/rados/update.h"

#include <string.h>

#include "base/log.h"
#include "store/rados/fullness.h"
#include "store/rados/rados.h"

enum { ARENA_BLOCK = 2048 };

static void step(struct update *u);

int update_nomem(struct update *u)
{
    return err_set(&u->err, ERR_NOMEM, "out of memory while changing user %s", log_quote(u->user));
}

bool update_existed(const struct update *u)
{
    return u->existed;
}

bool update_is_empty(const struct update *u)
{
    return u->n_set == 0 && u->n_remove == 0 && !u->clear && !u->destroy;
}

/* --- what is planned --- */

static struct slice keep(struct update *u, const void *bytes, size_t len)
{
    return slice_of(arena_copy(&u->arena, bytes, len), len);
}

int update_set(struct update *u, const struct layout_key *key, struct slice value)
{
    char text[LAYOUT_KEY];
    if (u->n_set == u->cap_set) {
        size_t cap = u->cap_set == 0 ? 8 : 2 * u->cap_set;
        struct cluster_pair *now = arena_alloc(&u->arena, cap * sizeof *now);
        if (now == NULL) {
            return update_nomem(u);
        }
        if (u->n_set > 0) {
            memcpy(now, u->set, u->n_set * sizeof *now);
        }
        u->set = now;
        u->cap_set = cap;
    }
    struct cluster_pair pair = {keep(u, text, layout_key_write(key, text)),
                                value.len > 0 ? keep(u, value.data, value.len) : slice_of("", 0)};
    if (pair.key.data == NULL || pair.value.data == NULL) {
        return update_nomem(u);
    }
    u->set[u->n_set++] = pair;
    return 0;
}

int update_remove(struct update *u, const struct layout_key *key)
{
    char text[LAYOUT_KEY];
    if (u->n_remove == u->cap_remove) {
        size_t cap = u->cap_remove == 0 ? 8 : 2 * u->cap_remove;
        struct slice *now = arena_alloc(&u->arena, cap * sizeof *now);
        if (now == NULL) {
            return update_nomem(u);
        }
        if (u->n_remove > 0) {
            memcpy(now, u->remove, u->n_remove * sizeof *now);
        }
        u->remove = now;
        u->cap_remove = cap;
    }
    struct slice kept = keep(u, text, layout_key_write(key, text));
    if (kept.data == NULL) {
        return update_nomem(u);
    }
    u->remove[u->n_remove++] = kept;
    return 0;
}

void update_clear(struct update *u)
{
    u->clear = true;
}

void update_destroys(struct update *u)
{
    u->destroy = true;
}

int update_generation(struct update *u)
{
    char text[LAYOUT_HEX];
    layout_hex(rados_store_generation(u->s), text);
    return update_set(u, &(struct layout_key){.kind = LAYOUT_GENERATION}, slice_of(text, sizeof text));
}

/* --- one try --- */

static void finish(struct update *u)
{
    struct rados_store *s = u->s;
    struct quota_claim claim = u->claim;
    u->done(u);
    quota_give(&claim);
    rados_store_ended(s);
}

static void forget_try(struct update *u)
{
    arena_reset(&u->arena);
    u->set = NULL;
    u->remove = NULL;
    u->n_set = u->cap_set = u->n_remove = u->cap_remove = 0;
    u->clear = u->destroy = u->more = u->existed = u->odd = false;
    u->version = 0;
    u->expected = (struct cluster_pair){.key = {"g", 1}, .value = {u->expected_value, 0}};
    u->err = (struct err){0};
    u->again(u);
}

static void begin(struct update *u)
{
    forget_try(u);
    if (u->blind) {
        step(u);
    } else {
        fetch_start(&u->fetch);
    }
}

/* --- memory --- */

static void on_granted(struct quota_claim *claim)
{
    struct update *u = (struct update *)((char *)claim - offsetof(struct update, claim));
    quota_arena(&u->claim, &u->arena, RADOS_PAGE_BYTES);
    begin(u);
}

/* Everything begins again once there is room. */
static void come_in(struct update *u, size_t bytes)
{
    arena_free(&u->arena);
    u->arena.refused = false;
    quota_give(&u->claim);
    if (quota_take(u->quota, &u->claim, bytes, on_granted)) {
        on_granted(&u->claim);
    }
}

int update_expect(struct update *u, size_t bytes)
{
    return u->quota == NULL || quota_expect(&u->claim, &u->arena, bytes) ? 0 : update_nomem(u);
}

/* Whether it comes again, with a larger claim. */
static bool comes_again(struct update *u)
{
    if (u->err.code != ERR_NOMEM || u->quota == NULL || !u->arena.refused) {
        return false;
    }
    if (!quota_may_help(&u->claim, &u->arena)) {
        err_set(&u->err, ERR_NOMEM, "user %s takes more memory than rados_memory leaves for one", log_quote(u->user));
        return false;
    }
    come_in(u, u->claim.wanted);
    return true;
}

static void lose(struct update *u)
{
    unsigned max = u->tries_max > 0 ? u->tries_max : UPDATE_TRIES;
    if (++u->tries >= max) {
        u->lost = true;
        err_set(&u->err, ERR_BUSY, "user %s is changed by others all the time", log_quote(u->user));
        finish(u);
    } else {
        begin(u);
    }
}

static void on_written(struct cluster_op *op)
{
    struct update *u = (struct update *)((char *)op - offsetof(struct update, write));
    if (!u->must) {
        fullness_written(u);
    }
    switch (op->result) {
    case CLUSTER_DONE:
        u->written = true;
        finish(u);
        break;
    case CLUSTER_EXISTS:
    case CLUSTER_DIFFERS:
    case CLUSTER_ABSENT:
        lose(u);
        break;
    default:
        cluster_error(u->s, op, "writing", u->user, &u->err);
        finish(u);
    }
}

static void write_it(struct update *u)
{
    struct cluster_write *w = &u->write;
    *w = (struct cluster_write){.op = {.object = u->object, .done = on_written},
                                .clear = u->clear && u->existed,
                                .set = u->set,
                                .n_set = u->n_set,
                                .remove = u->remove,
                                .n_remove = u->n_remove,
                                .destroy = u->destroy,
                                .must = u->must};
    if (!u->blind && !u->existed) {
        w->exclusive = true;
    } else if (!u->blind && (u->guard == UPDATE_BY_VERSION || u->odd)) {
        w->version = u->version;
    } else if (!u->blind) {
        w->equals = &u->expected;
        w->n_equals = 1;
    }
    if ((u->must ? u->s->ops->write(u->s->cluster, w) : fullness_write(u)) < 0) {
        update_nomem(u);
        finish(u);
    }
}

/* What has been read is worked out. */
static void step(struct update *u)
{
    int plan = u->plan(u);
    if (plan == UPDATE_WRITE && !update_is_empty(u)) {
        write_it(u);
    } else if (plan == UPDATE_READ) {
        u->more = true;
        fetch_start(&u->fetch);
    } else if (plan >= 0 || !comes_again(u)) {
        finish(u);
    }
}

void update_step(struct update *u)
{
    step(u);
}

/* --- what is read --- */

static struct update *of(struct fetch *f)
{
    return (struct update *)((char *)f - offsetof(struct update, fetch));
}

static int on_take(struct fetch *f, const struct layout_key *key, struct slice value)
{
    struct update *u = of(f);
    int result = u->take(u, key, value);
    if (result < 0) {
        f->err = u->err;
    }
    return result;
}

/* A read that began again; of one that goes on reading, the whole try is void. */
static void on_again(struct fetch *f)
{
    struct update *u = of(f);
    if (!u->more) {
        forget_try(u);
    }
}

static void on_fetched(struct fetch *f)
{
    struct update *u = of(f);
    if (f->err.code < 0) {
        u->err = f->err;
        if (!comes_again(u)) {
            finish(u);
        }
        return;
    }
    if (u->more && (f->exists != u->existed || !slice_eq(f->generation, u->expected.value) ||
                    ((u->guard == UPDATE_BY_VERSION || u->odd) && f->version != u->version))) {
        lose(u);
        return;
    }
    if (!u->more) {
        u->existed = f->exists;
        u->odd = f->odd;
        u->version = f->version;
        memcpy(u->expected_value, f->generation.data, f->generation.len);
        u->expected.value.len = f->generation.len;
    }
    if (u->heavy) {
        rados_store_post(u->s, &u->message, RADOS_STEP);
    } else {
        step(u);
    }
}

void update_init(struct update *u, struct rados_store *s, int64_t key, struct slice user)
{
    u->s = s;
    u->key = key;
    u->user = user;
    u->arena.block_size = ARENA_BLOCK;
    layout_user_name(user, u->object);
    u->fetch = (struct fetch){
        .s = s, .object = u->object, .user = user, .take = on_take, .again = on_again, .done = on_fetched};
    fetch_init(&u->fetch);
}

void update_destroy(struct update *u)
{
    arena_free(&u->arena);
    fetch_destroy(&u->fetch);
}

void update_start(struct update *u)
{
    u->tries = 0;
    u->lost = u->written = false;
    u->fetch.one_version = u->guard == UPDATE_BY_VERSION;
    rados_store_begun(u->s);
    if (u->quota != NULL) {
        come_in(u, u->quota_bytes);
    } else {
        begin(u);
    }
}
