/* Requests that are late (service/request.h): questions wait for a store that answers later, a giant's for the one
 * thread that asks for such users, and a FORGET for the store. The test holds all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/calendar.h"
#include "fake_store.h"
#include "net/worker.h"
#include "resp/writer.h"
#include "tests/lib/server_fixture.h"

enum { SHORT_MS = 50, CLIENTS = ASKER_READERS + 8 };

#define LATE "-ERR not answered within question_timeout: "
#define REFUSED LATE "other users with very many plays are before\r\n"
#define REFUSED_AT_IT LATE "the user has very many plays\r\n"
#define REFUSED_STORE LATE "the store is late\r\n"
#define UNSEEN_X "*1\r\n$1\r\nx\r\n"

static void set_up(struct fixture *f, int64_t timeout_ms)
{
    fixture_init(f);
    f->cfg.workers = 1;
    f->cfg.question_timeout_ms = timeout_ms;
    fixture_start(f);
    fixture_attach(f);
    fake_store_add_month(f->store, "u", month_of_ms(FIXTURE_NOW), "p");
    fake_store_enlarge(f->store, "u");
    fake_store_enlarge(f->store, "v");
}

static void tear_down(struct fixture *f)
{
    fixture_stop(f);
    fixture_end(f);
}

/* A client whose question the thread is at. */
static int hold_thread(const struct fixture *f)
{
    fake_store_hold_scans(f->store);
    int fd = client_open(f);
    client_ask_held(f, fd, "UNSEEN u p x\r\n");
    return fd;
}

static long long memory_used(int fd)
{
    return client_info(fd, "memory", "request_memory_used");
}

/* Whose memory is seen among the MiB that a worker has of the budget. */
static void ask_much(int fd, int questions)
{
    struct buf text = {0};
    struct writer w = {&text, 2};
    for (int i = 0; i < questions; i++) {
        write_array(&w, 2 + ITEMS_MAX);
        write_bulk(&w, slice_str("UNSEEN"));
        write_bulk(&w, slice_str("v"));
        for (int k = 0; k < ITEMS_MAX; k++) {
            write_bulk(&w, slice_str("p"));
        }
    }
    client_send(fd, text.data, text.len);
    buf_free(&text);
}

/* Who waits for its turn is refused, and whoever has it, too, whose answer is dropped when it comes. */
static void test_timeout(void **state)
{
    (void)state;
    enum { QUESTIONS = 32 };
    struct fixture f;
    set_up(&f, SHORT_MS);
    int other = client_open(&f), first = hold_thread(&f), second = client_open(&f);
    client_say(second, "UNSEEN v p x\r\nHISTORY v\r\nWHY v p\r\nPING\r\n");
    client_expect(second, REFUSED REFUSED REFUSED "+PONG\r\n");
    client_expect(first, REFUSED_AT_IT);
    ask_much(second, 1);
    client_expect(second, REFUSED);
    long long before = memory_used(other);
    ask_much(second, QUESTIONS);
    for (int i = 0; i < QUESTIONS; i++) {
        client_expect(second, REFUSED);
    }
    assert_in_range(memory_used(other), 0, before);
    fake_store_release_scans(f.store);
    client_say(first, "PING\r\n");
    client_expect(first, "+PONG\r\n");
    client_say(second, "PING\r\n");
    client_expect(second, "+PONG\r\n");
    close(first);
    close(second);
    close(other);
    tear_down(&f);
}

static void test_timeout_within_exec(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, SHORT_MS);
    int first = hold_thread(&f), second = client_open(&f);
    client_say(second, "MULTI\r\nPLAYED v q\r\nFILTER v SESSION s LIMIT 1 DELIVER ITEMS x y\r\nECHO z\r\nEXEC\r\n");
    client_expect(second, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n" REFUSED "$1\r\nz\r\n");
    client_expect(first, REFUSED_AT_IT);
    fake_store_release_scans(f.store);
    /* nothing was delivered */
    client_ask_in_time(second, "FILTER v LIMIT 9 ITEMS x y q\r\n", "*2\r\n$1\r\nx\r\n$1\r\ny\r\n");
    close(first);
    close(second);
    tear_down(&f);
}

/* The time counts from when a question is begun, not from when it came: what its connection asked before it may take as
 * long as it likes. A machine that is slower than the timeout itself gets another try. */
