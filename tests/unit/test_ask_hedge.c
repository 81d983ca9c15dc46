/* Questions between two tiers: the disk is frozen or damaged, the other tier answers when the test says so; and the
 * policy (service/hedge.h) by itself. */
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
#include "base/hash.h"
#include "fake_store.h"
#include "fake_tier.h"
#include "net/worker.h"
#include "resp/writer.h"
#include "service/health.h"
#include "service/hedge.h"
#include "service/offload.h"
#include "tests/lib/server_fixture.h"

#define QUESTION "UNSEEN u p x\r\n"
#define BOTH "; and the second tier can't answer: told to say no"
#define UNSEEN_X "*1\r\n$1\r\nx\r\n"

static struct tier *tier;

static uint64_t p_hash(void)
{
    return hash_id(FAKE_SEED, slice_str("p"));
}

static void set_up(struct fixture *f)
{
    fixture_init(f);
    f->cfg.workers = 1;
    f->cfg.hedge_after_ms = 1;
    fixture_start(f);
    tier = fake_tier_new();
    f->tier = tier;
    fixture_attach(f);
    fake_store_left(f->store, 5, true, NULL);
    fake_store_add_month(f->store, "u", month_of_ms(FIXTURE_NOW), "p");
}

static void tear_down(struct fixture *f)
{
    fixture_stop(f);
    fixture_end(f);
    fake_tier_free(tier);
}

static long long counted(const struct fixture *f, const char *name)
{
    int fd = client_open(f);
    long long n = client_info(fd, "stats", name);
    close(fd);
    return n;
}

static long long memory_used(const struct fixture *f)
{
    int fd = client_open(f);
    long long n = client_info(fd, "memory", "request_memory_used");
    close(fd);
    return n;
}

/* A client whose question both have. */
static int ask_both(struct fixture *f, const char *question)
{
    int fd = client_open(f);
    fake_store_freeze(f->store, "u");
    client_say(fd, question);
    fake_store_wait_frozen(f->store, 1);
    fake_tier_wait(tier, 1);
    return fd;
}

static void say_p(uint64_t to)
{
    uint64_t p = p_hash();
    fake_tier_answer(tier, TIER_ANSWERED, to, &p, 1);
}

/* Of a question that the disk has refused. */
static void fail_for_good(void)
{
    for (int i = 0; i <= HEDGE_FAILURES; i++) {
        fake_tier_wait(tier, 1);
        fake_tier_answer(tier, TIER_FAILED, 0, NULL, 0);
    }
}

static void test_the_tier_first(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int fd = ask_both(&f, "UNSEEN u p x y\r\n");
    fake_store_left(f.store, 5, true, "y"); /* too late: memory was asked before */
    say_p(5);
    client_expect(fd, "*2\r\n$1\r\nx\r\n$1\r\ny\r\n");
    client_say(fd, "FILTER u ITEMS p x y\r\n"); /* the thread is still at the first one */
    fake_tier_wait(tier, 1);
    say_p(6);
    client_expect(fd, UNSEEN_X);
    assert_int_equal(counted(&f, "hedge_won"), 2);
    close(fd);
    fake_store_thaw(f.store);
    fd = client_open(&f);
    client_say(fd, QUESTION);
    client_expect(fd, UNSEEN_X);
    close(fd);
    tear_down(&f);
}

static void test_the_disk_first(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int fd = ask_both(&f, QUESTION);
    fake_store_thaw(f.store);
    client_expect(fd, UNSEEN_X);
    assert_int_equal(fake_tier_has(tier), 0); /* it was taken back */
    assert_int_equal(counted(&f, "hedge_wasted"), 1);
    close(fd);
    tear_down(&f);
}

/* What doesn't count leaves the question with the disk. */
static void test_an_answer_that_does_not_count(void **state)
{
    (void)state;
    static const struct {
        enum tier_verdict verdict;
        uint64_t to;
        bool covered;
    } answers[] = {
        {TIER_ANSWERED, 4, true}, {TIER_ANSWERED, 5, false}, {TIER_NOT_WHOLE, 9, true}, {TIER_FAILED, 9, true}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct fixture f;
        set_up(&f);
        int fd = ask_both(&f, QUESTION);
        fake_store_left(f.store, 5, answers[i].covered, NULL);
        fake_tier_answer(tier, answers[i].verdict, answers[i].to, NULL, 0);
        assert_int_equal(counted(&f, "hedge_not_whole"), i < 3);
        assert_int_equal(counted(&f, "hedge_failed"), i == 3);
        assert_false(client_has_input(fd));
        fake_store_thaw(f.store);
        client_expect(fd, UNSEEN_X);
        close(fd);
        tear_down(&f);
    }
}

