/* What looks at a whole pool and changes nothing: check and export; and what is brought in again, here or in a folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/admin.h"
#include "store/bulk.h"
#include "store/codec/user_snapshot.h"
#include "store/rados/layout.h"
#include "store/rados/night.h"
#include "store/rados/rados_store.h"
#include "store/rados/user_sort.h"
#include "tests/lib/memory_pool.h"
#include "tests/lib/store_calls.h"

enum { USERS = 60, TEXT = 32, LINES_MAX = 64, LINE = 512 };

struct setting {
    struct memory_pool *pool;
    struct store_fixture *f;
};

static void open_as(struct store_fixture *f, enum rados_store_use use)
{
    struct err err = {0};
    if (rados_store_open(&f->cfg, &(struct rados_store_options){.ops = &memory_pool_ops, .use = use}, &f->store, &err) <
            0 ||
        f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void close_it(struct store_fixture *f)
{
    if (f->store != NULL) {
        f->store->ops->reader_close(f->reader);
        f->store->ops->close(f->store);
        f->store = NULL;
        f->reader = NULL;
    }
}

static void begin_pool(struct setting *t, const char *name)
{
    struct err err = {0};
    t->f = store_fixture_new(name);
    t->pool = memory_pool_new(name);
    snprintf(t->f->cfg.rados_pool, sizeof t->f->cfg.rados_pool, "%s", name);
    t->f->cfg.delivered_max = 5;
    if (rados_store_init(&t->f->cfg, &memory_pool_ops, &err) != 1) {
        fail_msg("%s", err.text);
    }
    open_as(t->f, RADOS_SERVES);
}

static void end_pool(struct setting *t)
{
    memory_pool_fault(t->pool, NULL);
    close_it(t->f);
    memory_pool_free(t->pool);
    store_fixture_free(t->f);
}

static int setup(void **state)
{
    static struct setting t;
    begin_pool(&t, "walked");
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    end_pool(*state);
    return 0;
}

static void name_user(int i, char out[TEXT])
{
    snprintf(out, TEXT, "u%d/%c", i, 'a' + i % 3);
}

/* Users of every kind: with filters, staged plays, both; un-seen items; deliveries; one who was forgotten. */
static void fill_pool(struct store_fixture *f)
{
    char user[TEXT], item[TEXT];
    struct err err = {0};
    for (int i = 0; i < USERS; i++) {
        name_user(i, user);
        for (int k = 0; k <= i % 7; k++) {
            snprintf(item, sizeof item, "i%d.%d", i, k);
            play(f, user, item);
        }
        record_at(f, STORE_PLAY, START - 40 * (int64_t)DAY_MS, user, "older");
        deliver(f, user, "sent");
        if (i == USERS / 2 && rados_store_walk(f->store, &err) < 0) {
            fail_msg("%s", err.text);
        }
        if (i % 5 == 0) {
            assert_int_equal(forget(f, user, "older"), 1);
        }
    }
    forget(f, "gone", NULL);
    play(f, "gone and back", "before");
    assert_int_equal(forget(f, "gone and back", NULL), 1);
    clock_test_advance(1000);
    play(f, "gone and back", "after");
    name_user(3, user);
    play(f, user, "late");
}

/* --- check --- */

struct problems {
    char lines[LINES_MAX][LINE];
    int n;
};

static void note(void *arg, const char *problem)
{
    struct problems *p = arg;
    if (p->n < LINES_MAX) {
        snprintf(p->lines[p->n], LINE, "%s", problem);
    }
    p->n++;
}

static int check(struct store_fixture *f, struct problems *p, struct rados_checked *out, struct err *err)
{
    const struct rados_check order = {.ops = &memory_pool_ops, .found = note, .arg = p};
    *p = (struct problems){.n = 0};
    return rados_check_pool(&f->cfg, &order, out, err);
}

