/* Questions to the old Redis: the breaker, the queue of those who come first, and a port on a loop of its own with a
 * Redis that says what the test wants, when it wants. With a real one: tests/e2e/test_read_through.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "legacy/breaker.h"
#include "legacy/priority_users.h"
#include "legacy/read_through.h"
#include "legacy/redis_connection.h"
#include "store/migration.h"

#define NOW INT64_C(1795255200000) /* 2026-11-21T10:00Z */
#define SCORE "$13\r\n1795255100000\r\n"
#define NIL "$-1\r\n"
#define LET_IN "+OK\r\n*0\r\n*1\r\n" NIL

enum { S = 1000 * 1000, ITEMS = 8, PATIENCE_MS = 60 * 1000, TURN_MS = 10 };

/* --- the breaker --- */

static void test_breaker(void **state)
{
    (void)state;
    struct breaker b = {0};
    int64_t now = 5;
    for (int i = 0; i < BREAKER_LATE_MAX - 1; i++) {
        assert_true(breaker_allows(&b, now));
        breaker_late(&b, now);
        assert_false(breaker_open(&b) || breaker_pauses(&b, now));
    }
    assert_false(breaker_good(&b)); /* the row is broken */
    for (int i = 0; i < BREAKER_LATE_MAX - 1; i++) {
        breaker_late(&b, now);
        assert_false(breaker_open(&b));
    }
    breaker_late(&b, now);
    breaker_late(&b, now + S / 2); /* asked before: the moment is no longer for that */
    assert_true(breaker_open(&b));
    assert_true(breaker_pauses(&b, now + S - 1));
    assert_false(breaker_allows(&b, now + S - 1));
    now += S;
    assert_false(breaker_pauses(&b, now));
    assert_true(breaker_allows(&b, now)); /* one, as a trial */
    assert_true(breaker_pauses(&b, now));
    assert_false(breaker_allows(&b, now));
    breaker_unknown(&b); /* lost: another */
    assert_true(breaker_allows(&b, now));
    breaker_late(&b, now);
    assert_false(breaker_allows(&b, now + 2 * S - 1)); /* twice as long */
    for (int i = 0; i < 10; i++) {
        now = b.until_us;
        assert_true(breaker_allows(&b, now));
        breaker_late(&b, now);
    }
    assert_int_equal(b.until_us - now, BREAKER_LAST_US);
    assert_true(breaker_allows(&b, b.until_us));
    assert_true(breaker_good(&b));
    assert_true(breaker_allows(&b, now) && breaker_allows(&b, now));
}

static void test_first(void **state)
{
    (void)state;
    static struct priority_users f;
    char id[255], name[16];
    struct slice user;
    priority_users_init(&f);
    assert_false(priority_users_take(&f, id, &user));
    assert_true(priority_users_put(&f, 7, slice_str("seven"), 0));
    assert_true(priority_users_put(&f, 7, slice_str("seven"), 1)); /* he is there */
    assert_true(priority_users_take(&f, id, &user));
    assert_true(slice_eq(user, slice_str("seven")));
    assert_true(priority_users_put(&f, 7, slice_str("seven"), 2));
    assert_false(priority_users_take(&f, id, &user));
    assert_true(priority_users_put(&f, 7, slice_str("seven"), PRIORITY_USERS_AGAIN_US));
    assert_true(priority_users_take(&f, id, &user));
    for (int i = 0; i < PRIORITY_USERS_MAX; i++) {
        snprintf(name, sizeof name, "u%d", i);
        assert_true(priority_users_put(&f, 10 + i, slice_str(name), 0));
    }
    assert_false(priority_users_put(&f, 9, slice_str("too many"), 0));
    for (int i = 0; i < PRIORITY_USERS_MAX; i++) {
        snprintf(name, sizeof name, "u%d", i);
        assert_true(priority_users_take(&f, id, &user) && slice_eq(user, slice_str(name)));
    }
    assert_true(priority_users_put(&f, 9, slice_str("now"), 0)); /* he had found no room, so he isn't remembered */
    assert_true(priority_users_take(&f, id, &user));
    priority_users_free(&f);
}

