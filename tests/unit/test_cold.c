/* Questions about users who are on the disk only (ERR_COLD), and that is frozen until the test lets go: the loop has
 * others to serve. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "fake_store.h"
#include "net/worker.h"
#include "service/offload.h"
#include "tests/lib/server_fixture.h"

enum { SHORT_MS = 50, MORE = 8 };

#define LATE "-ERR not answered within question_timeout: "
#define REFUSED_AT_IT LATE "the disk is late\r\n"
#define REFUSED LATE "other users are before whom the disk is late with\r\n"
#define QUESTION "UNSEEN u p x\r\n"
#define UNSEEN_X "*1\r\n$1\r\nx\r\n"

static void set_up(struct fixture *f, int64_t timeout_ms)
{
    fixture_init(f);
    f->cfg.workers = 1;
    f->cfg.question_timeout_ms = timeout_ms;
    fixture_start(f);
    fixture_attach(f);
    fake_store_add_month(f->store, "u", month_of_ms(FIXTURE_NOW), "p");
    fake_store_add_month(f->store, "warm", month_of_ms(FIXTURE_NOW), "p");
    fake_store_freeze(f->store, "u");
}

static void tear_down(struct fixture *f)
{
    fixture_stop(f);
    fixture_end(f);
}

static void expect_others_answered(struct fixture *f)
{
    int fd = client_open(f);
    client_ask_in_time(fd, "UNSEEN warm p x\r\n", UNSEEN_X);
    client_say(fd, "PLAYED warm q\r\n");
    client_expect(fd, ":1\r\n");
    client_ask_in_time(fd, "WHY warm q\r\n", "*1\r\n$6\r\nstaged\r\n");
    client_ask_in_time(fd, "UNSEEN nobody p\r\n", "*1\r\n$1\r\np\r\n");
    close(fd);
}

/* Every kind of question is asked aside, and answered as ever when the disk goes on. */
static void test_frozen(void **state)
{
    (void)state;
    static const struct {
        const char *question, *answer;
    } kinds[] = {
        {QUESTION, UNSEEN_X},
        {"WHY u p\r\n", "*1\r\n$7\r\n2026-11\r\n"},
        {"FILTER u LIMIT 1 DELIVER ITEMS p y\r\n", "*1\r\n$1\r\ny\r\n"},
        {"SEEN u p z\r\n", "*2\r\n:1\r\n:0\r\n"},
    };
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct fixture f;
    set_up(&f, 0);
    int fds[KINDS];
    for (int i = 0; i < KINDS; i++) {
        fds[i] = client_open(&f);
        client_say(fds[i], kinds[i].question);
        fake_store_wait_frozen(f.store, i + 1);
        expect_others_answered(&f);
        assert_false(client_has_input(fds[i]));
    }
    int other = client_open(&f);
    assert_int_equal(client_info(other, "stats", "cold_questions"), KINDS);
    close(other);
    fake_store_thaw(f.store);
    for (int i = 0; i < KINDS; i++) {
        client_expect(fds[i], kinds[i].answer);
        close(fds[i]);
    }
    tear_down(&f);
}

static void test_deadline(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, SHORT_MS);
    int fd = client_open(&f);
    client_ask_in_time(fd, QUESTION, REFUSED_AT_IT);
    expect_others_answered(&f);
    fake_store_thaw(f.store);
    client_ask_in_time(fd, QUESTION, UNSEEN_X);
    close(fd);
    tear_down(&f);
}

/* All threads are held: who comes then waits in line, in memory that is charged, until the deadline. A large user who
 * is in memory has a thread of another lane. */