static void expect(struct store_fixture *f, const char *words)
{
    static struct problems p;
    struct rados_checked out;
    struct err err = {0};
    assert_int_equal(check(f, &p, &out, &err), 0);
    for (int i = 0; i < p.n && i < LINES_MAX; i++) {
        if (strstr(p.lines[i], words) != NULL) {
            return;
        }
    }
    fail_msg("no problem says \"%s\": %d problems, the first \"%s\"", words, p.n, p.n > 0 ? p.lines[0] : "");
}

static void a_sound_pool_has_no_problem(void **state)
{
    struct setting *t = *state;
    static struct problems p;
    struct rados_checked out;
    struct err err = {0};
    fill_pool(t->f);
    uint64_t writes = memory_pool_operations(t->pool, MEMORY_POOL_WRITES);
    assert_int_equal(check(t->f, &p, &out, &err), 0);
    assert_int_equal(p.n, 0);
    assert_int_equal(out.users, USERS + 1);
    assert_int_equal(out.forgotten, 1);
    assert_true(out.plays > 0 && out.waiting > 0);
    assert_int_equal(out.objects, memory_pool_objects(t->pool));
    assert_int_equal(memory_pool_operations(t->pool, MEMORY_POOL_WRITES), writes);
}

static void each_damage_is_named(void **state)
{
    static const struct {
        const char *object, *key, *value, *says;
    } harm[] = {
        {"u.a", "pnonsense", "", "user \"a\": key \"pnonsense\": Unseen didn't write it"},
        {"u.b", "p2026110123456789abcdef", "soon", "the value is no time"},
        {"u.c", "p2999010123456789abcdef", "0000019a00000000", "a month that lies ahead"},
        {"u.d", "p0000000123456789abcdef", "0000019a00000000", "no month"},
        {"u.e", "d00000000000000010123456789abcdef", "202611x", "the hash is not the item's"},
        {"u.f", "d00000000000000010123456789abcdef", "2026", "the value is no month and item"},
        {"u.g", "g", "12", "the value is no generation"},
        {"u.h", "m202611.0000", "no filter", "key \"m202611.0000\": "},
        {"u.h", "m202611.0000", "no filter", "2026-11, part 0000: the directory doesn't know it"},
        {"u.i", "x0123456789abcdef", "", "user \"i\": there is no generation"},
        {"u.j", "x0123456789abcdef", "1", "there is a value"},
        {"u.k", "f", "never", "the value is no time: plays of a stated time are refused"},
        {"u.l", "f0123456789abcdef", "00000fffffffffff", "a time that lies ahead"},
        {"u.m", "q202610", "", "user \"m\": 2026-10 marked as damaged"},
        {"u.n", "q000000", "", "user \"n\": deliveries marked as damaged"},
        {"u.o", "w", "short", "the directory of the filters is damaged"},
        {"u.p", "p2026100123456789abcdef", "0000018a00000000", "a play has waited for"},
        {"u.%41", "p2026100123456789abcdef", "0000018a00000000", "object \"u.%41\": Unseen didn't write it"},
        {"stranger", "key", "value", "object \"stranger\": Unseen didn't write it"},
        {"night.112", "done", "0000000000000000", "object \"night.112\": Unseen didn't write it"},
        {"night.3", "odd", "value", "object night.3: key \"odd\": Unseen didn't write it"},
        {"night.4", "done", "0000000000000001", "object night.4: the nightly walk hasn't come by for"},
        {"night.5", "done", "00000000000fffff", "object night.5: the nightly walk came by on a day that lies ahead"},
        {"night.6", "202611", "1 2 3", "object night.6: key \"202611\""},
        {"meta", "more", "value", "object meta: key \"more\": Unseen didn't write it"},
    };
    struct setting *t = *state;
    static struct problems p;
    struct rados_checked out;
    struct err err = {0};
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++) {
        memory_pool_put(t->pool, harm[i].object, harm[i].key, slice_str(harm[i].value));
        expect(t->f, harm[i].says);
    }
    assert_int_equal(check(t->f, &p, &out, &err), 0);
    assert_true(p.n >= (int)(sizeof harm / sizeof *harm));
}