#ifdef WITH_HIREDIS

/* --- a store, and a Redis --- */

static void store_now(struct store *s, int64_t *later, int64_t *earlier)
{
    (void)s;
    *later = *earlier = NOW;
}

static enum store_note store_noted(struct store *s, int64_t key)
{
    (void)s;
    return key == hash_user_key(0, slice_str("noted")) ? MIGRATION_WAITING : MIGRATION_NONE;
}

static const struct store_ops store_ops = {.now = store_now};
static const struct store_migration_ops migration_ops = {.of = store_noted};

struct world {
    char folder[32], path[64];
    struct store store;
    struct config cfg;
    struct dedup dedup;
    uv_loop_t loop;
    uv_timer_t alarm;
    struct read_through *read_through;
    struct read_through_port *port;

    uv_pipe_t listener, *peer; /* the last one that connected */
    int connections;
    struct buf got;
    char bytes[65536];
    int turns;
    bool mute; /* doesn't greet */
};

static void on_alarm(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("nothing happens");
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void give_bytes(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct world *w = handle->data;
    *buf = uv_buf_init(w->bytes, sizeof w->bytes);
}

static void say_n(struct world *w, const char *text, size_t len)
{
    uv_buf_t bytes = uv_buf_init((char *)(uintptr_t)text, (unsigned)len);
    assert_int_equal(uv_try_write((uv_stream_t *)w->peer, &bytes, 1), len);
}

static void say(struct world *w, const char *text)
{
    say_n(w, text, strlen(text));
}

static void hang_up(struct world *w)
{
    uv_close((uv_handle_t *)w->peer, free_handle);
    w->peer = NULL;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct world *w = stream->data;
    if (n > 0) {
        assert_int_equal(buf_add(&w->got, buf->base, (size_t)n), 0);
    } else if (n < 0 && w->peer == (uv_pipe_t *)stream) {
        hang_up(w);
    } else if (n < 0) {
        uv_close((uv_handle_t *)stream, free_handle);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct world *w = listener->data;
    assert_int_equal(status, 0);
    w->peer = calloc(1, sizeof *w->peer);
    uv_pipe_init(&w->loop, w->peer, 0);
    w->peer->data = w;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)w->peer), 0);
    uv_read_start((uv_stream_t *)w->peer, give_bytes, on_read);
    w->connections++;
    buf_clear(&w->got);
    if (!w->mute) {
        say(w, LET_IN);
    }
}

/* Whether what came ends so. */
static bool asked_for(const struct world *w, const char *end)
{
    size_t len = strlen(end);
    return w->got.len >= len && memcmp(w->got.data + w->got.len - len, end, len) == 0;
}

#define RUN_UNTIL(w, condition)                                                                                        \
    while (!(condition)) {                                                                                             \
        uv_run(&(w)->loop, UV_RUN_ONCE);                                                                               \
    }

/* --- a question --- */

struct ask {
    struct read_through_question q; /* first */
    uint8_t asked, seen, unseen;
    int done;
};

static const struct slice items[ITEMS] = {{"i0", 2}, {"i1", 2}, {"i2", 2}, {"i3", 2},
                                          {"i4", 2}, {"i5", 2}, {"i6", 2}, {"i7", 2}};

static void on_done(struct read_through_question *q)
{
    ((struct ask *)q)->done++;
}

static bool ask(struct world *w, struct ask *a, uint8_t asked)
{
    *a = (struct ask){.q = {.done = on_done, .n = ITEMS}, .asked = asked, .unseen = 0xff};
    a->q.asked = &a->asked;
    a->q.seen = &a->seen;
    return read_through_ask(w->port, &a->q, slice_str("noted"), items);
}

