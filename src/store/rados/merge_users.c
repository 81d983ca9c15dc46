/* MERGE: `from` is read as a whole, packed as a copy of it would be, and imported as `into`; then, if wished,
 * forgotten. Each user is changed in one step, both are not: after an error it is to be repeated, which changes nothing
 * of what was done.
 *
 * What comes between the read and the forget would be forgotten, and not be in `into`. So the forget goes by the
 * version that was read, and where that has changed all of it begins again: a union. */
#include <stdlib.h>

#include "base/log.h"
#include "store/rados/pack.h"
#include "store/rados/rados.h"

enum { TRIES = 16 };

struct merging {
    struct update update; /* first: of `from`, which it only reads */
    struct writes_turn turn;
    struct rados_store *s;
    struct store_merge *merge;
    struct gathered gathered;
    bool listed; /* all but the filters was read */
    struct buf snapshot;
    struct slice bytes; /* of it */
    struct store_import import;
    uint8_t verdict;
    unsigned tries;
};

static void start_read(struct merging *m);

static void finish(struct merging *m)
{
    struct rados_store *s = m->s;
    struct store_merge *merge = m->merge;
    buf_free(&m->snapshot);
    free(m);
    rados_store_post(s, &merge->message, RADOS_MERGED);
    rados_store_ended(s);
}

/* --- the forget --- */

static void on_forgotten(struct store_forget *forget)
{
    struct merging *m = forget->owner;
    if (forget->err.code == ERR_BUSY && ++m->tries < TRIES) {
        start_read(m);
        return;
    }
    m->merge->err = forget->err;
    finish(m);
}

static void forget(struct merging *m)
{
    struct store_merge *merge = m->merge;
    const struct update *u = &m->update;
    merge->leaving = (struct store_forget){.key = merge->from_key,
                                           .user = merge->from,
                                           .before = u->existed ? u->version + 1 : 0,
                                           .merge = merge,
                                           .done = on_forgotten,
                                           .owner = m};
    rados_forget(&m->s->base, &merge->leaving);
}

/* --- the import --- */

static void on_imported(struct store_call *call)
{
    struct merging *m = call->owner;
    m->merge->err = call->err;
    if (call->err.code == 0 && m->merge->forgets) {
        forget(m);
    } else {
        finish(m);
    }
}

static void import(struct merging *m)
{
    m->bytes = buf_slice(&m->snapshot);
    m->import = (struct store_import){
        .call = {.done = on_imported, .owner = m}, .snapshots = &m->bytes, .n = 1, .verdicts = &m->verdict};
    rados_import_as(m->s, &m->import, m->merge);
}

/* --- the read --- */

static struct merging *merging_of(struct update *u)
{
    return (struct merging *)u;
}

static void again(struct update *u)
{
    static const struct slice directory[] = {{"w", 1}};
    struct merging *m = merging_of(u);
    u->fetch.ranges = gathered_but_filters;
    u->fetch.n_ranges = GATHERED_RANGES - 1;
    u->fetch.keys = directory;
    u->fetch.n_keys = 1;
    gathered_begin(&m->gathered, &u->arena, 0);
    m->listed = false;
}

static int take(struct update *u, const struct layout_key *key, struct slice value)
{
    return gathered_take(&merging_of(u)->gathered, key, value, &u->err);
}

static void on_damage(void *arg, const char *what)
{
    (void)arg;
    log_warn("what can't be read is marked in the user that it is merged into", "what=%s", log_quote_str(what));
}

static int read_filters(struct merging *m)
{
    struct update *u = &m->update;
    m->listed = true;
    u->fetch.n_keys = 0;
    u->fetch.ranges = gathered_filters;
    u->fetch.n_ranges = 1;
    int result = update_expect(u, layout_directory_sum(m->gathered.directory));
    return result < 0 ? result : UPDATE_READ;
}

static int plan(struct update *u)
{
    struct merging *m = merging_of(u);
    struct packer packer = {.s = m->s, .damaged = on_damage};
    if (!m->listed && update_existed(u)) {
        return read_filters(m);
    }
    buf_clear(&m->snapshot);
    int result = pack_gathered(&packer, u->key, u->user, &m->gathered, &m->snapshot, &u->err);
    packer_free(&packer);
    return result < 0 ? result : UPDATE_NOTHING;
}

static void on_read(struct update *u)
{
    struct merging *m = merging_of(u);
    struct store_merge *merge = m->merge;
    merge->err = u->err;
    update_destroy(u);
    writes_end_turn(m->s, merge->from_key, merge->from);
    merge->answer = merge->answer > 0 || m->snapshot.len > 0;
    if (merge->err.code == 0 && m->snapshot.len > 0) {
        import(m);
    } else if (merge->err.code == 0 && merge->forgets) {
        forget(m);
    } else {
        finish(m);
    }
}

static void start(struct writes_turn *turn)
{
    struct merging *m = (struct merging *)((char *)turn - offsetof(struct merging, turn));
    update_start(&m->update);
}

static void start_read(struct merging *m)
{
    struct update *u = &m->update;
    struct store_merge *merge = m->merge;
    *u = (struct update){.guard = UPDATE_BY_VERSION};
    update_init(u, m->s, merge->from_key, merge->from);
    u->heavy = true;
    u->again = again;
    u->take = take;
    u->plan = plan;
    u->done = on_read;
    u->quota = &m->s->large;
    u->quota_bytes = RADOS_LARGE_BYTES;
    m->turn = (struct writes_turn){.start = start};
    if (writes_take_turn(m->s, u->key, u->user, &m->turn) < 0) {
        update_destroy(u);
        err_set(&merge->err, ERR_NOMEM, "out of memory while merging users");
        finish(m);
    }
}

void rados_merge(struct store *base, struct store_merge *merge)
{
    struct rados_store *s = rados_of(base);
    struct merging *m = NULL;
    merge->err = (struct err){0};
    merge->answer = 0;
    if (merge->from_key == merge->into_key && slice_eq(merge->from, merge->into)) {
        err_set(&merge->err, ERR_INVALID, "%s can't be merged into itself", log_quote(merge->from));
    } else if (guarded_clock_known(&s->clock, &merge->err) == 0 && (m = calloc(1, sizeof *m)) == NULL) {
        err_set(&merge->err, ERR_NOMEM, "out of memory while merging users");
    }
    if (m == NULL) {
        rados_store_post(s, &merge->message, RADOS_MERGED);
        return;
    }
    rados_store_begun(s);
    m->s = s;
    m->merge = merge;
    start_read(m);
}