/* Whoever is damaged or can't be read is asked about elsewhere at once, beyond any budget. */
static void test_a_disk_that_refuses(void **state)
{
    (void)state;
    for (int io = 0; io < 2; io++) {
        struct fixture f;
        set_up(&f);
        (io ? fake_store_unreadable : fake_store_damage)(f.store, "u");
        int fd = client_open(&f);
        for (int i = 0; i < 2 * HEDGE_BURST; i++) {
            client_say(fd, QUESTION);
            fake_tier_wait(tier, 1);
            say_p(5);
            client_expect(fd, UNSEEN_X);
        }
        client_say(fd, QUESTION);
        fail_for_good();
        struct buf got = {0};
        shutdown(fd, SHUT_WR);
        client_read_all(fd, &got);
        assert_int_equal(got.data[0], '-');
        assert_non_null(memmem(got.data, got.len, BOTH, strlen(BOTH)));
        buf_free(&got);
        close(fd);
        fake_tier_take(tier, false);
        fd = client_open(&f);
        client_say(fd, QUESTION); /* as without one */
        shutdown(fd, SHUT_WR);
        client_read_all(fd, &got);
        assert_int_equal(got.data[0], '-');
        assert_null(memmem(got.data, got.len, "tier", 4));
        buf_free(&got);
        close(fd);
        tear_down(&f);
    }
}

/* A tier that is well may have no room, or not all yet: it is asked again, for some time. */
static void test_the_last_hope(void **state)
{
    (void)state;
    struct fixture f;
    struct buf got = {0};
    set_up(&f);
    fake_store_unreadable(f.store, "u");
    int fd = client_open(&f);
    fake_tier_fill(tier, true);
    client_say(fd, QUESTION);
    fake_tier_wait_turned_away(tier, 2);
    fake_tier_fill(tier, false);
    fake_tier_wait(tier, 1);
    fake_tier_answer(tier, TIER_ANSWERED, 4, NULL, 0); /* it doesn't have all that was recorded */
    fake_tier_wait(tier, 1);
    say_p(5);
    client_expect(fd, UNSEEN_X);
    client_say(fd, QUESTION);
    fake_tier_wait(tier, 1);
    fake_tier_blink(tier, true);
    fake_tier_answer(tier, TIER_FAILED, 0, NULL, 0); /* as all are that it has when it dies */
    while (counted(&f, "hedge_failed") < 1) {
        usleep(1000);
    }
    assert_false(client_has_input(fd));
    fake_tier_blink(tier, false);
    fake_tier_wait(tier, 1);
    say_p(5);
    client_expect(fd, UNSEEN_X);
    fake_tier_blink(tier, true);
    client_say(fd, QUESTION);
    assert_int_equal(counted(&f, "hedge_failed"), 1); /* that question was read before */
    fake_tier_blink(tier, false);
    fake_tier_wait(tier, 1);
    say_p(5);
    client_expect(fd, UNSEEN_X);
    fake_tier_fill(tier, true);
    client_say(fd, QUESTION);
    fake_tier_wait_turned_away(tier, 3);
    close(fd); /* nobody waits for it any more */
    fd = client_open(&f);
    client_say(fd, QUESTION);
    shutdown(fd, SHUT_WR);
    client_read_all(fd, &got);
    assert_int_equal(got.data[0], '-');
    assert_non_null(memmem(got.data, got.len, "no room", 7));
    buf_free(&got);
    close(fd);
    int waiting = client_open(&f);
    client_say(waiting, QUESTION);
    fake_tier_wait_turned_away(tier, 3 + HEDGE_TRIES + 2);
    tear_down(&f);
    close(waiting);
}