/* What is left of eight unseen ones. */
static uint8_t left(struct world *w, struct ask *a)
{
    uint64_t hashes[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        hashes[i] = hash_id(0, items[i]);
    }
    read_through_hide(w->port, &a->q, hashes, &a->unseen);
    return a->unseen;
}

static uint64_t counted(struct world *w, enum read_through_count what)
{
    struct read_through_status s;
    read_through_status(w->read_through, &s);
    return s.counts[what];
}

static bool waits(struct world *w, const char *cause)
{
    struct read_through_status s;
    read_through_status(w->read_through, &s);
    return s.doing == READ_THROUGH_WAITING && strstr(s.cause, cause) != NULL;
}

static bool is_on(struct world *w)
{
    struct read_through_status s;
    read_through_status(w->read_through, &s);
    return s.doing == READ_THROUGH_ON;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct err err;
    config_defaults(&w->cfg);
    strcpy(w->folder, "/tmp/unseen-through-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/s", w->folder);
    strcpy(w->cfg.legacy_redis, w->path);
    assert_int_equal(config_validate(&w->cfg, &err), 0);
    w->cfg.legacy_read_through = 1;
    w->cfg.legacy_timeout_ms = 1000;
    w->store = (struct store){.engine = "fake", .ops = &store_ops, .migration = &migration_ops};
    w->dedup = (struct dedup){.store = &w->store, .cfg = &w->cfg};
    uv_loop_init(&w->loop);
    uv_timer_init(&w->loop, &w->alarm);
    uv_timer_start(&w->alarm, on_alarm, PATIENCE_MS, 0);
    uv_pipe_init(&w->loop, &w->listener, 0);
    w->listener.data = w;
    assert_int_equal(uv_pipe_bind(&w->listener, w->path), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&w->listener, 8, on_connection), 0);
    assert_int_equal(read_through_start(&w->dedup, &w->read_through, &err), 0);
    assert_int_equal(read_through_port_new(w->read_through, &w->port, &err), 0);
    read_through_port_open(w->port, &w->loop);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    read_through_port_close(w->port);
    read_through_port_close(w->port);
    uv_close((uv_handle_t *)&w->alarm, NULL);
    uv_close((uv_handle_t *)&w->listener, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT); /* the peers close as they see the end */
    assert_int_equal(uv_loop_close(&w->loop), 0);
    read_through_port_free(w->port);
    read_through_free(w->read_through);
    buf_free(&w->got);
    unlink(w->path);
    rmdir(w->folder);
    free(w);
    return 0;
}

/* --- tests --- */

static void test_wants(void **state)
{
    struct world *w = *state;
    assert_true(read_through_wants(w->port, slice_str("noted")));
    assert_false(read_through_wants(w->port, slice_str("other")));
    assert_false(read_through_wants(NULL, slice_str("noted")));
    w->cfg.legacy_read_through = 0;
    assert_false(read_through_wants(w->port, slice_str("noted")));
}

static void test_a_question(void **state)
{
    struct world *w = *state;
    struct ask a;
    assert_true(ask(w, &a, 0xb1)); /* sent along while it connects: i0 i2 i3 i7 */
    RUN_UNTIL(w, asked_for(w, "ZMSCORE\r\n$12\r\nplayed:noted\r\n$2\r\ni0\r\n$2\r\ni2\r\n$2\r\ni3\r\n$2\r\ni7\r\n"));
    assert_int_equal(a.done, 0);
    /* A byte at a time. i6 is delivered, but it wasn't asked about: it was un-seen. */
    static const char reply[] = "*4\r\n$2\r\ni6\r\n" SCORE "$2\r\ni7\r\n" SCORE "*4\r\n" SCORE NIL SCORE NIL;
    for (size_t i = 0; i < sizeof reply - 1; i++) {
        assert_int_equal(a.done, 0);
        say_n(w, reply + i, 1);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0x6e);
    assert_int_equal(left(w, &a), 0x6e);
    assert_int_equal(counted(w, READ_THROUGH_ANSWERED), 1);
    assert_int_equal(counted(w, READ_THROUGH_HIDDEN), 3);
}