/* A part of a month that is gone, or another than the directory says. */
static void filters_and_their_directory(void **state)
{
    struct setting *t = *state;
    struct err err = {0};
    char value[4096];
    play(t->f, "u", "a");
    play(t->f, "v", "a");
    play(t->f, "v", "b");
    assert_int_equal(rados_store_walk(t->f->store, &err), 0);
    int len = memory_pool_value(t->pool, "u.u", "m202611.0000", value, sizeof value);
    assert_true(len > 0);
    memory_pool_put(t->pool, "u.v", "m202611.0000", slice_of(value, (size_t)len));
    expect(t->f, "user \"v\": 2026-11, part 0000: it is not what the directory says of it");
    len = memory_pool_value(t->pool, "u.u", "w", value, sizeof value);
    memory_pool_put(t->pool, "u.nobody", "w", slice_of(value, (size_t)len));
    expect(t->f, "user \"nobody\": 2026-11, part 0000: the directory knows it, and it is missing");
}

static void a_cluster_that_fails_ends_it(void **state)
{
    struct setting *t = *state;
    static struct problems p;
    struct rados_checked out;
    struct err err = {0};
    fill_pool(t->f);
    memory_pool_fault(t->pool, &(struct memory_pool_fault){
                                   .kinds = MEMORY_POOL_READS, .object = "u.", .nth = 20, .result = CLUSTER_LATE});
    assert_int_equal(check(t->f, &p, &out, &err), ERR_LATE);
    assert_non_null(strstr(err.text, "rados_timeout"));
    memory_pool_fault(t->pool, NULL);
    assert_int_equal(check(t->f, &p, &out, &err), 0);
}

static const struct {
    enum cluster_result result;
    int code;
} listed[] = {{CLUSTER_LATE, ERR_LATE}, {CLUSTER_FAILED, ERR_IO}};
enum { LISTED = sizeof listed / sizeof *listed, APART = 37 };

static unsigned fail_nth(struct setting *t, unsigned kinds, const char *object, enum cluster_result result,
                         unsigned nth)
{
    memory_pool_fault(t->pool,
                      &(struct memory_pool_fault){.kinds = kinds, .object = object, .nth = nth, .result = result});
    return memory_pool_faults(t->pool);
}

/* Wherever the list ends early nothing is said of the pool, and the next try is a whole one. */
static void a_list_that_fails_ends_it(void **state)
{
    struct setting *t = *state;
    static struct problems p;
    struct rados_checked out;
    struct err err = {0};
    fill_pool(t->f);
    for (size_t i = 0; i < LISTED; i++) {
        unsigned before, nth = 1;
        do {
            before = fail_nth(t, MEMORY_POOL_LISTS, "", listed[i].result, nth);
            int code = check(t->f, &p, &out, &err);
            assert_int_equal(code, memory_pool_faults(t->pool) > before ? listed[i].code : 0);
            assert_int_equal(p.n, 0);
            nth += APART;
        } while (memory_pool_faults(t->pool) > before);
        assert_true(nth > 3 * APART);
        memory_pool_fault(t->pool, NULL);
    }
}

/* --- a store that only asks --- */

static void who_only_asks_writes_nothing(void **state)
{
    struct setting *t = *state;
    struct store_month_info months[4];
    struct err err = {0};
    for (int i = 0; i < 70; i++) {
        char item[TEXT];
        snprintf(item, sizeof item, "i%d", i);
        memory_pool_fault(t->pool, NULL);
        play(t->f, "u", item);
    }
    assert_int_equal(rados_store_walk(t->f->store, &err), 0);
    record_at(t->f, STORE_PLAY, START, "u", "waits");
    close_it(t->f);
    clock_test_advance(2 * HOUR_MS); /* so that a question would begin a merge */
    char starts[TEXT], now[TEXT];
    memory_pool_value(t->pool, "meta", "starts", starts, sizeof starts);
    uint64_t writes = memory_pool_operations(t->pool, MEMORY_POOL_WRITES);
    open_as(t->f, RADOS_ASKS);
    assert_true(seen(t->f, "u", "i3") && seen(t->f, "u", "waits"));
    assert_int_equal(t->f->store->admin->months(t->f->reader, months, 4, &err), 1);
    assert_int_equal(months[0].plays, 70);
    assert_int_equal(months[0].coverage, 1);
    assert_int_equal(months[0].found_ms, START / DAY_MS * DAY_MS);
    assert_int_equal(record_at(t->f, STORE_PLAY, START, "u", "new"), ERR_READONLY);
    assert_int_equal(forget(t->f, "u", NULL), ERR_READONLY);
    assert_int_equal(call(t->f, t->f->store->ops->tick, &err), 0);
    close_it(t->f);
    assert_int_equal(memory_pool_operations(t->pool, MEMORY_POOL_WRITES), writes);
    memory_pool_value(t->pool, "meta", "starts", now, sizeof now);
    assert_string_equal(starts, now);
}