/* What is answered without a damaged month is asked about elsewhere, too; else it stays the answer. */
static void test_a_disk_that_leaves_out(void **state)
{
    (void)state;
    for (int cold = 0; cold < 2; cold++) {
        struct fixture f;
        set_up(&f);
        fake_store_leave_out(f.store, "u");
        int fd = client_open(&f);
        if (cold) {
            fake_store_freeze(f.store, "u");
        }
        client_say(fd, QUESTION);
        fake_tier_wait(tier, 1);
        if (cold) {
            fake_store_thaw(f.store);
        }
        say_p(5);
        client_expect(fd, UNSEEN_X);
        client_say(fd, QUESTION);
        fail_for_good();
        client_expect(fd, "*2\r\n$1\r\np\r\n$1\r\nx\r\n");
        f.cfg.question_timeout_ms = 30;
        client_say(fd, QUESTION);
        fake_tier_wait(tier, 1);
        client_expect(fd, "*2\r\n$1\r\np\r\n$1\r\nx\r\n"); /* in time */
        fake_tier_take(tier, false);
        client_say(fd, QUESTION);
        client_expect(fd, "*2\r\n$1\r\np\r\n$1\r\nx\r\n");
        client_say(fd, "WHY u p\r\n");
        client_expect(fd, "*0\r\n");
        close(fd);
        tear_down(&f);
    }
}

static void test_kinds_that_are_not_hedged(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    fake_store_freeze(f.store, "u");
    int a = client_open(&f), b = client_open(&f);
    client_say(a, "WHY u p\r\n");
    client_say(b, "HISTORY u\r\n");
    fake_store_wait_frozen(f.store, 2);
    fake_store_enlarge(f.store, "v");
    int c = client_open(&f);
    client_say(c, "UNSEEN v x\r\n");
    client_expect(c, UNSEEN_X);
    assert_int_equal(fake_tier_asked(tier), 0);
    fake_store_thaw(f.store);
    client_expect(a, "*1\r\n$7\r\n2026-11\r\n");
    close(a);
    close(b);
    close(c);
    tear_down(&f);
}

static void test_deliver(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int fd = ask_both(&f, "FILTER u LIMIT 1 DELIVER ITEMS p x z\r\n");
    say_p(5);
    client_expect(fd, UNSEEN_X);
    fake_store_thaw(f.store);
    client_say(fd, "WHY u x\r\n");
    client_expect(fd, "*1\r\n$9\r\ndelivered\r\n");
    close(fd);
    tear_down(&f);
}

static void write_large(struct buf *out)
{
    struct writer w = {out, 2};
    write_array(&w, 2 + ITEMS_MAX);
    write_bulk(&w, slice_str("UNSEEN"));
    write_bulk(&w, slice_str("u"));
    for (int i = 0; i < ITEMS_MAX; i++) {
        write_bulk(&w, slice_str("p"));
    }
}

/* Large questions that are answered twice over, by the tier first and by the disk first: nothing of them is left. Those
 * of the tier are fewer than make the disk count as down. */
static void test_memory(void **state)
{
    (void)state;
    struct fixture f;
    struct buf question = {0};
    int fds[OFFLOAD_COLD_THREADS];
    write_large(&question);
    set_up(&f);
    long long before = memory_used(&f);
    for (int tier_first = 1; tier_first >= 0; tier_first--) {
        int n = tier_first ? HEDGE_LATE_MAX - 1 : OFFLOAD_COLD_THREADS;
        fake_store_freeze(f.store, "u");
        for (int i = 0; i < n; i++) {
            fds[i] = client_open(&f);
            client_send(fds[i], question.data, question.len);
        }
        fake_store_wait_frozen(f.store, n);
        fake_tier_wait(tier, n);
        if (tier_first) {
            say_p(5);
        }
        for (int i = 0; i < n && tier_first; i++) {
            client_expect(fds[i], "*0\r\n");
        }
        fake_store_thaw(f.store);
        for (int i = 0; i < n; i++) {
            if (!tier_first) {
                client_expect(fds[i], "*0\r\n");
            }
            close(fds[i]);
        }
    }
    while (memory_used(&f) > before + 2 * BUDGET_STEP_MAX) {
        usleep(1000);
    }
    buf_free(&question);
    tear_down(&f);
}

static void test_timeout(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.cfg.question_timeout_ms = 30;
    int fd = ask_both(&f, QUESTION);
    client_expect(fd, "-ERR not answered within question_timeout: the disk is late\r\n");
    assert_int_equal(fake_tier_has(tier), 0);
    fake_store_thaw(f.store);
    close(fd);
    tear_down(&f);
}