/* The window is shorter than legacy_months, and then the other way round. */
static void test_scores(void **state)
{
    struct world *w = *state;
    struct ask a;
    w->cfg.window = 2;
    assert_true(ask(w, &a, 0xfc));
    RUN_UNTIL(w, asked_for(w, "i5\r\n"));
    say(w, "*0\r\n*6\r\n$13\r\n1795255200001\r\n$13\r\n1788220800000\r\n$13\r\n1788220799999\r\n"
           "$13\r\n1799999999999\r\n$3\r\ninf\r\n:5\r\n");
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0x3f);
    w->cfg.window = 6;
    assert_true(ask(w, &a, 0xc0));
    RUN_UNTIL(w, asked_for(w, "i1\r\n"));
    say(w, "*0\r\n*2\r\n$13\r\n1785542400000\r\n$13\r\n1785542399999\r\n");
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0x7f);
    assert_int_equal(counted(w, READ_THROUGH_ANSWERED), 2);
}

/* One that is late is answered without; its replies meet nobody, and the next one gets its own. */
static void test_late(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    w->cfg.legacy_timeout_ms = 20;
    assert_true(ask(w, &a, 0x80));
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0xff);
    assert_int_equal(counted(w, READ_THROUGH_LATE), 1);
    memset(&a, 0xee, sizeof a); /* its owner is gone */
    w->cfg.legacy_timeout_ms = 1000;
    assert_true(ask(w, &b, 0x40));
    RUN_UNTIL(w, asked_for(w, "i1\r\n"));
    say(w, "*2\r\n$2\r\ni1\r\n" SCORE "*1\r\n" SCORE);
    say(w, "*0\r\n*1\r\n" NIL);
    RUN_UNTIL(w, b.done == 1);
    assert_int_equal(left(w, &b), 0xff);
    assert_int_equal(counted(w, READ_THROUGH_ANSWERED), 1);
}

/* What came in time counts. */
static void test_partly_late(void **state)
{
    struct world *w = *state;
    struct ask a;
    w->cfg.legacy_timeout_ms = 50;
    assert_true(ask(w, &a, 0xc0));
    RUN_UNTIL(w, asked_for(w, "i1\r\n"));
    say(w, "*2\r\n$2\r\ni1\r\n" SCORE "*2\r\n" SCORE);
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0xbf);
    assert_int_equal(counted(w, READ_THROUGH_LATE), 1);
}

/* By questions that are all answered too late; their replies are still due. */
static void open_breaker(struct world *w, struct ask a[BREAKER_LATE_MAX])
{
    w->cfg.legacy_timeout_ms = 10;
    for (int i = 0; i < BREAKER_LATE_MAX; i++) {
        assert_true(ask(w, &a[i], 0x80));
        RUN_UNTIL(w, a[i].done == 1);
    }
}

static void test_breaker_opens(void **state)
{
    struct world *w = *state;
    struct ask a[BREAKER_LATE_MAX], more;
    open_breaker(w, a);
    assert_false(ask(w, &more, 0x80));
    assert_true(waits(w, "too late"));
    assert_int_equal(counted(w, READ_THROUGH_SKIPPED), 1);
    for (int i = 0; i < BREAKER_LATE_MAX; i++) {
        say(w, "*0\r\n*1\r\n" NIL);
    }
    w->cfg.legacy_timeout_ms = 1000;
    RUN_UNTIL(w, ask(w, &more, 0x80)); /* the trial, after a second; the loop turns at least each 10 ms */
    uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_false(ask(w, &a[0], 0x80));
    RUN_UNTIL(w, asked_for(w, "i0\r\n"));
    say(w, "*0\r\n*1\r\n" SCORE);
    RUN_UNTIL(w, more.done == 1);
    assert_int_equal(left(w, &more), 0x7f);
    assert_true(is_on(w));
}

