/* Users that another store has packed. A user is read as a whole, united in memory with what comes, and written under
 * the version that was read, so that no play comes in between: an import may begin and end exceptions.
 *
 * Filters are united month by month into one part each. What was staged there are plays here, to be merged as others
 * are. */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/rados/import_impl.h"
#include "store/user/parcel.h"

enum { AT_ONCE = 16 };

static struct import *import_of(struct update *u)
{
    return (struct import *)u;
}

/* All but the filters, which the directory tells the size of. */
static void again(struct update *u)
{
    static const struct slice directory[] = {{"w", 1}};
    struct import *m = import_of(u);
    u->fetch.ranges = gathered_but_filters;
    u->fetch.n_ranges = GATHERED_RANGES - 1;
    u->fetch.keys = directory;
    u->fetch.n_keys = 1;
    gathered_begin(&m->gathered, &u->arena, 0);
    m->gathered.keeps_forgotten = true;
    m->listed = false;
    m->error = 0;
    m->verdict = 0;
    m->keys = m->n_directory = 0;
}

static int take(struct update *u, const struct layout_key *key, struct slice value)
{
    return gathered_take(&import_of(u)->gathered, key, value, &u->err);
}

/* --- a call --- */

static void go_on(struct import_call *c);

static void one_done(struct import_call *c, const struct err *err)
{
    pthread_mutex_lock(&c->mutex);
    if (err->code < 0 && c->err.code == 0) {
        c->err = *err;
    }
    pthread_mutex_unlock(&c->mutex);
    go_on(c);
}

static void on_done(struct update *u)
{
    struct import *m = import_of(u);
    struct rados_store *s = u->s;
    struct import_call *c = m->call;
    struct err err = u->err;
    int64_t key = u->key;
    char name[255];
    struct slice user = slice_of(name, m->len);
    memcpy(name, m->user, m->len);
    c->import->verdicts[m->place] = (uint8_t)(err.code < 0 ? 0 : m->verdict);
    if (err.code == 0) {
        RADOS_COUNT(s, staged_rows, m->keys);
    }
    if (c->as != NULL && m->verdict == IMPORT_CROWDED) {
        char month[MONTH_TEXT];
        err_set(&err, ERR_CONFLICT, "user %s: %s would need more than %d parts", log_quote(user),
                month_name(m->crowded, month), FILTER_PARTS_MAX);
    }
    update_destroy(u);
    free(m);
    writes_end_turn(s, key, user);
    one_done(c, &err);
}

static void start(struct writes_turn *turn)
{
    struct import *m = (struct import *)((char *)turn - offsetof(struct import, turn));
    update_start(&m->update);
}

/* Whose it is has to be known before it is read. */
static int begin_user(struct import_call *c, size_t place, struct err *err)
{
    struct rados_store *s = c->s;
    struct slice bytes = c->import->snapshots[place];
    struct arena arena = {0};
    struct user_snapshot in;
    struct import *m = calloc(1, sizeof *m);
    int result = m == NULL ? err_set(err, ERR_NOMEM, "out of memory while joining users")
                           : parcel_open(bytes, s->seed, &arena, &in, err);
    if (result == 0 && in.migration_state) {
        result = store_lacks(&s->base, "users who are still to come from another Redis", err);
    }
    if (result == 0) {
        const struct slice user = c->as != NULL ? c->as->into : in.user;
        const int64_t key = c->as != NULL ? c->as->into_key : in.key;
        m->call = c;
        m->place = place;
        m->len = (uint8_t)user.len;
        memcpy(m->user, user.data, user.len);
        m->turn.start = start;
        struct update *u = &m->update;
        update_init(u, s, key, slice_of(m->user, m->len));
        u->guard = UPDATE_BY_VERSION;
        u->heavy = true;
        u->again = again;
        u->take = take;
        u->plan = import_plan;
        u->done = on_done;
        u->quota = &s->large;
        u->quota_bytes = RADOS_LARGE_BYTES + 2 * bytes.len;
        if (writes_take_turn(s, u->key, u->user, &m->turn) < 0) {
            update_destroy(u);
            result = err_set(err, ERR_NOMEM, "out of memory while joining users");
        }
    }
    arena_free(&arena);
    if (result < 0) {
        free(m);
    }
    return result;
}

/* Begins what may be under way besides. Its caller is counted in under_way until its end; the last one ends the
 * call. */
static void go_on(struct import_call *c)
{
    pthread_mutex_lock(&c->mutex);
    while (c->err.code == 0 && c->next < c->import->n && c->under_way <= AT_ONCE) {
        size_t place = c->next++;
        c->under_way++;
        pthread_mutex_unlock(&c->mutex);
        struct err err = {0};
        int result = begin_user(c, place, &err);
        pthread_mutex_lock(&c->mutex);
        if (result < 0) {
            c->under_way--;
            c->err = c->err.code == 0 ? err : c->err;
        }
    }
    bool over = --c->under_way == 0;
    pthread_mutex_unlock(&c->mutex);
    if (over) {
        struct rados_store *s = c->s;
        struct store_import *import = c->import;
        import->call.err = c->err;
        pthread_mutex_destroy(&c->mutex);
        free(c);
        rados_store_post(s, &import->call.message, RADOS_CALL);
    }
}

void rados_import(struct store *base, struct store_import *import)
{
    rados_import_as(rados_of(base), import, NULL);
}

void rados_import_as(struct rados_store *s, struct store_import *import, const struct store_merge *as)
{
    struct import_call *c = calloc(1, sizeof *c);
    import->call.err = (struct err){0};
    memset(import->verdicts, 0, import->n);
    if (c == NULL) {
        err_set(&import->call.err, ERR_NOMEM, "out of memory while joining users");
    } else if (guarded_clock_known(&s->clock, &import->call.err) < 0) {
        free(c);
        c = NULL;
    }
    if (c == NULL) {
        rados_store_post(s, &import->call.message, RADOS_CALL);
        return;
    }
    c->s = s;
    c->as = as;
    c->import = import;
    c->under_way = 1;
    pthread_mutex_init(&c->mutex, NULL);
    go_on(c);
}