static void test_bound(void **state)
{
    (void)state;
    struct fixture f;
    int held[OFFLOAD_COLD_THREADS], next[MORE];
    set_up(&f, SHORT_MS);
    fake_store_add_month(f.store, "giant", month_of_ms(FIXTURE_NOW), "p");
    fake_store_enlarge(f.store, "giant");
    int other = client_open(&f);
    long long before = client_info(other, "memory", "request_memory_used");
    for (int i = 0; i < OFFLOAD_COLD_THREADS; i++) {
        held[i] = client_open(&f);
        client_ask_in_time(held[i], QUESTION, REFUSED_AT_IT);
        fake_store_wait_frozen(f.store, i + 1);
    }
    long long at_it = client_info(other, "memory", "request_memory_used");
    assert_true(at_it >= before);
    for (int i = 0; i < MORE; i++) {
        next[i] = client_open(&f);
        client_say(next[i], QUESTION);
        client_expect(next[i], REFUSED);
        close(next[i]);
    }
    assert_in_range(client_info(other, "memory", "request_memory_used"), 0, at_it);
    client_ask_in_time(other, "UNSEEN giant p x\r\n", UNSEEN_X);
    fake_store_thaw(f.store);
    for (int i = 0; i < OFFLOAD_COLD_THREADS; i++) {
        client_ask_in_time(held[i], QUESTION, UNSEEN_X);
        close(held[i]);
    }
    close(other);
    tear_down(&f);
}

/* Without a deadline the same wait, as long as it takes, and are answered. */
static void test_line(void **state)
{
    (void)state;
    enum { ALL = OFFLOAD_COLD_THREADS + MORE };
    struct fixture f;
    int fds[ALL];
    set_up(&f, 0);
    for (int i = 0; i < ALL; i++) {
        fds[i] = client_open(&f);
        client_say(fds[i], QUESTION);
    }
    fake_store_wait_frozen(f.store, OFFLOAD_COLD_THREADS);
    expect_others_answered(&f);
    fake_store_thaw(f.store);
    for (int i = 0; i < ALL; i++) {
        client_expect(fds[i], UNSEEN_X);
        close(fds[i]);
    }
    tear_down(&f);
}

/* He is found to be large first, and cold only by the thread for such users, which must not wait for him either. */
static void test_cold_giant(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    fake_store_enlarge(f.store, "u");
    fake_store_add_month(f.store, "giant", month_of_ms(FIXTURE_NOW), "p");
    fake_store_enlarge(f.store, "giant");
    int fd = client_open(&f), other = client_open(&f);
    client_say(fd, QUESTION);
    fake_store_wait_frozen(f.store, 1);
    client_say(other, "UNSEEN giant p x\r\n");
    client_expect(other, UNSEEN_X);
    assert_false(client_has_input(fd));
    fake_store_thaw(f.store);
    client_expect(fd, UNSEEN_X);
    close(fd);
    close(other);
    tear_down(&f);
}

/* The same whom the deadline meets between both: nobody asks for him any more. */
static void test_giant_is_overdue(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, SHORT_MS);
    fake_store_enlarge(f.store, "u");
    fake_store_hold_scans(f.store);
    int fd = client_open(&f);
    client_ask_held(&f, fd, QUESTION);
    client_expect(fd, LATE "the user has very many plays\r\n");
    fake_store_release_scans(f.store);
    expect_others_answered(&f);
    fake_store_enlarge(f.store, "warm");
    client_ask_in_time(fd, "WHY warm p\r\n", "*1\r\n$7\r\n2026-11\r\n"); /* behind it in that lane */
    assert_int_equal(client_info(fd, "stats", "cold_questions"), 0);
    close(fd);
    tear_down(&f);
}

/* What goes on for a client who has gone ends without harm. */
static void test_client_gone(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 0);
    for (int i = 0; i < OFFLOAD_COLD_THREADS + MORE; i++) {
        int fd = client_open(&f);
        client_say(fd, QUESTION);
        if (i < OFFLOAD_COLD_THREADS) {
            fake_store_wait_frozen(f.store, i + 1);
        }
        close(fd);
    }
    expect_others_answered(&f);
    fake_store_thaw(f.store);
    int fd = client_open(&f);
    client_say(fd, QUESTION);
    client_expect(fd, UNSEEN_X);
    close(fd);
    tear_down(&f);
}