/* It opened with the last question for long: what is shown follows the clock, and goes back when a trial is late. */
static void test_pause_is_over(void **state)
{
    struct world *w = *state;
    struct ask a[BREAKER_LATE_MAX], more;
    open_breaker(w, a);
    int64_t opened = clock_real_us();
    RUN_UNTIL(w, clock_real_us() > opened + BREAKER_FIRST_US);
    read_through_port_tick(w->port);
    assert_true(waits(w, "too late")); /* for the replies that are due */
    for (int i = 0; i < BREAKER_LATE_MAX; i++) {
        say(w, "*0\r\n*1\r\n" NIL);
    }
    RUN_UNTIL(w, (read_through_port_tick(w->port), is_on(w)));
    assert_int_equal(counted(w, READ_THROUGH_SKIPPED), 0);
    assert_true(ask(w, &more, 0x80));
    RUN_UNTIL(w, more.done == 1);
    assert_true(waits(w, "too late"));
    say(w, "*0\r\n*1\r\n" NIL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    read_through_port_tick(w->port);
    assert_true(waits(w, "too late")); /* for two seconds */
}

static void on_turn(uv_timer_t *timer)
{
    struct world *w = timer->data;
    if (++w->turns > PATIENCE_MS / TURN_MS) {
        on_alarm(timer);
    }
}

static int set_up_turning(void **state)
{
    set_up(state);
    struct world *w = *state;
    w->alarm.data = w;
    uv_timer_start(&w->alarm, on_turn, TURN_MS, TURN_MS);
    return 0;
}

static void test_one_key_is_refused(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    assert_true(ask(w, &a, 0x80) && ask(w, &b, 0x80));
    RUN_UNTIL(w, asked_for(w, "i0\r\n"));
    say(w, "-WRONGTYPE no list\r\n*1\r\n" SCORE "*0\r\n*1\r\n" SCORE);
    RUN_UNTIL(w, b.done == 1);
    assert_int_equal(a.done, 1);
    assert_int_equal(left(w, &a), 0x7f);
    assert_int_equal(counted(w, READ_THROUGH_FAILED), 1);
    assert_int_equal(counted(w, READ_THROUGH_ANSWERED), 1);
    assert_int_equal(w->connections, 1);
    assert_true(is_on(w));
}

/* Whatever is no good ends the connection, and all that is out; then there is a new one. */
static void test_nonsense(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *says, *cause;
    } cases[] = {
        {"-LOADING wait\r\n", "LOADING wait"},
        {"*0\r\n-NOAUTH who?\r\n", "NOAUTH"},
        {"HTTP/1.1 400 Bad Request\r\n", "expected one of"},
        {"*0\r\n*1\r\n" NIL "*0\r\n*1\r\n" NIL "+and more\r\n", "without being asked"},
        {NULL, "closed the connection"},
    };
    struct ask a, b, fresh;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RUN_UNTIL(w, is_on(w) && w->peer != NULL && ask(w, &a, 0x80));
        assert_true(ask(w, &b, 0x80));
        RUN_UNTIL(w, asked_for(w, "i0\r\n"));
        if (cases[i].says != NULL) {
            say(w, cases[i].says);
        } else {
            hang_up(w);
        }
        RUN_UNTIL(w, waits(w, cases[i].cause));
        assert_int_equal(a.done + b.done, 2);
        assert_false(ask(w, &fresh, 0x80));
        int before = w->connections;
        RUN_UNTIL(w, w->connections > before && is_on(w));
    }
    RUN_UNTIL(w, ask(w, &fresh, 0x80) || w->connections == 0);
    RUN_UNTIL(w, asked_for(w, "i0\r\n"));
    say(w, "*0\r\n*1\r\n" SCORE);
    RUN_UNTIL(w, fresh.done == 1);
    assert_int_equal(left(w, &fresh), 0x7f);
}