static void *stop(void *server)
{
    server_stop_within(server, 1);
    return NULL;
}

static void test_stop(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int fd = ask_both(&f, QUESTION);
    pthread_t thread;
    struct buf got = {0};
    assert_int_equal(pthread_create(&thread, NULL, stop, f.server), 0);
    client_read_all(fd, &got);
    fake_store_thaw(f.store);
    pthread_join(thread, NULL);
    fixture_end(&f);
    fake_tier_free(tier);
    buf_free(&got);
    close(fd);
}

/* Late five times: the tier is asked first, and the disk once a second. */
static void test_a_disk_that_is_down(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    fake_store_freeze(f.store, "u");
    int fd = client_open(&f);
    for (int i = 0; i < HEDGE_LATE_MAX; i++) {
        client_say(fd, QUESTION);
        fake_store_wait_frozen(f.store, i + 1);
        fake_tier_wait(tier, 1);
        say_p(5);
        client_expect(fd, UNSEEN_X);
    }
    for (int i = 0; i < 3 * HEDGE_BURST; i++) { /* beyond the budget */
        client_say(fd, QUESTION);
        fake_tier_wait(tier, 1);
        say_p(5);
        client_expect(fd, UNSEEN_X);
    }
    assert_true(counted(&f, "cold_questions") < HEDGE_LATE_MAX + 10); /* trials alone */
    assert_int_equal(counted(&f, "hedge_over_budget"), 0);
    client_say(fd, QUESTION); /* what the tier can't answer is the disk's after all */
    fake_tier_wait(tier, 1);
    fake_tier_answer(tier, TIER_NOT_WHOLE, 0, NULL, 0);
    fake_store_thaw(f.store);
    client_expect(fd, UNSEEN_X);
    close(fd);
    tear_down(&f);
}

static struct health look(struct fixture *f)
{
    struct health health;
    health_look(server_pool(f->server), &health);
    return health;
}

/* With a second tier a thread that the disk holds is no reason for a restart; any other is. */
static void test_health(void **state)
{
    (void)state;
    struct fixture f;
    struct heartbeat beat;
    set_up(&f);
    assert_string_equal(look(&f).degraded, "");
    assert_true(look(&f).ready);
    fake_store_stall_forgets(f.store, true);
    assert_string_equal(look(&f).degraded, "the fake history is late: forgets are refused, questions are answered");
    assert_true(look(&f).ready);
    fake_store_stall_forgets(f.store, false);
    fake_store_stall(f.store, true);
    assert_string_equal(look(&f).degraded, "the fake disk is late: questions are answered by the second tier (fake)");
    assert_true(!look(&f).ready && look(&f).alive);
    health_set_limit(3 * HEARTBEAT_EVERY_MS); /* all others beat */
    heartbeat_begin(&beat, "stager");
    fake_tier_take(tier, false);
    while (look(&f).alive) {
        usleep(1000);
    }
    assert_string_equal(look(&f).stuck, "stager");
    assert_string_equal(look(&f).degraded, "there is no second tier (fake): told not to be");
    fake_tier_take(tier, true);
    assert_true(look(&f).alive);
    heartbeat_end(&beat);
    health_set_limit(HEALTH_LIMIT_MS);
    fake_store_stall(f.store, false);
    assert_true(look(&f).ready);
    tear_down(&f);
}

/* --- the policy --- */

static void test_after(void **state)
{
    (void)state;
    struct hedge h;
    struct hedge_plan plan;
    hedge_init(&h);
    hedge_begin(&h, 0, 0, &plan);
    assert_true(plan.disk && !plan.first && plan.after_us == HEDGE_AFTER_MOST_US);
    hedge_begin(&h, 0, 7, &plan);
    assert_int_equal(plan.after_us, 7000);
    for (int i = 0; i < 3 * HEDGE_TIMES; i++) {
        hedge_disk_answered(&h, 0, i % 50 == 0 ? 4000 : 100, 50000, false);
    }
    hedge_begin(&h, 0, 0, &plan);
    assert_int_equal(plan.after_us, 12000);
    for (int i = 0; i < 2 * HEDGE_TIMES; i++) {
        hedge_disk_answered(&h, 0, 10, 50000, false);
    }
    hedge_begin(&h, 0, 0, &plan);
    assert_int_equal(plan.after_us, HEDGE_AFTER_LEAST_US);
    for (int i = 0; i < 2 * HEDGE_TIMES; i++) {
        hedge_disk_answered(&h, 0, 900000, 1000000, false);
    }
    hedge_begin(&h, 0, 0, &plan);
    assert_int_equal(plan.after_us, HEDGE_AFTER_MOST_US);
    hedge_free(&h);
}