/* The list of months is told as it was when it was in memory. */
static void test_months(void **state)
{
    (void)state;
    struct fixture f;
    struct buf first = {0}, then = {0};
    set_up(&f, 0);
    client_ask(&f, "MONTHS\r\n", &first);
    assert_memory_equal(first.data, "*2\r\n", 4);
    struct asker *asker;
    struct err err = {0};
    struct store_month_info months[4];
    assert_int_equal(asker_open(&f.dedup, &asker, &err), 0);
    asker_leave_cold(asker);
    fake_store_cool_months(f.store);
    client_ask(&f, "MONTHS\r\n", &then);
    assert_string_equal(then.data, first.data);
    assert_int_equal(asker_months(asker, months, 4, &err), 2);
    assert_int_equal(err.code, 0);
    asker_close(asker);
    buf_free(&first);
    buf_free(&then);
    tear_down(&f);
}

/* One reader a loop, one of each offload thread: whichever can't be opened, it is said, and the others are closed. */
static void test_no_readers(void **state)
{
    (void)state;
    struct fixture f;
    int failed = 0;
    for (int nth = 1;; nth++) {
        struct err err = {0};
        fixture_init(&f);
        f.cfg.workers = 1;
        fixture_start(&f);
        dedup_init(&f.dedup, f.store, &f.cfg);
        fake_store_fail_reader(f.store, nth);
        int code = server_attach(f.server, &f.dedup, &err);
        if (code == 0) {
            tear_down(&f);
            break;
        }
        failed++;
        assert_int_equal(code, ERR_IO);
        assert_string_equal(err.text, "history.db: too many open files");
        assert_int_equal(fake_store_readers(f.store), 0);
        tear_down(&f);
    }
    assert_in_range(failed, OFFLOAD_COLD_THREADS + 2, OFFLOAD_COLD_THREADS + 4);
}

enum { LONG_MS = 20 * 1000, BACKLOG = 4 };

struct long_job {
    struct offload_job job; /* first */
    const struct heartbeat *beat;
    int64_t silent_ms; /* when it began */
};

static void take_long(struct offload_job *job, struct asker *asker)
{
    (void)asker;
    struct long_job *l = (struct long_job *)job;
    l->silent_ms = heartbeat_silent_ms(l->beat);
    clock_test_pass(LONG_MS);
}

/* Jobs that wait one behind the other are no reason to take the thread for stuck. */
static void test_a_backlog_is_no_hang(void **state)
{
    (void)state;
    static struct worker home; /* which takes what was answered when the test ends, or never */
    struct fixture f;
    struct offload a;
    struct err err;
    struct long_job jobs[BACKLOG];
    set_up(&f, 0);
    pthread_mutex_init(&home.queue.lock, NULL);
    home.queue.end = &home.queue.first;
    assert_int_equal(offload_start(&a, &f.dedup, &err), 0);
    struct offload_lane *lane = &a.lanes[OFFLOAD_LARGE];
    pthread_mutex_lock(&lane->lock); /* it finds them all at once */
    for (int i = 0; i < BACKLOG; i++) {
        jobs[i] = (struct long_job){.job = {.home = &home, .ask = take_long, .lane = OFFLOAD_LARGE},
                                    .beat = &lane->tasks[0].heartbeat};
        *lane->end = &jobs[i].job.message;
        lane->end = &jobs[i].job.message.next;
    }
    task_wake(&lane->tasks[0]);
    pthread_mutex_unlock(&lane->lock);
    for (bool answered = false; !answered; usleep(100)) {
        pthread_mutex_lock(&home.queue.lock);
        answered = home.queue.end == &jobs[BACKLOG - 1].job.message.next;
        pthread_mutex_unlock(&home.queue.lock);
    }
    for (int i = 0; i < BACKLOG; i++) {
        assert_in_range(jobs[i].silent_ms, 0, LONG_MS - 1);
    }
    offload_stop(&a);
    fake_store_thaw(f.store);
    tear_down(&f);
    pthread_mutex_destroy(&home.queue.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen),      cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_bound),       cmocka_unit_test(test_line),
        cmocka_unit_test(test_cold_giant),  cmocka_unit_test(test_giant_is_overdue),
        cmocka_unit_test(test_client_gone), cmocka_unit_test(test_months),
        cmocka_unit_test(test_no_readers),  cmocka_unit_test(test_a_backlog_is_no_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
