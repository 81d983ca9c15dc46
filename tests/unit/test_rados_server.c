/* A server over a pool whose answers come in any order: each connection gets its own in the order of its commands, and
 * a user whose part of the cluster is stuck holds up nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/rados/rados_store.h"
#include "tests/lib/memory_pool.h"
#include "tests/lib/server_fixture.h"

static struct memory_pool *pool;
static struct store *fake; /* the fixture's own */

static int setup(void **state)
{
    static struct fixture f;
    struct err err = {0};
    fixture_init(&f);
    pool = memory_pool_new("server");
    snprintf(f.cfg.rados_pool, sizeof f.cfg.rados_pool, "server");
    fake = f.store;
    if (rados_store_init(&f.cfg, &memory_pool_ops, &err) < 0 ||
        rados_store_open(&f.cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &f.store, &err) < 0) {
        fail_msg("%s", err.text);
    }
    fixture_start(&f);
    fixture_attach(&f);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct store *store = f->store;
    memory_pool_hold(pool, 0);
    fixture_stop(f);
    f->store = fake;
    fixture_end(f);
    store->ops->close(store);
    memory_pool_free(pool);
    return 0;
}

/* Users are drawn, and so is the order in which the pool answers; how many items a command has tells the answers
 * apart. */
static void answers_in_the_order_of_commands(void **state)
{
    struct fixture *f = *state;
    int fd = client_open(f);
    for (uint64_t round = 1; round <= 30; round++) {
        char say[4096] = "", want[1024] = "";
        memory_pool_shuffle(pool, round * 7919);
        for (int i = 0; i < 20; i++) {
            int n = 1 + (int)((round * 31 + (uint64_t)i * 17) % 5);
            size_t at = strlen(say);
            at += (size_t)snprintf(say + at, sizeof say - at, "PLAYED u%d", (int)((round + (uint64_t)(i * i)) % 7));
            for (int k = 0; k < n; k++) {
                at += (size_t)snprintf(say + at, sizeof say - at, " i%d.%d", i, k);
            }
            snprintf(say + at, sizeof say - at, "\r\n");
            snprintf(want + strlen(want), sizeof want - strlen(want), ":%d\r\n", n);
        }
        client_say(fd, say);
        client_expect(fd, want);
    }
    close(fd);
}

/* One that fails among others that don't: the error is its own. */
static void an_error_goes_to_its_command(void **state)
{
    struct fixture *f = *state;
    struct buf got = {0};
    memory_pool_fault(pool, &(struct memory_pool_fault){
                                .kinds = MEMORY_POOL_WRITES, .object = "u.b", .nth = 1, .result = CLUSTER_LATE});
    memory_pool_shuffle(pool, 5);
    client_ask(f, "PLAYED a 1 2\r\nPLAYED b 1\r\nPLAYED c 1 2 3\r\nPLAYED b 1\r\n", &got);
    assert_true(text_is(":2\r\n-ERR RADOS: no answer within 20000 ms (rados_timeout) while writing user \"b\": "
                        "whether it will be durable is unknown, send it again\r\n"
                        ":3\r\n:1\r\n",
                        &got, "answers"));
    buf_free(&got);
}

#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(answers_in_the_order_of_commands),
        SERVER_TEST(an_error_goes_to_its_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
