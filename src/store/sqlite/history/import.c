/* Importing users of another store. Messages pass the stager, in its order, to the historian. It merges the users of a
 * message in one transaction, between those of a flush. One barrier serves several messages, so that senders who
 * pipeline share it. If its transaction or barrier fails, a message is answered with the error and its sender repeats
 * it: an import is a union.
 *
 * In the stager a message secures what must be there first: users who are noted there are noted here, and forgets that
 * are known there are known here, before the rest of their data arrives.
 */
#include <stdlib.h>

#include "base/log.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"
#include "store/user/parcel.h"

enum { GROUP_MAX = 8 /* messages of one barrier */ };

void import_begin(struct store *base, struct store_import *import)
{
    struct store_message *m = &import->call.message;
    import->call.err = (struct err){0};
    m->kind = STORE_CALL;
    m->what = WANTS_IMPORT;
    thread_queue_put(&sqlite_store(base)->stager.queue, m);
}

/* --- the stager's --- */

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while joining users");
}

/* What the stager needs of a message's snapshots. */
struct heads {
    struct arena arena;
    struct slice *noted;
    size_t n_noted;
    struct buf forgotten; /* struct tombstone each */
};

static int add_forget(struct sqlite_store *s, struct heads *heads, int64_t key, uint64_t item, int64_t at_ms,
                      struct err *err)
{
    const struct tombstone t = {.key = key, .item = item, .at_ms = at_ms};
    int64_t ours =
        item == TOMBSTONE_USER ? tombstones_user_ms(s->tombstones, key) : tombstones_item_ms(s->tombstones, key, item);
    if (at_ms <= 0 || at_ms <= ours) {
        return 0;
    }
    return buf_add(&heads->forgotten, &t, sizeof t) < 0 ? out_of_memory(err) : 0;
}

static int read_forgets(struct sqlite_store *s, const struct user_snapshot *p, struct heads *heads, struct err *err)
{
    int result = add_forget(s, heads, p->key, TOMBSTONE_USER, p->forgotten_ms, err);
    for (size_t i = 0; i < p->n_forgotten && result == 0; i++) {
        result = add_forget(s, heads, p->key, p->forgotten[i].item, p->forgotten[i].at_ms, err);
    }
    return result;
}

/* One that isn't sound is left to the historian, who refuses it. */
static int read_head(struct sqlite_store *s, struct slice snapshot, struct heads *heads, struct err *err)
{
    struct user_snapshot p;
    struct err why = {0};
    int result =
        user_snapshot_has_more(snapshot) ? parcel_open(snapshot, s->seed, &heads->arena, &p, &why) : ERR_INVALID;
    if (result == ERR_NOMEM) {
        return err_set(err, ERR_NOMEM, "%s", why.text);
    }
    if (result < 0) {
        return 0;
    }
    int64_t later, earlier, ours = tombstones_user_ms(s->tombstones, p.key);
    store_now(&s->base, &later, &earlier);
    if (p.migration_state && ours <= p.forgotten_ms) { /* else what another Redis has is older than the forget */
        heads->noted[heads->n_noted++] = p.user;
    }
    return user_snapshot_check_forgets(&p, later, &why) < 0 ? 0 : read_forgets(s, &p, heads, err);
}

static int take_heads(struct sqlite_store *s, const struct store_import *import, struct err *err)
{
    struct heads heads = {.n_noted = 0};
    heads.noted = arena_alloc(&heads.arena, (import->n + 1) * sizeof *heads.noted);
    int result = heads.noted == NULL ? out_of_memory(err) : 0;
    for (size_t i = 0; i < import->n && result >= 0; i++) {
        result = read_head(s, import->snapshots[i], &heads, err);
    }
    if (result >= 0 && heads.n_noted > 0) {
        result = migration_users_add(s, heads.noted, heads.n_noted, err);
    }
    if (result >= 0) {
        const struct tombstone *list = (const struct tombstone *)(const void *)heads.forgotten.data;
        result = forgets_adopt(s, list, heads.forgotten.len / sizeof *list, err);
    }
    buf_free(&heads.forgotten);
    arena_free(&heads.arena);
    return result;
}

bool stager_import_is_under_way(struct sqlite_store *s, int64_t key)
{
    return atomic_load(&s->imports[(uint64_t)key % FORGET_COUNTERS]) > 0;
}