/* Months are those of all pieces, or none. */
static void months_that_fail_are_asked_for_again(void **state)
{
    struct setting *t = *state;
    struct store_month_info months[4];
    struct err err = {0};
    play(t->f, "u", "a");
    assert_int_equal(rados_store_walk(t->f->store, &err), 0);
    for (size_t i = 0; i < LISTED; i++) {
        for (unsigned nth = 1; nth <= NIGHT_PIECES; nth += APART) {
            close_it(t->f);
            open_as(t->f, RADOS_ASKS);
            fail_nth(t, MEMORY_POOL_READS, "night.", listed[i].result, nth);
            assert_int_equal(t->f->store->admin->months(t->f->reader, months, 4, &err), listed[i].code);
            assert_non_null(strstr(err.text, "while reading night."));
            assert_int_equal(stats(t->f).rados_errors, 1);
            assert_int_equal(t->f->store->admin->months(t->f->reader, months, 4, &err), 1);
            assert_int_equal(months[0].users, 1);
            assert_int_equal(months[0].coverage, 1);
        }
    }
}

/* What the walks of other nodes have found is known from the start on, in the middle of the day. */
static void months_are_known_at_once(void **state)
{
    struct setting *t = *state;
    struct store_month_info months[4];
    struct err err = {0};
    play(t->f, "u", "a");
    assert_int_equal(rados_store_walk(t->f->store, &err), 0);
    close_it(t->f);
    open_as(t->f, RADOS_SERVES);
    assert_int_equal(call(t->f, t->f->store->ops->tick, &err), 0);
    assert_int_equal(t->f->store->admin->months(t->f->reader, months, 4, &err), 1);
    assert_int_equal(months[0].users, 1);
}

/* --- export, and back --- */

struct exported {
    struct buf bytes, ends; /* snapshots; size_t each: where one ends */
    struct problems damaged;
    int64_t last_key;
    size_t n;
    const char *only_shard; /* users that begin so; NULL: all */
};

static bool wanted(void *arg, struct slice user)
{
    const char *word = ((struct exported *)arg)->only_shard;
    return word == NULL || (user.len >= strlen(word) && memcmp(user.data, word, strlen(word)) == 0);
}

static int begin(void *arg, uint64_t seed, struct err *err)
{
    (void)arg, (void)err;
    assert_int_equal(seed, SEED);
    return 0;
}

static int keep(void *arg, struct slice bytes, struct err *err)
{
    struct exported *x = arg;
    struct arena arena = {0};
    struct user_snapshot p;
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &p, err), 0);
    assert_true(x->n == 0 || p.key >= x->last_key);
    x->last_key = p.key;
    x->n++;
    buf_add(&x->bytes, bytes.data, bytes.len);
    buf_add(&x->ends, &x->bytes.len, sizeof x->bytes.len);
    arena_free(&arena);
    return 0;
}

static void damaged(void *arg, const char *what)
{
    note(&((struct exported *)arg)->damaged, what);
}

static struct store_export export_to(struct exported *x)
{
    return (struct store_export){.from = INT64_MIN,
                                 .to = INT64_MAX,
                                 .wanted = wanted,
                                 .begin = begin,
                                 .snapshot = keep,
                                 .damaged = damaged,
                                 .arg = x};
}