static void test_timeout_behind_own(void **state)
{
    (void)state;
    struct fixture f;
    char got[64] = "-";
    set_up(&f, SHORT_MS);
    for (int tries = 0; got[0] == '-' && tries < 50; tries++) {
        int first = hold_thread(&f), second = client_open(&f);
        fake_store_hold(f.store);
        client_say(second, "FORGET w\r\nUNSEEN u p x\r\n");
        fake_store_wait(f.store, 1);
        client_expect(first, LATE); /* so its time is over */
        fake_store_release_scans(f.store);
        fake_store_release(f.store);
        client_expect(second, ":0\r\n");
        assert_true(recv(second, got, sizeof got, 0) > 0);
        close(first);
        close(second);
    }
    assert_memory_equal(got, UNSEEN_X, strlen(UNSEEN_X));
    tear_down(&f);
}

/* Clients that have gone leave their turns: what they hold is given back, but for what a worker keeps of the budget. */
static void test_turn_of_the_gone(void **state)
{
    (void)state;
    enum { GONE = 8 };
    struct fixture f;
    int gone[GONE];
    set_up(&f, 0);
    int other = client_open(&f), first = hold_thread(&f);
    long long before = memory_used(other), most = before + 2 * BUDGET_STEP_MAX;
    for (int i = 0; i < GONE; i++) {
        gone[i] = client_open(&f);
        ask_much(gone[i], 1);
    }
    while (memory_used(other) <= most) {
    }
    for (int i = 0; i < GONE; i++) {
        close(gone[i]);
    }
    while (client_info(other, "clients", "connected_clients") > 2) {
    }
    assert_in_range(memory_used(other), 0, most);
    fake_store_release_scans(f.store);
    client_expect(first, UNSEEN_X);
    close(first);
    close(other);
    tear_down(&f);
}

/* What a giant's history and places are. */
static void test_history_and_why(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    int small = client_open(&f), fd = client_open(&f);
    fake_store_add_month(f.store, "w", month_of_ms(FIXTURE_NOW), "p");
    client_say(small, "HISTORY w\r\n");
    struct buf want = {0}, got = {0};
    client_say(small, "QUIT\r\n");
    client_read_all(small, &want);
    close(small);
    client_say(fd, "HISTORY u\r\nQUIT\r\n");
    client_read_all(fd, &got);
    close(fd);
    char *name = memchr(want.data, 'w', want.len);
    assert_non_null(name);
    *name = 'u';
    assert_true(text_is(want.data, &got, "HISTORY"));
    buf_free(&want);
    buf_free(&got);
    client_ask(&f, "WHY u p\r\nWHY u x\r\nHISTORY v\r\nBLOCK s p\r\nWHY u p SESSION s\r\n", &got);
    assert_true(
        text_is("*1\r\n$7\r\n2026-11\r\n*0\r\n$-1\r\n:1\r\n*2\r\n$7\r\nblocked\r\n$7\r\n2026-11\r\n", &got, "WHY"));
    buf_free(&got);
    tear_down(&f);
}

/* What it delivers are the items, wherever their bytes are by then. */
static void test_deliver(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    fake_store_hold_scans(f.store);
    int fd = client_open(&f);
    client_say(fd, "BLOCK s x\r\nFILTER u SESSION s LIMIT 2 DELIVER ITEMS p x y");
    client_expect(fd, ":1\r\n");
    client_say(fd, " z zz\r\n");
    fake_store_wait_scan(f.store);
    client_say(fd, "FILTER u ITEMS p x y z zz\r\nECHO 0123456789");
    fake_store_release_scans(f.store);
    client_say(fd, "\r\n");
    client_expect(fd, "*2\r\n$1\r\ny\r\n$1\r\nz\r\n*2\r\n$1\r\nx\r\n$2\r\nzz\r\n$10\r\n0123456789\r\n");
    close(fd);
    tear_down(&f);
}

/* The client has gone: what it asked for is done all the same, and nothing of it is left. */
static void test_client_gone(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, SHORT_MS);
    int other = client_open(&f);
    client_say(other, "PLAYED w p\r\n");
    client_expect(other, ":1\r\n");
    long long before = memory_used(other);
    int gone = client_open(&f);
    fake_store_hold(f.store);
    client_say(gone, "FORGET w p\r\n");
    fake_store_wait(f.store, 1);
    close(gone);
    int first = hold_thread(&f);
    int waiting = client_open(&f);
    client_say(waiting, "HISTORY u\r\n");
    close(waiting);
    close(first);
    fake_store_release(f.store);
    fake_store_release_scans(f.store);
    client_ask_in_time(other, "UNSEEN w p\r\n", "*1\r\n$1\r\np\r\n");
    client_ask_in_time(other, "UNSEEN u p x\r\n", UNSEEN_X); /* behind the others on the thread */
    assert_int_equal(memory_used(other), before);
    close(other);
    tear_down(&f);
}