/* A reply of the wrong length fails its question alone. */
static void test_wrong_length(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    assert_true(ask(w, &a, 0xf0) && ask(w, &b, 0x80));
    RUN_UNTIL(w, w->peer != NULL && asked_for(w, "i0\r\n"));
    say(w, "*0\r\n*3\r\n" SCORE SCORE SCORE "*0\r\n*1\r\n" SCORE);
    RUN_UNTIL(w, b.done == 1);
    assert_int_equal(left(w, &a), 0xff);
    assert_int_equal(left(w, &b), 0x7f);
    assert_int_equal(counted(w, READ_THROUGH_FAILED), 1);
}

static void test_no_zmscore(void **state)
{
    struct world *w = *state;
    struct ask a;
    w->mute = true;
    RUN_UNTIL(w, asked_for(w, "$1\r\n?\r\n"));
    say(w, "+OK\r\n*0\r\n-ERR unknown command 'ZMSCORE'\r\n");
    for (int i = 0; i < 3; i++) {
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_true(ask(w, &a, 0xe0));
    RUN_UNTIL(w, asked_for(w, "*3\r\n$6\r\nZSCORE\r\n$12\r\nplayed:noted\r\n$2\r\ni2\r\n"));
    say(w, "*0\r\n" SCORE NIL SCORE);
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0x5f);
}

static void test_refused_at_the_door(void **state)
{
    struct world *w = *state;
    struct ask a;
    w->mute = true;
    assert_true(ask(w, &a, 0x80)); /* behind the handshake, where it is lost */
    RUN_UNTIL(w, asked_for(w, "i0\r\n"));
    say(w, "-NOAUTH Authentication required.\r\n");
    RUN_UNTIL(w, a.done == 1);
    assert_true(waits(w, "NOAUTH"));
    assert_false(ask(w, &a, 0x80));
    w->mute = false;
    RUN_UNTIL(w, is_on(w));
}

/* The end of the loop's life, with questions out: each is told, once. */
static void test_close(void **state)
{
    struct world *w = *state;
    struct ask a, b;
    assert_true(ask(w, &a, 0x80));
    RUN_UNTIL(w, asked_for(w, "i0\r\n"));
    assert_true(ask(w, &b, 0x80));
    read_through_port_close(w->port);
    assert_int_equal(a.done, 1);
    assert_int_equal(b.done, 1);
    assert_false(ask(w, &a, 0x80));
    read_through_port_tick(w->port);
}

static void test_switched_off(void **state)
{
    struct world *w = *state;
    struct ask a;
    RUN_UNTIL(w, w->peer != NULL);
    w->cfg.legacy_read_through = 0;
    read_through_port_tick(w->port);
    RUN_UNTIL(w, w->peer == NULL);
    w->cfg.legacy_read_through = 1;
    assert_true(ask(w, &a, 0x80)); /* connects */
    RUN_UNTIL(w, asked_for(w, "i0\r\n"));
    assert_int_equal(w->connections, 2);
    say(w, "*0\r\n*1\r\n" SCORE);
    RUN_UNTIL(w, a.done == 1);
    assert_int_equal(left(w, &a), 0x7f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breaker),
        cmocka_unit_test(test_first),
#ifdef WITH_HIREDIS
        TEST(test_wants),
        TEST(test_a_question),
        TEST(test_scores),
        TEST(test_late),
        TEST(test_partly_late),
        cmocka_unit_test_setup_teardown(test_breaker_opens, set_up_turning, tear_down),
        cmocka_unit_test_setup_teardown(test_pause_is_over, set_up_turning, tear_down),
        TEST(test_one_key_is_refused),
        TEST(test_nonsense),
        TEST(test_wrong_length),
        TEST(test_no_zmscore),
        TEST(test_refused_at_the_door),
        TEST(test_close),
        TEST(test_switched_off),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