/* Each user, from here until import_answer(). Without a feed nothing is spared by it. */
static int count_users(struct sqlite_store *s, struct store_import *import, struct err *err)
{
    struct arena arena = {0};
    import->counted = NULL;
    if (!feed_takes(s)) {
        return 0;
    }
    import->counted = malloc((import->n + 1) * sizeof *import->counted);
    if (import->counted == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < import->n; i++) {
        struct user_snapshot p;
        struct err why = {0};
        int result = user_snapshot_decode(import->snapshots[i].data, import->snapshots[i].len, &arena, &p, &why);
        arena_reset(&arena);
        /* The historian refuses one that isn't sound: it is counted for any. */
        import->counted[i] = result < 0 ? 0 : (uint32_t)((uint64_t)p.key % FORGET_COUNTERS);
        atomic_fetch_add(&s->imports[import->counted[i]], 1);
    }
    arena_free(&arena);
    return 0;
}

void import_answer(struct sqlite_store *s, struct store_import *import)
{
    for (size_t i = 0; i < import->n && import->counted != NULL; i++) {
        atomic_fetch_sub(&s->imports[import->counted[i]], 1);
    }
    free(import->counted);
    import->counted = NULL;
    thread_queue_wake(&s->stager.queue); /* a forget may wait for it */
    import->call.done(&import->call);
}

void import_pass(struct sqlite_store *s, struct store_message *m)
{
    struct store_call *call = (struct store_call *)m;
    if (stager_disk_room(s, &call->err) < 0 || store_time_known(&s->base, &call->err) < 0 ||
        take_heads(s, (struct store_import *)m, &call->err) < 0 ||
        count_users(s, (struct store_import *)m, &call->err) < 0) {
        call->done(call);
        return;
    }
    thread_queue_put(&s->historian.queue, m);
}

/* --- the historian's --- */

void import_take(struct sqlite_store *s, struct store_message *m)
{
    struct historian *h = &s->historian;
    m->next = NULL;
    if (h->imports == NULL) {
        h->imports_last = &h->imports;
    }
    *h->imports_last = m;
    h->imports_last = &m->next;
}

static int import_users(struct sqlite_store *s, struct store_import *import, struct err *err)
{
    int result = history_begin(s, err);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < import->n; i++) {
        if ((result = import_user(s, import->snapshots[i], err)) < 0) {
            history_rollback(s);
            return result;
        }
        import->verdicts[i] = (uint8_t)result;
    }
    return history_commit(s, err);
}

/* An import's or a merge's. */
static int carry_out(struct sqlite_store *s, struct store_message *m)
{
    struct historian *h = &s->historian;
    if (m->kind == STORE_MERGE) {
        h->n_merges--;
        return merge_users(s, (struct store_merge *)m);
    }
    struct store_import *import = (struct store_import *)m;
    return import_users(s, import, &import->call.err);
}

bool import_step(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    struct store_message *first = h->imports, *end = first;
    struct err err = {0};
    bool done = false;
    uint64_t losses = h->losses;
    if (atomic_load(&s->leaving) > 0) {
        return false;
    }
    for (int i = 0; end != NULL && i < GROUP_MAX; i++, end = end->next) {
        done = carry_out(s, end) == 0 || done;
    }
    h->imports = end;
    if (done && losses != h->losses) {
        err_set(&err, ERR_IO, "a commit failed while users were joined");
    } else if (done) {
        history_barrier(s, &err);
    }
    for (struct store_message *m = first, *next; m != end; m = next) {
        struct store_call *call = (struct store_call *)m;
        next = m->next;
        if (m->kind == STORE_MERGE) {
            merge_united(s, (struct store_merge *)m, &err);
            continue;
        }
        if (err.code < 0 && call->err.code == 0) {
            call->err = err;
        }
        if (call->err.code < 0) {
            log_warn("import of users failed", "error=%s", log_quote_str(call->err.text));
        } else if (feed_takes(s)) {
            m->what = WANTS_USERS;
            thread_queue_put(&s->stager.queue, m); /* which answers it */
            continue;
        }
        import_answer(s, (struct store_import *)m);
    }
    return first != NULL;
}

void import_refuse(struct sqlite_store *s, const struct err *err)
{
    struct historian *h = &s->historian;
    while (h->imports != NULL) {
        struct store_call *call = (struct store_call *)h->imports;
        h->imports = call->message.next;
        if (call->message.kind == STORE_MERGE) {
            h->n_merges--;
            merge_refuse(s, (struct store_merge *)call, err);
            continue;
        }
        call->err = *err;
        import_answer(s, (struct store_import *)call);
    }
}