static int export_pool(struct store_fixture *f, struct exported *x, struct err *err)
{
    const struct store_export e = export_to(x);
    return rados_export_pool(&f->cfg, &(struct rados_export){.ops = &memory_pool_ops}, &e, err);
}

static void export_folder(struct store_fixture *f, struct exported *x)
{
    struct err err = {0};
    const struct store_export e = export_to(x);
    assert_int_equal(sqlite_export_folder(f->cfg.data, &e, &err), 0);
}

static void exported_free(struct exported *x)
{
    buf_free(&x->bytes);
    buf_free(&x->ends);
}

static void import_all(struct store_fixture *f, const struct exported *x)
{
    struct slice *list = calloc(x->n + 1, sizeof *list);
    uint8_t *verdicts = calloc(x->n + 1, 1);
    size_t from = 0;
    int done = 0;
    for (size_t i = 0; i < x->n; i++) {
        size_t end;
        memcpy(&end, x->ends.data + i * sizeof end, sizeof end);
        list[i] = slice_of(x->bytes.data + from, end - from);
        from = end;
    }
    struct store_import import = {.snapshots = list, .n = x->n, .verdicts = verdicts};
    import.call.done = call_done;
    import.call.owner = &done;
    f->store->ops->import(f->store, &import);
    wait_flag(&done);
    if (import.call.err.code < 0) {
        fail_msg("%s", import.call.err.text);
    }
    free(list);
    free(verdicts);
}

/* What fill_pool() has said. */
static void expect_all(struct store_fixture *f)
{
    char user[TEXT], item[TEXT];
    for (int i = 0; i < USERS; i++) {
        name_user(i, user);
        for (int k = 0; k <= i % 7; k++) {
            snprintf(item, sizeof item, "i%d.%d", i, k);
            assert_true(seen(f, user, item));
        }
        assert_true(seen(f, user, "sent"));
        assert_int_equal(seen(f, user, "older"), i % 5 != 0);
        assert_false(seen(f, user, "never"));
    }
    name_user(3, user);
    assert_true(seen(f, user, "late"));
    assert_true(seen(f, "gone and back", "after"));
    assert_false(seen(f, "gone and back", "before"));
    assert_false(known(f, "gone"));
}

/* A replay that is older than the forget is dropped there as here. */
static void expect_item_tombstones(struct setting *t)
{
    char user[TEXT], name[LAYOUT_NAME];
    for (int i = 0; i < USERS; i++) {
        name_user(i, user);
        layout_user_name(slice_str(user), name);
        assert_int_equal(memory_pool_count(t->pool, name, "f"), i % 5 == 0);
    }
}

static void to_another_pool(void **state)
{
    struct setting *t = *state, other;
    static struct exported x, y;
    struct err err = {0};
    x = y = (struct exported){.n = 0};
    fill_pool(t->f);
    uint64_t writes = memory_pool_operations(t->pool, MEMORY_POOL_WRITES);
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    assert_int_equal(x.damaged.n, 0);
    assert_int_equal(x.n, USERS + 2); /* who was forgotten, too */
    assert_int_equal(memory_pool_operations(t->pool, MEMORY_POOL_WRITES), writes);
    begin_pool(&other, "restored");
    close_it(other.f);
    open_as(other.f, RADOS_LOADS);
    import_all(other.f, &x);
    import_all(other.f, &x); /* again is once */
    expect_all(other.f);
    expect_item_tombstones(t);
    expect_item_tombstones(&other);
    assert_int_equal(memory_pool_count(other.pool, "u.gone", "f"), 1);
    assert_int_equal(export_pool(other.f, &y, &err), 0);
    assert_int_equal(y.n, x.n);
    end_pool(&other);
    exported_free(&x);
    exported_free(&y);
}