static void wait_answered(const struct fixture *f, const char *line)
{
    for (char c = '-'; c == '-';) {
        struct buf got = {0};
        client_ask(f, line, &got);
        c = (char)got.data[0];
        buf_free(&got);
    }
}

/* The disk answers no write: who waits is told, who comes is refused, and when it answers again all is as before. */
static void test_stalled(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    int first = client_open(&f), gone = client_open(&f), other = client_open(&f);
    client_say(other, "PING\r\n");
    client_expect(other, "+PONG\r\n");
    long long before = memory_used(other);
    fake_store_hold(f.store);
    client_say(first, "PLAYED w a\r\nUNSEEN w x\r\nPLAYED w b c\r\n");
    fake_store_wait(f.store, 1);
    client_say(gone, "PLAYED w d\r\n");
    fake_store_wait(f.store, 2);
    close(gone);
    fake_store_stall(f.store, true);
    client_expect(first, "-ERR the fake disk is late: whether this write will be durable is unknown, send it again "
                         "later\r\n" UNSEEN_X "-BUSY the fake disk is late: writes are refused\r\n");
    client_say(other, "PLAYED w e\r\nFORGET w\r\nUNSEEN w x\r\n");
    client_expect(other, "-BUSY the fake disk is late: writes are refused\r\n-BUSY the fake disk is late: writes are "
                         "refused\r\n" UNSEEN_X);
    fake_store_stall(f.store, false);
    fake_store_release(f.store);
    wait_answered(&f, "PLAYED w f\r\n");           /* until it is noticed */
    client_say(other, "UNSEEN w a b c d e f\r\n"); /* what was unknown has become durable */
    client_expect(other, "*3\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\ne\r\n");
    assert_int_equal(memory_used(other), before);
    close(first);
    close(other);
    tear_down(&f);
}

/* The same of forgets, whether all writes wait, or those alone. One whose client has gone is told nothing. */
static void forgets_stall(bool alone)
{
    struct fixture f;
    set_up(&f, 0);
    int first = client_open(&f), gone = client_open(&f), other = client_open(&f);
    void (*stall)(struct store *, bool) = alone ? fake_store_stall_forgets : fake_store_stall;
    const char *disk = alone ? "the fake history is late" : "the fake disk is late";
    char told[256];
    client_say(other, "PLAYED w a b\r\n");
    client_expect(other, ":2\r\n");
    long long before = memory_used(other);
    fake_store_hold(f.store);
    client_say(first, "FORGET w\r\nUNSEEN w a x\r\nFORGET w b\r\n");
    fake_store_wait(f.store, 1);
    client_say(gone, "FORGET v\r\n");
    fake_store_wait(f.store, 2);
    close(gone);
    stall(f.store, true);
    snprintf(told, sizeof told,
             "-ERR %s: whether that will be forgotten is unknown, send it again later\r\n" UNSEEN_X
             "-BUSY %s: %s are refused\r\n",
             disk, disk, alone ? "forgets" : "writes");
    client_expect(first, told);
    stall(f.store, false);
    fake_store_release(f.store);
    wait_answered(&f, "FORGET nobody\r\n"); /* until it is noticed */
    client_say(other, "UNSEEN w a b\r\n");  /* what was unknown has been done */
    client_expect(other, "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_int_equal(memory_used(other), before);
    close(first);
    close(other);
    tear_down(&f);
}

static void test_forgets_stalled(void **state)
{
    (void)state;
    forgets_stall(false);
    forgets_stall(true);
}

static void *stop_at_once(void *server)
{
    server_stop_within(server, 1);
    return NULL;
}

/* The server stops with one question at the thread, another that waits for it, and a FORGET at the store. */
static void test_stop(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    int first = hold_thread(&f), second = client_open(&f), third = client_open(&f);
    fake_store_hold(f.store);
    client_say(second, "MULTI\r\nUNSEEN v x\r\nEXEC\r\n");
    client_expect(second, "+OK\r\n+QUEUED\r\n*1\r\n");
    client_say(third, "FORGET v\r\n");
    fake_store_wait(f.store, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_at_once, f.server), 0);
    struct buf got = {0};
    client_read_all(first, &got);
    client_read_all(second, &got);
    client_read_all(third, &got);
    assert_int_equal(got.len, 0);
    buf_free(&got);
    fake_store_release(f.store);
    fake_store_release_scans(f.store);
    pthread_join(thread, NULL);
    fixture_end(&f);
    close(first);
    close(second);
    close(third);
}