static void test_budget(void **state)
{
    (void)state;
    struct hedge h;
    hedge_init(&h);
    int allowed = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        allowed += hedge_may(&h, i, false);
    }
    assert_in_range(allowed, 100000 / HEDGE_BUDGET, 100000 / HEDGE_BUDGET + HEDGE_BURST);
    assert_true(hedge_may(&h, 100000, true));
    for (int i = 0; i < 1000; i++) {
        hedge_may(&h, 100000, false);
    }
    assert_false(hedge_may(&h, 100000, false));
    for (int i = 0; i < HEDGE_LATE_MAX; i++) {
        hedge_disk_late(&h, 0);
    }
    assert_true(hedge_may(&h, 100000, false));
    hedge_free(&h);
}

static void test_down(void **state)
{
    (void)state;
    struct hedge h;
    struct hedge_plan plan;
    hedge_init(&h);
    for (int i = 0; i < HEDGE_LATE_MAX - 1; i++) {
        hedge_disk_late(&h, 10);
    }
    hedge_disk_answered(&h, 10, 100, 1000, false); /* in a row, it takes */
    for (int i = 0; i < HEDGE_LATE_MAX - 1; i++) {
        hedge_disk_answered(&h, 10, 2000, 1000, false);
        hedge_disk_answered(&h, 10, 2000, 1000, true); /* counted already */
    }
    assert_false(hedge_disk_is_down(&h, 10));
    hedge_disk_late(&h, 10);
    assert_true(hedge_disk_is_down(&h, 10));
    hedge_begin(&h, 11, 0, &plan);
    assert_true(plan.first && !plan.disk);
    hedge_begin(&h, 10 + HEDGE_TRIAL_US, 0, &plan);
    assert_true(plan.first && plan.disk);
    hedge_begin(&h, 10 + HEDGE_TRIAL_US, 0, &plan);
    assert_true(plan.first && !plan.disk);
    hedge_disk_answered(&h, 0, 2000, 1000, true);
    assert_true(hedge_disk_is_down(&h, 10));
    hedge_disk_answered(&h, 0, 100, 1000, true);
    assert_false(hedge_disk_is_down(&h, 10));
    hedge_begin(&h, 0, 0, &plan);
    assert_true(!plan.first && plan.disk);
    hedge_free(&h);
}

/* When nothing has needed the disk for a while, nobody knows; but one late answer more will do. */
static void test_lapse(void **state)
{
    (void)state;
    struct hedge h;
    struct hedge_plan plan;
    hedge_init(&h);
    for (int i = 0; i < HEDGE_LATE_MAX; i++) {
        hedge_disk_late(&h, 10);
    }
    hedge_disk_late(&h, 20);
    assert_true(hedge_disk_is_down(&h, HEDGE_LAPSE_US + 19));
    hedge_begin(&h, HEDGE_LAPSE_US + 19, 0, &plan);
    assert_true(plan.first);
    hedge_begin(&h, HEDGE_LAPSE_US + 20, 0, &plan);
    assert_true(!plan.first && plan.disk);
    assert_false(hedge_disk_is_down(&h, HEDGE_LAPSE_US + 20));
    hedge_disk_late(&h, HEDGE_LAPSE_US + 21);
    assert_true(hedge_disk_is_down(&h, HEDGE_LAPSE_US + 21));
    hedge_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_tier_first),
        cmocka_unit_test(test_the_disk_first),
        cmocka_unit_test(test_an_answer_that_does_not_count),
        cmocka_unit_test(test_a_disk_that_refuses),
        cmocka_unit_test(test_the_last_hope),
        cmocka_unit_test(test_a_disk_that_leaves_out),
        cmocka_unit_test(test_kinds_that_are_not_hedged),
        cmocka_unit_test(test_deliver),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_a_disk_that_is_down),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_after),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_down),
        cmocka_unit_test(test_lapse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