static void to_a_folder_and_back(void **state)
{
    struct setting *t = *state, other;
    static struct exported x, y;
    struct err err = {0};
    x = y = (struct exported){.n = 0};
    fill_pool(t->f);
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    struct store_fixture *folder = store_fixture_new("loaded");
    folder->cfg.delivered_max = 5;
    open_store(folder);
    import_all(folder, &x);
    expect_all(folder);
    play(folder, "new there", "a");
    close_store(folder);
    export_folder(folder, &y);
    begin_pool(&other, "back");
    import_all(other.f, &y);
    expect_all(other.f);
    expect_item_tombstones(&other);
    assert_true(seen(other.f, "new there", "a"));
    static struct problems p;
    struct rados_checked out;
    assert_int_equal(check(other.f, &p, &out, &err), 0);
    assert_int_equal(p.n, 0);
    end_pool(&other);
    store_fixture_free(folder);
    exported_free(&x);
    exported_free(&y);
}

/* Many parts of a month, as a busy user has them, and more keys than a page: one blob, and all plays. */
static void a_user_of_many_pages(void **state)
{
    struct setting *t = *state;
    static struct exported x;
    struct err err = {0};
    char key[LAYOUT_KEY];
    enum { MANY = 2500 };
    x = (struct exported){.n = 0};
    for (int i = 0; i < 300; i++) {
        char item[TEXT];
        snprintf(item, sizeof item, "played%d", i);
        play(t->f, "u", item);
    }
    /* The 64th has begun a merge, which stands back if it comes to more plays than this node had recorded by then. */
    for (int i = 0; memory_pool_count(t->pool, "u.u", "m") < 1; i++) {
        char item[TEXT];
        snprintf(item, sizeof item, "more%d", i);
        play(t->f, "u", item);
    }
    close_it(t->f);
    for (int i = 0; i < MANY; i++) {
        char item[TEXT];
        snprintf(item, sizeof item, "put%d", i);
        const struct layout_key play = {
            .kind = LAYOUT_PLAY, .month = month_of_ms(START), .hash = hash_id(SEED, slice_str(item))};
        layout_key_write(&play, key);
        memory_pool_put(t->pool, "u.u", key, slice_str("0000019a00000000"));
    }
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    assert_int_equal(x.n, 1);
    struct arena arena = {0};
    struct user_snapshot p;
    assert_int_equal(user_snapshot_decode(x.bytes.data, x.bytes.len, &arena, &p, &err), 0);
    assert_int_equal(p.n_months, 1);
    assert_true(p.n_plays >= MANY);
    arena_free(&arena);
    exported_free(&x);
}

/* Tombstones of items that can't be read, or that say no more than the user's own: left out, and the first is told. */
static void tombstones_of_items_that_are_left_out(void **state)
{
    struct setting *t = *state;
    static struct exported x;
    struct err err = {0};
    struct user_snapshot p;
    struct arena arena = {0};
    x = (struct exported){.n = 0};
    close_it(t->f);
    memory_pool_put(t->pool, "u.u", "f", slice_str("0000000000000010"));
    memory_pool_put(t->pool, "u.u", "f0000000000000000", slice_str("0000000000000012"));
    memory_pool_put(t->pool, "u.u", "f0000000000000001", slice_str("0000000000000011")); /* two hashes, one tombstone */
    memory_pool_put(t->pool, "u.u", "f0000000000000005", slice_str("0000000000000010"));
    memory_pool_put(t->pool, "u.u", "f0000000000000007", slice_str("no time"));
    memory_pool_put(t->pool, "u.u", "f0000000000000009", slice_str("0000000000000011"));
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    assert_int_equal(x.n, 1);
    assert_int_equal(user_snapshot_decode(x.bytes.data, x.bytes.len, &arena, &p, &err), 0);
    assert_int_equal(p.n_forgotten, 2);
    assert_true(p.forgotten[0].item == 1 && p.forgotten[0].at_ms == 0x12);
    assert_true(p.forgotten[1].item == 9 && p.forgotten[1].at_ms == 0x11);
    assert_int_equal(x.damaged.n, 1);
    assert_string_equal(x.damaged.lines[0], "user \"u\": tombstone: it can't be read");
    arena_free(&arena);
    exported_free(&x);
}

/* What can't be read is marked, so that the user's questions fail wherever it is loaded, instead of showing what was
 * seen. */