static void *stop(void *server)
{
    server_stop(server);
    return NULL;
}

/* The server stops while a transaction is at its first command: EXEC is answered as a whole. */
static void test_stop_within_exec(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    fake_store_hold_scans(f.store);
    int fd = client_open(&f), idle = client_open(&f);
    client_say(fd, "MULTI\r\nUNSEEN u p x\r\nPLAYED v q\r\nUNSEEN v q x\r\nEXEC\r\nECHO no\r\n");
    fake_store_wait_scan(f.store);
    pthread_t thread;
    struct buf got = {0};
    assert_int_equal(pthread_create(&thread, NULL, stop, f.server), 0);
    client_read_all(idle, &got); /* so it is stopping */
    fake_store_release_scans(f.store);
    client_read_all(fd, &got);
    assert_true(text_is("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n" UNSEEN_X ":1\r\n" UNSEEN_X, &got, "EXEC"));
    buf_free(&got);
    pthread_join(thread, NULL);
    fixture_end(&f);
    close(fd);
    close(idle);
}

static void add_large(struct buf *text, const char *command, const char *user)
{
    struct writer w = {text, 2};
    write_array(&w, 2 + ITEMS_MAX);
    write_bulk(&w, slice_str(command));
    write_bulk(&w, slice_str(user));
    for (int k = 0; k < ITEMS_MAX; k++) {
        write_bulk(&w, slice_str("an item of some forty bytes and a few more"));
    }
}

/* request_memory is lowered while a transaction of large commands is at its first one, which is late: what it has taken
 * is answered all the same, and only what comes next is too large. */
static void test_less_memory_within_exec(void **state)
{
    (void)state;
    struct fixture f;
    struct buf text = {0}, got = {0};
    set_up(&f, 0);
    struct worker_pool *pool = server_pool(f.server);
    fake_store_hold_scans(f.store);
    int fd = client_open(&f);
    client_say(fd, "MULTI\r\n");
    add_large(&text, "SEEN", "u");
    add_large(&text, "SEEN", "w");
    client_send(fd, text.data, text.len);
    client_say(fd, "ECHO z\r\nEXEC\r\n");
    client_expect(fd, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n");
    fake_store_wait_scan(f.store);
    budget_limit(&pool->budget, 16 * 1024 * 1024, pool->request_max, (size_t)pool->n_all);
    fake_store_release_scans(f.store);
    for (int i = 0; i < 2; i++) {
        client_expect(fd, "*65536\r\n");
        for (int k = 0; k < ITEMS_MAX; k += 8) {
            client_expect(fd, ":0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
        }
    }
    client_expect(fd, "$1\r\nz\r\n");
    client_send(fd, text.data, text.len);
    client_read_all(fd, &got);
    assert_memory_equal(got.data, "-ERR Protocol error", 19);
    close(fd);
    buf_free(&text);
    buf_free(&got);
    tear_down(&f);
}

/* --- a store that answers later --- */

static void hold_store(struct fixture *f, int64_t timeout_ms)
{
    set_up(f, timeout_ms);
    int fd = client_open(f);
    client_say(fd, "PLAYED w p\r\nBLOCK s y\r\n");
    client_expect(fd, ":1\r\n:1\r\n");
    close(fd);
    fake_store_hold_loads(f->store);
}

/* Questions of many connections are under way at once, more than the store is asked at a time; and nobody else waits.
 */
static void test_store_later(void **state)
{
    (void)state;
    struct fixture f;
    int fds[CLIENTS];
    static const char *const asked[] = {
        "UNSEEN w p x\r\nECHO z\r\n", "WHY w p\r\nECHO z\r\n", "FILTER w SESSION s LIMIT 1 ITEMS y p x\r\nECHO z\r\n",
        "UNSEEN u p x\r\nECHO z\r\n", /* who is large: the other thread's, then */
    };
    static const char *const answers[] = {
        UNSEEN_X "$1\r\nz\r\n",
        "*1\r\n$6\r\nstaged\r\n$1\r\nz\r\n",
        UNSEEN_X "$1\r\nz\r\n",
        UNSEEN_X "$1\r\nz\r\n",
    };
    hold_store(&f, 0);
    int other = client_open(&f);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_open(&f);
        client_say(fds[i], asked[i % 4]);
    }
    fake_store_wait_loads(f.store, ASKER_READERS);
    client_say(other, "PLAYED w q\r\nPING\r\n");
    client_expect(other, ":1\r\n+PONG\r\n");
    for (int i = 0; i < CLIENTS; i++) {
        assert_false(client_has_input(fds[i]));
    }
    fake_store_release_loads(f.store);
    for (int i = 0; i < CLIENTS; i++) {
        client_expect(fds[i], answers[i % 4]);
        close(fds[i]);
    }
    close(other);
    tear_down(&f);
}

/* What it delivers are the items, wherever their bytes are by then; and what it failed with is said. */
static void test_store_later_delivers(void **state)
{
    (void)state;
    struct fixture f;
    hold_store(&f, 0);
    int fd = client_open(&f), bad = client_open(&f);
    fake_store_damage(f.store, "bad");
    client_say(bad, "HISTORY bad\r\nHISTORY nobody\r\n");
    client_say(fd, "FILTER w SESSION s LIMIT 2 DELIVER ITEMS p y x z zz\r\nECHO 01234");
    fake_store_wait_loads(f.store, 2);
    client_say(fd, "56789\r\nFILTER w ITEMS p y x z zz\r\n");
    fake_store_release_loads(f.store);
    client_expect(fd, "*2\r\n$1\r\nx\r\n$1\r\nz\r\n$10\r\n0123456789\r\n*2\r\n$1\r\ny\r\n$2\r\nzz\r\n");
    client_expect(bad, "-ERR user bad, month 2026-10: the filter is damaged\r\n$-1\r\n");
    close(fd);
    close(bad);
    tear_down(&f);
}

/* A store that is too late, whether it was asked or not: all are refused, and what comes after is dropped. */
static void test_store_timeout(void **state)
{
    (void)state;
    struct fixture f;
    int fds[CLIENTS];
    hold_store(&f, SHORT_MS);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_open(&f);
        client_say(fds[i], i == 0 ? "MULTI\r\nUNSEEN w p\r\nEXEC\r\n" : "UNSEEN w p\r\n");
    }
    client_expect(fds[0], "+OK\r\n+QUEUED\r\n*1\r\n" REFUSED_STORE);
    for (int i = 1; i < CLIENTS; i++) {
        client_expect(fds[i], REFUSED_STORE);
    }
    client_say(fds[0], "HISTORY u\r\nPLAYED w r\r\n"); /* behind what the store is still at */
    client_expect(fds[0], REFUSED_STORE ":1\r\n");
    fake_store_release_loads(f.store);
    client_ask_in_time(fds[0], "UNSEEN w p x\r\n", UNSEEN_X);
    for (int i = 0; i < CLIENTS; i++) {
        close(fds[i]);
    }
    tear_down(&f);
}

