/* Importing users of another store. Messages pass the stager, in its order, to the historian. It merges the users of a
 * message in one transaction, between those of a flush. One barrier serves several messages, so that senders who
 * pipeline share it. If its transaction or barrier fails, a message is answered with the error and its sender repeats
 * it: an import is a union.
 *
 * In the stager a message secures what must be there first: imported deliveries get ids by rank, and whatever is sent
 * from then on must get a higher one, also in a store that is new. So 1 to DELIVERED_MAX are kept for them. And users
 * who are noted there are noted here, and forgets that are known there are known here, before the rest of their data
 * arrives.
 */
#include "base/hash.h"
#include "base/log.h"
#include "store/codec/user_snapshot.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

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

static int reserve_ids(struct sqlite_store *s, struct err *err)
{
    struct stager *st = &s->stager;
    if (st->next_id > DELIVERED_MAX) {
        return 0;
    }
    int result = db_begin(&st->db, err);
    if (result < 0) {
        return result;
    }
    if ((result = stager_undo(s, err)) < 0 ||
        (result = db_meta_set_int(&st->db, "high_water", DELIVERED_MAX, err)) < 0) {
        db_rollback(&st->db);
        return result;
    }
    if ((result = db_commit(&st->db, err)) == 0) {
        st->undo_from = 0;
        st->next_id = DELIVERED_MAX + 1;
    }
    return result;
}

/* What the stager needs of a message's snapshots. */
struct heads {
    struct arena arena;
    struct slice *noted;
    struct tombstone *forgotten;
    size_t n_noted, n_forgotten;
};

/* One that isn't sound is left to the historian, who refuses it. */
static int read_head(struct sqlite_store *s, struct slice snapshot, struct heads *heads, struct err *err)
{
    struct user_snapshot p;
    struct err why = {0};
    int result = user_snapshot_has_more(snapshot)
                     ? user_snapshot_decode(snapshot.data, snapshot.len, &heads->arena, &p, &why)
                     : ERR_INVALID;
    if (result == ERR_NOMEM) {
        return err_set(err, ERR_NOMEM, "%s", why.text);
    }
    if (result < 0 || p.key != hash_user_key(s->seed, p.user)) {
        return 0;
    }
    int64_t later, earlier, ours = tombstones_user_ms(s->tombstones, p.key);
    store_now(&s->base, &later, &earlier);
    if (p.migration_state && ours <= p.forgotten_ms) { /* else what another Redis has is older than the forget */
        heads->noted[heads->n_noted++] = p.user;
    }
    if (p.forgotten_ms > 0 && p.forgotten_ms > ours && p.forgotten_ms <= later + USER_SNAPSHOT_AHEAD_MS) {
        heads->forgotten[heads->n_forgotten++] =
            (struct tombstone){.key = p.key, .item = TOMBSTONE_USER, .at_ms = p.forgotten_ms};
    }
    return 0;
}

static int take_heads(struct sqlite_store *s, const struct store_import *import, struct err *err)
{
    struct heads heads = {.n_noted = 0};
    heads.noted = arena_alloc(&heads.arena, (import->n + 1) * sizeof *heads.noted);
    heads.forgotten = arena_alloc(&heads.arena, (import->n + 1) * sizeof *heads.forgotten);
    int result = heads.noted == NULL || heads.forgotten == NULL
                     ? err_set(err, ERR_NOMEM, "out of memory while joining users")
                     : 0;
    for (size_t i = 0; i < import->n && result >= 0; i++) {
        result = read_head(s, import->snapshots[i], &heads, err);
    }
    if (result >= 0 && heads.n_noted > 0) {
        result = migration_users_add(s, heads.noted, heads.n_noted, err);
    }
    if (result >= 0) {
        result = forgets_adopt(s, heads.forgotten, heads.n_forgotten, err);
    }
    arena_free(&heads.arena);
    return result;
}

void import_pass(struct sqlite_store *s, struct store_message *m)
{
    struct store_call *call = (struct store_call *)m;
    if (stager_disk_room(s, &call->err) < 0 || store_time_known(&s->base, &call->err) < 0 ||
        reserve_ids(s, &call->err) < 0 || take_heads(s, (struct store_import *)m, &call->err) < 0) {
        call->done(call);
        return;
    }
    thread_queue_put(&s->historian.queue, m);
}

static int tell_users(struct sqlite_store *s, const struct store_import *import, uint64_t *id, struct err *err)
{
    struct arena arena = {0};
    int64_t now, earlier;
    int result = stager_undo(s, err);
    store_now(&s->base, &now, &earlier);
    for (size_t i = 0; i < import->n && result == 0; i++) {
        struct user_snapshot p;
        result = user_snapshot_decode(import->snapshots[i].data, import->snapshots[i].len, &arena, &p, err);
        if (result >= 0) {
            result = feed_add_other(s, FEED_USER, p.user, now, (*id)++, err);
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    if (result == 0) {
        result = db_meta_raise(&s->stager.db, "high_water", (int64_t)*id - 1, err);
    }
    return result < 0 ? result : feed_before_commit(s, err);
}

/* Behind history's barrier and before the answer: whoever was answered is in the feed. A crash between the two leaves
 * an import that nobody was told of. */
void import_tell(struct sqlite_store *s, struct store_message *m)
{
    struct store_import *import = (struct store_import *)m;
    struct stager *st = &s->stager;
    struct err *err = &import->call.err;
    uint64_t from = st->next_id;
    int result = st->db.lost ? db_reopen(&st->db, err) : 0;
    if (result == 0 && (result = db_begin(&st->db, err)) == 0) {
        if ((result = tell_users(s, import, &st->next_id, err)) == 0) {
            result = db_commit(&st->db, err);
        } else {
            db_rollback(&st->db);
        }
        if (result < 0) {
            feed_failed(s);
            stager_undo_later(s, from, st->next_id);
        } else {
            st->undo_from = 0;
            feed_committed(s, st->next_id - 1);
            feed_durable(s, st->next_id - 1);
            import->seq = st->next_id - 1;
        }
    }
    import->call.done(&import->call);
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

bool import_step(struct sqlite_store *s)
{
    struct historian *h = &s->historian;
    struct store_message *first = h->imports, *end = first;
    struct err err = {0};
    bool done = false;
    uint64_t losses = h->losses;
    for (int i = 0; end != NULL && i < GROUP_MAX; i++, end = end->next) {
        struct store_import *import = (struct store_import *)end;
        import_users(s, import, &import->call.err);
        done = done || import->call.err.code == 0;
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
        if (err.code < 0 && call->err.code == 0) {
            call->err = err;
        }
        if (call->err.code < 0) {
            log_warn("import of users failed", "error=%s", log_quote_str(call->err.text));
        }
        if (call->err.code == 0 && feed_has_remote(s)) {
            call->message.what = WANTS_IMPORTED;
            thread_queue_put(&s->stager.queue, &call->message);
        } else {
            ((struct store_import *)call)->seq = s->base.feed->last(&s->base);
            call->done(call);
        }
    }
    return first != NULL;
}

void import_refuse(struct sqlite_store *s, const struct err *err)
{
    struct historian *h = &s->historian;
    while (h->imports != NULL) {
        struct store_call *call = (struct store_call *)h->imports;
        h->imports = call->message.next;
        call->err = *err;
        call->done(call);
    }
}