static void damage_goes_along(void **state)
{
    struct setting *t = *state, other;
    static struct exported x;
    struct err err = {0};
    struct store_view view;
    x = (struct exported){.n = 0};
    play(t->f, "u", "a");
    play(t->f, "whole", "a");
    assert_int_equal(rados_store_walk(t->f->store, &err), 0);
    memory_pool_put(t->pool, "u.u", "m202611.0000", slice_str("no filter"));
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    assert_int_equal(x.n, 2);
    assert_int_equal(x.damaged.n, 1);
    assert_non_null(strstr(x.damaged.lines[0], "user \"u\": 2026-11: "));
    begin_pool(&other, "damaged");
    import_all(other.f, &x);
    assert_int_equal(load(other.f, other.f->reader, "u", &view, &err), ERR_CORRUPT);
    assert_true(seen(other.f, "whole", "a"));
    end_pool(&other);
    exported_free(&x);
}

static void some_of_them(void **state)
{
    struct setting *t = *state;
    static struct exported x;
    struct err err = {0};
    x = (struct exported){.only_shard = "u1"};
    fill_pool(t->f);
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    assert_int_equal(x.n, 11); /* u1, u10 to u19 */
    exported_free(&x);
    x = (struct exported){.n = 0};
    memory_pool_fault(t->pool, &(struct memory_pool_fault){
                                   .kinds = MEMORY_POOL_READS, .object = "u.", .nth = 7, .result = CLUSTER_LATE});
    assert_int_equal(export_pool(t->f, &x, &err), ERR_LATE);
    exported_free(&x);
    x = (struct exported){.n = 0};
    fail_nth(t, MEMORY_POOL_LISTS, "", CLUSTER_FAILED, APART);
    assert_int_equal(export_pool(t->f, &x, &err), ERR_IO);
    assert_int_equal(x.n, 0);
    exported_free(&x);
    x = (struct exported){.only_shard = "u1"};
    assert_int_equal(export_pool(t->f, &x, &err), 0);
    assert_int_equal(x.n, 11);
    exported_free(&x);
}

/* --- files of plays --- */

static int load_play(struct store_fixture *f, const char *user, const char *item, int64_t at, struct err *err)
{
    return f->store->bulk->add(f->store, at, key_of(user), slice_str(user), hash_id(SEED, slice_str(item)), err);
}

/* In any order, of many users, some again; an item that was forgotten since stays so. */
static void plays_are_loaded(void **state)
{
    enum { N = 3000, EACH = 40 };
    struct setting *t = *state;
    struct err err = {0};
    char user[TEXT], item[TEXT];
    assert_null(t->f->store->bulk); /* a node that serves brings in nothing */
    play(t->f, "u1", "forgotten");
    assert_int_equal(forget(t->f, "u1", "forgotten"), 1);
    assert_int_equal(forget(t->f, "gone", NULL), 0);
    close_it(t->f);
    open_as(t->f, RADOS_LOADS);
    const struct store_bulk_ops *bulk = t->f->store->bulk;
    assert_int_equal(bulk->begin(t->f->store, true, &err), ERR_ABSENT);
    err = (struct err){0};
    assert_int_equal(bulk->begin(t->f->store, false, &err), 0);
    for (int i = 0; i < N; i++) {
        snprintf(user, sizeof user, "u%d", i * 7 % (N / EACH));
        snprintf(item, sizeof item, "i%d", i);
        assert_int_equal(load_play(t->f, user, item, START - i, &err), 0);
        if (i == N / 2) {
            assert_int_equal(bulk->turn(t->f->store, &err), 0);
            assert_int_equal(bulk->bytes(t->f->store), 0);
        }
    }
    assert_int_equal(load_play(t->f, "u1", "forgotten", START - HOUR_MS, &err), 0);
    assert_int_equal(load_play(t->f, "gone", "a", START - HOUR_MS, &err), 0);
    assert_int_equal(load_play(t->f, "u1", "last month", START - 30 * (int64_t)DAY_MS, &err), 0);
    assert_int_equal(bulk->end(t->f->store, &err), 0);
    for (int i = 0; i < N; i += 13) {
        snprintf(user, sizeof user, "u%d", i * 7 % (N / EACH));
        snprintf(item, sizeof item, "i%d", i);
        assert_true(seen(t->f, user, item));
    }
    assert_true(seen(t->f, "u1", "last month"));
    assert_false(seen(t->f, "u1", "forgotten"));
    assert_false(known(t->f, "gone"));
    assert_int_equal(stats(t->f).forgotten_dropped, 2);
    assert_int_equal(stats(t->f).staged_bytes, 0);
}