/* Clients that have gone leave nothing behind, and their places to others. */
static void test_store_client_gone(void **state)
{
    (void)state;
    struct fixture f;
    hold_store(&f, 0);
    int other = client_open(&f), fds[CLIENTS];
    long long before = memory_used(other);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_open(&f);
        client_say(fds[i], "UNSEEN w p\r\n");
    }
    fake_store_wait_loads(f.store, ASKER_READERS);
    for (int i = 0; i < CLIENTS; i++) {
        close(fds[i]);
    }
    while (client_info(other, "clients", "connected_clients") > 1) {
    }
    assert_int_equal(memory_used(other), before);
    fake_store_release_loads(f.store);
    client_say(other, "UNSEEN w p x\r\n");
    client_expect(other, UNSEEN_X);
    close(other);
    tear_down(&f);
}

/* The server stops, and the store never answers. */
static void test_store_dead_at_stop(void **state)
{
    (void)state;
    struct fixture f;
    int fds[CLIENTS];
    struct buf got = {0};
    hold_store(&f, 0);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_open(&f);
        client_say(fds[i], "UNSEEN w p\r\n");
    }
    fake_store_wait_loads(f.store, ASKER_READERS);
    server_stop_within(f.server, 1);
    for (int i = 0; i < CLIENTS; i++) {
        client_read_all(fds[i], &got);
        close(fds[i]);
    }
    assert_int_equal(got.len, 0);
    buf_free(&got);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_timeout_within_exec),
        cmocka_unit_test(test_timeout_behind_own),
        cmocka_unit_test(test_turn_of_the_gone),
        cmocka_unit_test(test_history_and_why),
        cmocka_unit_test(test_deliver),
        cmocka_unit_test(test_client_gone),
        cmocka_unit_test(test_stalled),
        cmocka_unit_test(test_forgets_stalled),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_within_exec),
        cmocka_unit_test(test_less_memory_within_exec),
        cmocka_unit_test(test_store_later),
        cmocka_unit_test(test_store_later_delivers),
        cmocka_unit_test(test_store_timeout),
        cmocka_unit_test(test_store_client_gone),
        cmocka_unit_test(test_store_dead_at_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