static void a_load_that_fails_says_so(void **state)
{
    struct setting *t = *state;
    struct err err = {0};
    close_it(t->f);
    open_as(t->f, RADOS_LOADS);
    const struct store_bulk_ops *bulk = t->f->store->bulk;
    assert_int_equal(bulk->begin(t->f->store, false, &err), 0);
    for (int i = 0; i < 200; i++) {
        char user[TEXT];
        name_user(i, user);
        assert_int_equal(load_play(t->f, user, "a", START, &err), 0);
    }
    memory_pool_fault(t->pool, &(struct memory_pool_fault){
                                   .kinds = MEMORY_POOL_WRITES, .object = "u.", .nth = 50, .result = CLUSTER_FULL});
    assert_int_equal(bulk->turn(t->f->store, &err), ERR_FULL);
    assert_int_equal(bulk->end(t->f->store, &err), ERR_FULL); /* nothing is taken back */
    memory_pool_fault(t->pool, NULL);
    err = (struct err){0};
    assert_int_equal(bulk->begin(t->f->store, false, &err), 0); /* and closed in the middle */
    assert_int_equal(load_play(t->f, "u", "a", START, &err), 0);
    bulk->stop(t->f->store);
    assert_int_equal(bulk->turn(t->f->store, &err), ERR_CLOSED);
}

/* --- users in the order of their keys --- */

static void users_are_sorted(void **state)
{
    enum { N = 5000, MEMORY = 8 * 1024 };
    struct user_sort *sort;
    struct err err = {0};
    struct slice user;
    int64_t key, last = INT64_MIN;
    uint64_t n = 0;
    (void)state;
    assert_int_equal(user_sort_new(MEMORY, &sort, &err), 0);
    for (int i = 0; i < N; i++) {
        char id[255];
        snprintf(id, sizeof id, "%0*d", 1 + i % (N / 2) % 250, i % (N / 2)); /* each twice */
        assert_int_equal(user_sort_add(sort, hash_user_key(SEED, slice_str(id)), slice_str(id), &err), 0);
    }
    assert_int_equal(user_sort_count(sort), N);
    user_sort_end(sort);
    int result;
    while ((result = user_sort_next(sort, &key, &user, &err)) == 1) {
        assert_true(key > last);
        assert_int_equal(key, hash_user_key(SEED, user));
        last = key;
        n++;
    }
    assert_int_equal(result, 0);
    assert_int_equal(n, N / 2);
    user_sort_free(sort);
}

#define WALK_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        WALK_TEST(a_sound_pool_has_no_problem),
        WALK_TEST(each_damage_is_named),
        WALK_TEST(filters_and_their_directory),
        WALK_TEST(a_cluster_that_fails_ends_it),
        WALK_TEST(a_list_that_fails_ends_it),
        WALK_TEST(who_only_asks_writes_nothing),
        WALK_TEST(months_that_fail_are_asked_for_again),
        WALK_TEST(months_are_known_at_once),
        WALK_TEST(to_another_pool),
        WALK_TEST(to_a_folder_and_back),
        WALK_TEST(a_user_of_many_pages),
        WALK_TEST(tombstones_of_items_that_are_left_out),
        WALK_TEST(damage_goes_along),
        WALK_TEST(some_of_them),
        WALK_TEST(plays_are_loaded),
        WALK_TEST(a_load_that_fails_says_so),
        cmocka_unit_test(users_are_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
