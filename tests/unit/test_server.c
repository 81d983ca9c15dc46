/* What a single command's reply does not show: order, failures, loading, passwords, limits, timeouts, memory, the end.
 * The store is held and released by the test, and time is the test's, so that nothing here waits for a clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dedup/tier.h"
#include "fake_store.h"
#include "net/room.h"
#include "resp/command.h"
#include "tests/lib/server_fixture.h"

#define NOAUTH "-NOAUTH Authentication required.\r\n"

static void begin(struct fixture *f)
{
    fixture_init(f);
    f->cfg.workers = 1; /* what one connection is told shows what the other's worker has done */
    fixture_start(f);
    fixture_attach(f);
}

static void end(struct fixture *f)
{
    fixture_stop(f);
    fixture_end(f);
}

/* Everything that the server was sent before is handled when this returns. */
static void settle(const struct fixture *f)
{
    int fd = client_open(f);
    client_say(fd, "PING\r\n");
    client_expect(fd, "+PONG\r\n");
    client_say(fd, "PING\r\n");
    client_expect(fd, "+PONG\r\n");
    close(fd);
}

/* Reads to the end of the connection and expects that. */
static void expect_end(int fd, const char *want)
{
    struct buf got = {0};
    client_read_all(fd, &got);
    assert_string_equal(got.data, want);
    buf_free(&got);
    close(fd);
}

static void writes_answer_after_the_commit(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_hold(f.store);
    int fd = client_open(&f);
    client_say(fd, "PLAYED u a b\r\n");
    fake_store_wait(f.store, 1);
    settle(&f);
    assert_false(client_has_input(fd));
    fake_store_release(f.store);
    client_expect(fd, ":2\r\n");
    close(fd);
    end(&f);
}

/* Writes of one connection follow each other without waiting; all else waits for them, errors too; other connections
 * notice nothing. */
static void order_of_one_connection(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_hold(f.store);
    int fd = client_open(&f), other = client_open(&f);
    client_say(fd, "PLAYED u a\r\nPLAYED u b\r\n");
    fake_store_wait(f.store, 1);
    client_say(
        fd, "DELIVERED u c\r\n*3\r\n$6\r\nPLAYED\r\n$1\r\nu\r\n$0\r\n\r\n"
            "*6\r\n$6\r\nUNSEEN\r\n$1\r\nu\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\nPLAYED u d\r\nSEEN u d\r\n");
    fake_store_wait(f.store, 2);
    settle(&f);
    assert_false(client_has_input(fd));
    client_say(other, "UNSEEN u a\r\n");
    client_expect(other, "*1\r\n$1\r\na\r\n"); /* not yet durable, and questions don't wait */
    /* The worker's buffer is used by others meanwhile. */
    client_say(other, "ECHO zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n");
    client_expect(other,
                  "$85\r\nzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n");
    fake_store_release(f.store);
    client_expect(fd, ":1\r\n:1\r\n:1\r\n-ERR item 1 is empty: an id has 1 to 255 bytes\r\n*1\r\n$1\r\nd\r\n:1\r\n"
                      "*1\r\n:1\r\n");
    close(fd);
    close(other);
    end(&f);
}

/* FORGET, RING FLUSH, FILTER ... DELIVER and LOAD block their connection alone. */
static void later_answers_block_their_connection(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_hold(f.store);
    int fd[4];
    for (int i = 0; i < 4; i++) {
        fd[i] = client_open(&f);
    }
    client_say(fd[0], "FORGET u\r\nPING\r\n");
    client_say(fd[1], "RING FLUSH\r\nPING\r\n");
    client_say(fd[2], "FILTER u LIMIT 1 DELIVER ITEMS x\r\nWHY u x\r\n");
    client_say(fd[3], "LOAD over\r\nPING\r\n");
    fake_store_wait(f.store, 4);
    settle(&f);
    for (int i = 0; i < 4; i++) {
        assert_false(client_has_input(fd[i]));
    }
    fake_store_release(f.store);
    client_expect(fd[0], ":0\r\n+PONG\r\n");
    client_expect(fd[1], "*0\r\n+PONG\r\n");
    client_expect(fd[2], "*1\r\n$1\r\nx\r\n*1\r\n$9\r\ndelivered\r\n");
    client_expect(fd[3], "*1\r\n:2\r\n+PONG\r\n");
    for (int i = 0; i < 4; i++) {
        close(fd[i]);
    }
    end(&f);
}

/* Replies that are on their way when the peer goes, go nowhere. */
static void peer_gone_meanwhile(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_hold(f.store);
    int fd[4];
    for (int i = 0; i < 4; i++) {
        fd[i] = client_open(&f);
    }
    client_say(fd[0], "PLAYED u a\r\n");
    client_say(fd[1], "FORGET v\r\n");
    client_say(fd[2], "FILTER u LIMIT 1 DELIVER ITEMS x\r\n");
    client_say(fd[3], "LOAD done done\r\n");
    fake_store_wait(f.store, 3); /* the two writes may share a batch */
    settle(&f);
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < 4; i++) {
        client_say(fd[i], "PING\r\n"); /* unread bytes, so that the close is a reset */
        setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(fd[i]);
    }
    settle(&f);
    fake_store_release(f.store);
    settle(&f);
    struct buf got = {0};
    client_ask(&f, "SEEN u a x\r\n", &got);
    assert_string_equal(got.data, "*2\r\n:1\r\n:1\r\n");
    buf_free(&got);
    end(&f);
}

/* A question about a large user is asked on the offload thread: its own connection waits, in order, and nobody else
 * does. */
static void large_users_block_their_connection(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_add_month(f.store, "giant", 2026 * 12 + 10, "a");
    fake_store_enlarge(f.store, "giant");
    fake_store_hold_scans(f.store);
    int fd = client_open(&f), second = client_open(&f), other = client_open(&f);
    client_say(fd, "*4\r\n$6\r\nUNSEEN\r\n$5\r\ngiant\r\n$1\r\na\r\n$1\r\nb\r\nSEEN u x\r\nPLAYED giant b\r\n");
    client_say(second, "MULTI\r\nPLAYED giant c\r\nSEEN giant a b c\r\nWHY giant a\r\nPING\r\nEXEC\r\nPING\r\n");
    client_expect(second, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n:1\r\n");
    fake_store_wait_scan(f.store);
    settle(&f);
    /* The worker's buffers are used by others meanwhile. */
    client_say(other,
               "UNSEEN u zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\nSEEN u 1 2 3 4 5 6 7 8 9 10 11 12 13\r\n");
    client_expect(other,
                  "*1\r\n$46\r\nzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n*13\r\n:0\r\n:0\r\n:0\r\n:0\r\n"
                  ":0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
    assert_false(client_has_input(fd));
    assert_false(client_has_input(second));
    fake_store_release_scans(f.store);
    client_expect(fd, "*1\r\n$1\r\nb\r\n*1\r\n:0\r\n:1\r\n");
    struct buf got = {0};
    shutdown(second, SHUT_WR);
    client_read_all(second, &got); /* b was played before that was asked, or not */
    assert_true(text_is("*3\r\n:1\r\n:\1\r\n:1\r\n*1\r\n$7\r\n2026-11\r\n+PONG\r\n+PONG\r\n", &got, "EXEC"));
    buf_free(&got);
    close(fd);
    close(second);
    close(other);
    end(&f);
}

static void peer_of_a_large_user_gone(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_enlarge(f.store, "giant");
    fake_store_hold_scans(f.store);
    static const char *const questions[] = {"UNSEEN giant a\r\n", "WHY giant a\r\n", "HISTORY giant\r\n",
                                            "FILTER giant LIMIT 1 DELIVER ITEMS a\r\n"};
    int fd[4];
    for (int i = 0; i < 4; i++) {
        fd[i] = client_open(&f);
        client_say(fd[i], "PING\r\n"); /* it will not read the reply, so its close is a reset */
        client_say(fd[i], questions[i]);
    }
    fake_store_wait_scan(f.store);
    settle(&f);
    for (int i = 0; i < 4; i++) {
        close(fd[i]);
    }
    settle(&f);
    fake_store_release_scans(f.store);
    struct buf got = {0};
    client_ask(&f, "SEEN giant a\r\n", &got); /* and nothing was delivered */
    assert_string_equal(got.data, "*1\r\n:0\r\n");
    buf_free(&got);
    end(&f);
}

static void failed_writes(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *want;
    } cases[] = {
        {ERR_BUSY, "-BUSY the cause\r\n"},
        {ERR_FULL, "-MISCONF not recorded: the cause\r\n"},
        {ERR_IO, "-MISCONF not recorded: the cause\r\n"},
        {ERR_READONLY, "-MISCONF not recorded: the cause\r\n"},
        {ERR_NOMEM, "-OOM the cause\r\n"},
        {ERR_CLOSED, "-ERR server is shutting down\r\n"},
        {ERR_SHARED, "-ERR the cause\r\n"},
    };
    struct fixture f;
    begin(&f);
    int fd = client_open(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_store_fail(f.store, cases[i].code, "the cause");
        client_say(fd, "PLAYED u a\r\nPLAYED u b\r\nFILTER u LIMIT 1 DELIVER ITEMS x\r\nFORGET u\r\nRING FLUSH\r\n"
                       "LOAD done\r\n");
        for (int k = 0; k < 6; k++) {
            client_expect(fd, cases[i].want);
        }
    }
    fake_store_fail(f.store, 0, "");
    client_say(fd, "SEEN u a b x\r\nPLAYED u a\r\n");
    client_expect(fd, "*3\r\n:0\r\n:0\r\n:0\r\n:1\r\n");
    close(fd);
    end(&f);
}

/* A second tier whose ports take as long to open as the test likes: so long a worker is not through with attaching. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int opening;
    bool go_on;
    atomic_bool attached;
} slow = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int slow_port_new(struct tier *tier, struct tier_port **port, struct err *err)
{
    (void)tier;
    *port = malloc(1);
    return *port != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static void slow_port_free(struct tier_port *port)
{
    free(port);
}

static void slow_port_open(struct tier_port *port, struct uv_loop_s *loop, struct budget_share *memory)
{
    (void)port, (void)loop, (void)memory;
    pthread_mutex_lock(&slow.mutex);
    slow.opening++;
    pthread_cond_broadcast(&slow.wake);
    while (!slow.go_on) {
        pthread_cond_wait(&slow.wake, &slow.mutex);
    }
    pthread_mutex_unlock(&slow.mutex);
}

static void slow_port_close(struct tier_port *port)
{
    (void)port;
}

static bool slow_is_well(struct tier *tier, char *why, size_t size)
{
    (void)tier;
    snprintf(why, size, "it is none");
    return false;
}

static bool slow_was_well(struct tier *tier)
{
    (void)tier;
    return false;
}

static void *attach_slowly(void *f)
{
    fixture_attach(f);
    atomic_store(&slow.attached, true);
    return NULL;
}

/* Whoever attaches tells the world that the server is ready, and clients come to every worker. */
static void attached_is_every_worker(void **state)
{
    (void)state;
    static const struct tier_ops ops = {.name = "slow",
                                        .port_new = slow_port_new,
                                        .port_free = slow_port_free,
                                        .port_open = slow_port_open,
                                        .port_close = slow_port_close,
                                        .is_well = slow_is_well,
                                        .was_well = slow_was_well};
    struct tier tier = {&ops};
    struct fixture f;
    pthread_t attaches;
    fixture_init(&f);
    f.tier = &tier;
    fixture_start(&f);
    assert_int_equal(pthread_create(&attaches, NULL, attach_slowly, &f), 0);
    pthread_mutex_lock(&slow.mutex);
    while (slow.opening < f.cfg.workers) {
        pthread_cond_wait(&slow.wake, &slow.mutex);
    }
    assert_false(atomic_load(&slow.attached));
    slow.go_on = true;
    pthread_cond_broadcast(&slow.wake);
    pthread_mutex_unlock(&slow.mutex);
    assert_int_equal(pthread_join(attaches, NULL), 0);
    assert_true(atomic_load(&slow.attached));
    for (int i = 0; i < 4; i++) {
        struct buf got = {0};
        client_ask(&f, "PING\r\n", &got);
        assert_string_equal(got.data, "+PONG\r\n");
        buf_free(&got);
    }
    end(&f);
}

static void loading(void **state)
{
    (void)state;
#define LOADING "-LOADING Redis is loading the dataset in memory: 0 % of what was staged is read\r\n"
    struct fixture f;
    char count[32];
    int commands = 0;
    while (command_table[commands].name != NULL) {
        commands++;
    }
    snprintf(count, sizeof count, ":%d\r\n", commands);
    fixture_init(&f);
    fixture_start(&f);
    int fd = client_open(&f);
    client_say(fd, "PING\r\nPLAYED u a\r\nUNSEEN u a\r\nSELECT 0\r\nCLIENT GETNAME\r\nCOMMAND COUNT\r\nMULTI\r\n"
                   "PLAYED u a\r\nEXEC\r\nRING\r\nINFO persistence\r\n");
    client_expect(fd, LOADING LOADING LOADING "+OK\r\n$-1\r\n");
    client_expect(fd, count);
    client_expect(fd, "+OK\r\n" LOADING "-EXECABORT Transaction discarded because of previous errors.\r\n" LOADING
                      "$92\r\n# Persistence\r\nloading:1\r\nasync_loading:0\r\n"
                      "loading_loaded_perc:0.00\r\nloading_takes_plays:0\r\n\r\n");
    fixture_attach(&f);
    /* A connection that is dealt after the attachment finds a server that answers. */
    for (int i = 0; i < 2; i++) {
        struct buf got = {0};
        client_ask(&f, "PING\r\n", &got);
        assert_string_equal(got.data, "+PONG\r\n");
        buf_free(&got);
    }
    client_say(fd, "PLAYED u a\r\n");
    client_expect(fd, ":1\r\n");
    close(fd);
    end(&f);
}

static void password(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    snprintf(f.cfg.requirepass, sizeof f.cfg.requirepass, "secret");
    fixture_start(&f);
    fixture_attach(&f);
    int fd = client_open(&f);
    client_say(fd, "PING\r\nFOO\r\nPLAYED u\r\nPLAYED u a\r\nINFO\r\nMULTI\r\n");
    client_expect(fd, NOAUTH "-ERR unknown command 'FOO', with args beginning with: \r\n"
                             "-ERR wrong number of arguments for 'played' command\r\n" NOAUTH NOAUTH NOAUTH);
    client_say(fd, "AUTH secre\r\nAUTH secretx\r\nAUTH ''\r\nAUTH Secret\r\nAUTH somebody secret\r\n");
    for (int i = 0; i < 5; i++) {
        client_expect(fd, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    }
    client_say(fd, "HELLO 3\r\n");
    client_expect(fd, "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> "
                      "AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol "
                      "version at the same time\r\n");
    client_say(fd, "HELLO 3 AUTH default wrong\r\nCLIENT GETNAME\r\n");
    client_expect(fd, "-WRONGPASS invalid username-password pair or user is disabled.\r\n" NOAUTH);
    client_say(fd,
               "AUTH secret\r\nSEEN u a\r\nCONFIG GET requirepass\r\nRESET\r\nPING\r\nAUTH default secret\r\nPING\r\n");
    client_expect(fd, "+OK\r\n*1\r\n:0\r\n*2\r\n$11\r\nrequirepass\r\n$8\r\n********\r\n+RESET\r\n" NOAUTH
                      "+OK\r\n+PONG\r\n");
    close(fd);

    fd = client_open(&f);
    client_say(fd, "HELLO 3 AUTH default secret\r\nCLIENT GETNAME\r\n");
    struct buf got = {0};
    shutdown(fd, SHUT_WR);
    client_read_all(fd, &got);
    assert_true(text_is("%7\r\n\1*0\r\n_\r\n", &got, "HELLO with AUTH"));
    buf_free(&got);
    close(fd);

    /* Strangers may not send much. */
    fd = client_open(&f);
    client_say(fd, "*11\r\n");
    expect_end(fd, "-ERR Protocol error: unauthenticated multibulk length\r\n");
    fd = client_open(&f);
    client_say(fd, "*2\r\n$4\r\nAUTH\r\n$20000\r\n");
    expect_end(fd, "-ERR Protocol error: unauthenticated bulk length\r\n");
    end(&f);
}

/* The Unix socket has ROOM_KEPT above max_clients. */
static void max_clients(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.cfg.max_clients = 3;
    fixture_start(&f);
    fixture_attach(&f);
    int fd[3 + ROOM_KEPT];
    for (int i = 0; i < 3 + ROOM_KEPT; i++) {
        fd[i] = client_open(&f);
        client_say(fd[i], "PING\r\n");
        client_expect(fd[i], "+PONG\r\n");
    }
    expect_end(client_open(&f), "-ERR max number of clients reached\r\n");
    client_say(fd[0], "QUIT\r\n");
    expect_end(fd[0], "+OK\r\n");
    /* Its place is free when the server, too, has let go of the socket, however long a busy machine takes to run it. */
    struct buf got = {0};
    alarm(FIXTURE_STUCK_S);
    do {
        buf_clear(&got);
        client_ask(&f, "PING\r\n", &got);
    } while (strcmp(got.data, "+PONG\r\n") != 0);
    alarm(0);
    buf_free(&got);
    for (int i = 1; i < 3 + ROOM_KEPT; i++) {
        close(fd[i]);
    }
    end(&f);
}

/* Time passes by DEBUG ADVANCE, which looks after the timeouts of all workers before it answers. */
static void timeouts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.cfg.idle_timeout_ms = 300 * 1000;
    fixture_start(&f);
    fixture_attach(&f);
    int clock = client_open(&f), idle = client_open(&f), half = client_open(&f), busy = client_open(&f);
    client_say(idle, "PING\r\n");
    client_expect(idle, "+PONG\r\n");
    client_say(half, "PING\r\n*2\r\n$4\r\nECHO\r\n$100\r\nhal");
    client_expect(half, "+PONG\r\n");
    fake_store_hold(f.store);
    client_say(busy, "PLAYED u a\r\n");
    fake_store_wait(f.store, 1);

    client_say(clock, "DEBUG ADVANCE 59000\r\n");
    client_expect(clock, "+OK\r\n");
    assert_false(client_has_input(half));
    client_say(clock, "DEBUG ADVANCE 1000\r\n");
    client_expect(clock, "+OK\r\n");
    expect_end(half, "");
    assert_false(client_has_input(idle));
    client_say(clock, "DEBUG ADVANCE 240000\r\n");
    client_expect(clock, "+OK\r\n");
    expect_end(idle, "");
    assert_false(client_has_input(busy)); /* waits for the store, not for its client */
    fake_store_release(f.store);
    client_expect(busy, ":1\r\n");
    assert_int_equal(fake_store_ticks(f.store), 3);
    close(busy);
    close(clock);
    end(&f);
}

static void strangers_time_out(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    snprintf(f.cfg.requirepass, sizeof f.cfg.requirepass, "secret");
    fixture_start(&f);
    fixture_attach(&f);
    int clock = client_open(&f), stranger = client_open(&f);
    client_say(clock, "AUTH secret\r\n");
    client_expect(clock, "+OK\r\n");
    client_say(stranger, "PING\r\n");
    client_expect(stranger, NOAUTH);
    client_say(clock, "DEBUG ADVANCE 60000\r\n");
    client_expect(clock, "+OK\r\n");
    expect_end(stranger, "");
    close(clock);
    end(&f);
}

/* Somebody who asks and asks and never reads is not read any further, and closed after a minute; meanwhile the others
 * are answered. */
static void unread_replies(void **state)
{
    (void)state;
    enum { SIZE = 100 * 1000, TIMES = 200 };
    struct fixture f;
    begin(&f);
    int fd = client_open(&f), clock = client_open(&f);
    struct buf request = {0};
    buf_addf(&request, "*2\r\n$4\r\nECHO\r\n$%d\r\n", SIZE);
    assert_int_equal(buf_reserve(&request, SIZE + 2), 0);
    memset(request.data + request.len, 'x', SIZE);
    request.len += SIZE;
    buf_add(&request, "\r\n", 2);
    size_t sent = 0, want = TIMES * request.len;
    for (;;) {
        ssize_t n =
            send(fd, request.data + sent % request.len, request.len - sent % request.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            continue;
        }
        size_t before = sent;
        settle(&f);
        n = send(fd, request.data + sent % request.len, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? 1 : 0;
        if (sent == before) {
            break; /* the server takes no more */
        }
    }
    assert_true(sent < want); /* of what it was ready to send it has stopped reading far before the end */
    for (int i = 0; i < 2; i++) {
        client_say(clock, "DEBUG ADVANCE 60000\r\n");
        client_expect(clock, "+OK\r\n");
    }
    struct buf got = {0};
    client_read_all(fd, &got); /* ends: what the kernel had taken, then the close */
    assert_true(got.len < sent);
    buf_free(&got);
    buf_free(&request);
    close(fd);
    close(clock);
    end(&f);
}

/* A reader that is merely slow gets all of it. */
static void slow_reader(void **state)
{
    (void)state;
    enum { TIMES = 3000 };
    struct fixture f;
    begin(&f);
    struct buf request = {0}, got = {0};
    for (int i = 0; i < TIMES; i++) {
        buf_addf(&request, "COMMAND DOCS\r\n");
    }
    buf_addf(&request, "ECHO end\r\n");
    int fd = client_open(&f);
    client_send(fd, request.data, request.len);
    shutdown(fd, SHUT_WR);
    settle(&f);
    client_read_all(fd, &got);
    assert_true(got.len > TIMES * 1000 + 9);
    assert_memory_equal(got.data + got.len - 9, "$3\r\nend\r\n", 9);
    buf_free(&request);
    buf_free(&got);
    close(fd);

    /* The same through EXEC, whose array is longer than what may wait unsent. */
    buf_addf(&request, "MULTI\r\n");
    for (int i = 0; i < 500; i++) {
        buf_addf(&request, "COMMAND DOCS\r\n");
    }
    buf_addf(&request, "EXEC\r\nECHO end\r\n");
    fd = client_open(&f);
    client_send(fd, request.data, request.len);
    shutdown(fd, SHUT_WR);
    settle(&f);
    client_read_all(fd, &got);
    assert_memory_equal(got.data, "+OK\r\n+QUEUED\r\n", 14);
    assert_memory_equal(got.data + got.len - 9, "$3\r\nend\r\n", 9);
    buf_free(&request);
    buf_free(&got);
    close(fd);
    end(&f);
}

/* What was said before QUIT arrives, also where the client's own end is seen before it has left. */
static void quit_behind_replies(void **state)
{
    (void)state;
    enum { SIZE = 900 * 1000 };
    struct fixture f;
    begin(&f);
    struct buf request = {0}, list = {0}, got = {0};
    buf_addf(&request, "*2\r\n$4\r\nECHO\r\n$%d\r\n%0*d\r\n", SIZE, SIZE, 7);
    int fd = client_open(&f), little = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    client_say(fd, "CLIENT SETNAME slow\r\n");
    client_expect(fd, "+OK\r\n");
    size_t times = 0;
    for (;;) { /* until the kernel takes no more, and some wait in the server: not so many that it would read no more */
        client_send(fd, request.data, request.len);
        times++;
        settle(&f);
        buf_clear(&list);
        client_ask(&f, "CLIENT LIST\r\n", &list);
        const char *line = strstr(list.data, "name=slow");
        assert_non_null(line);
        line = strstr(line, "omem=");
        assert_non_null(line);
        if (strncmp(line, "omem=0 ", 7) != 0) {
            break;
        }
    }
    client_say(fd, "QUIT\r\n");
    shutdown(fd, SHUT_WR);
    settle(&f);
    client_read_all(fd, &got);
    assert_int_equal(got.len, times * (SIZE + strlen("$900000\r\n\r\n")) + strlen("+OK\r\n"));
    assert_memory_equal(got.data + got.len - 5, "+OK\r\n", 5);
    buf_free(&request);
    buf_free(&list);
    buf_free(&got);
    close(fd);
    end(&f);
}

/* 10 MB without a newline, and a client that is still sending when it is told off: the error arrives. */
static void endless_line(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    char *line = malloc(10 * 1000 * 1000);
    assert_non_null(line);
    memset(line, 'a', 10 * 1000 * 1000);
    int fd = client_open(&f);
    client_send(fd, line, 10 * 1000 * 1000);
    shutdown(fd, SHUT_WR);
    expect_end(fd, "-ERR Protocol error: too big inline request\r\n");
    free(line);
    settle(&f);
    end(&f);
}

enum { LARGE = 1500 * 1000 };

static void *ask_large(void *arg)
{
    const struct fixture *f = arg;
    struct buf request = {0}, got = {0};
    buf_addf(&request, "*2\r\n$4\r\nECHO\r\n$%d\r\n", LARGE);
    buf_reserve(&request, LARGE + 2);
    memset(request.data + request.len, 'i', LARGE);
    request.len += LARGE;
    buf_add(&request, "\r\n", 2);
    int fd = client_open(f);
    client_send(fd, request.data, request.len);
    shutdown(fd, SHUT_WR);
    client_read_all(fd, &got);
    close(fd);
    /* The reply is the request without its first two lines and their arguments. */
    size_t head = strlen("*2\r\n$4\r\nECHO\r\n");
    bool right = got.len == request.len - head && memcmp(got.data, request.data + head, got.len) == 0;
    buf_free(&request);
    buf_free(&got);
    return right ? arg : NULL;
}

/* Many large requests at once, with memory for few: some wait, and all are answered. */
static void short_of_memory(void **state)
{
    (void)state;
    enum { CLIENTS = 24 };
    struct fixture f;
    fixture_init(&f);
    f.cfg.request_memory = 16 * 1024 * 1024;
    fixture_start(&f);
    fixture_attach(&f);
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_large, &f), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        void *right;
        pthread_join(threads[i], &right);
        assert_non_null(right);
    }
    struct buf got = {0};
    client_ask(&f, "INFO stats\r\n", &got);
    assert_null(strstr(got.data, "waits_for_memory:0\r\n"));
    buf_free(&got);

    /* An eighth of all is what one request may have. */
    int big = client_open(&f);
    client_say(big, "*2\r\n$4\r\nECHO\r\n$2097152\r\n");
    expect_end(big, "-ERR Protocol error: too big request\r\n");
    end(&f);
}

static void *stop_server(void *arg)
{
    server_stop(((struct fixture *)arg)->server);
    return NULL;
}

/* What the store has is answered; what came behind it is not; then the connection ends. */
static void stop_finishes_what_was_begun(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_hold(f.store);
    int fd = client_open(&f), forget = client_open(&f), idle = client_open(&f);
    client_say(fd, "PLAYED u a\r\nPLAYED u b\r\nUNSEEN u a\r\n");
    fake_store_wait(f.store, 1);
    client_say(forget, "FORGET u\r\n");
    fake_store_wait(f.store, 2);
    client_say(idle, "PING\r\n");
    client_expect(idle, "+PONG\r\n");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_server, &f), 0);
    expect_end(idle, ""); /* so it is stopping */
    fake_store_release(f.store);
    expect_end(fd, ":1\r\n:1\r\n");
    expect_end(forget, ":1\r\n");
    pthread_join(thread, NULL);
    fixture_end(&f);
}

/* A store that answers only when it is closed, after the server has given up waiting: nothing is touched that is gone.
 */
static void stop_without_an_answer(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_hold(f.store);
    int fd = client_open(&f);
    client_say(fd, "PLAYED u a\r\n");
    fake_store_wait(f.store, 1);
    int other = client_open(&f);
    client_say(other, "FORGET u\r\n");
    fake_store_wait(f.store, 2);
    server_stop_within(f.server, 1);
    fake_store_release(f.store);
    expect_end(fd, "");
    expect_end(other, "");
    fixture_end(&f);
}

/* A question that the offload thread is at is answered, with what its connection sent in front of it. */
static void stop_answers_about_large_users(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_enlarge(f.store, "giant");
    fake_store_hold_scans(f.store);
    int fd = client_open(&f), idle = client_open(&f);
    client_say(fd, "PING\r\nUNSEEN giant a\r\nPING\r\n");
    fake_store_wait_scan(f.store);
    client_say(idle, "PING\r\n");
    client_expect(idle, "+PONG\r\n");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_server, &f), 0);
    expect_end(idle, ""); /* so it is stopping */
    fake_store_release_scans(f.store);
    expect_end(fd, "+PONG\r\n*1\r\n$1\r\na\r\n");
    pthread_join(thread, NULL);
    fixture_end(&f);
}

static void *stop_impatiently(void *arg)
{
    struct fixture *f = arg;
    server_stop_within(f->server, 1);
    return NULL;
}

/* One is being asked for longer than the server waits, one is not even begun: both end without an answer. */
static void stop_leaves_large_users(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    fake_store_enlarge(f.store, "giant");
    fake_store_hold_scans(f.store);
    int fd = client_open(&f), other = client_open(&f);
    client_say(fd, "UNSEEN giant a\r\n");
    fake_store_wait_scan(f.store);
    client_say(other, "HISTORY giant\r\n");
    settle(&f);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_impatiently, &f), 0);
    expect_end(fd, "");
    expect_end(other, "");
    fake_store_release_scans(f.store);
    pthread_join(thread, NULL);
    fixture_end(&f);
}

static void sockets(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    struct server *second = NULL;
    char address[SERVER_ADDRESS_TEXT], want[SERVER_ADDRESS_TEXT];
    struct stat st;
    fixture_init(&f);
    snprintf(f.cfg.listen, sizeof f.cfg.listen, "127.0.0.1:0");

    /* A file that a dead process left is replaced, and only its owner may connect. */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", f.folder);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
    close(stale);
    fixture_start(&f);
    assert_int_equal(stat(f.cfg.unix_socket, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    assert_true(server_address(f.server, 0, address, sizeof address) > 0);
    assert_memory_equal(address, "127.0.0.1:", 10);
    assert_true(atoi(address + 10) > 0);
    assert_true(server_address(f.server, 1, want, sizeof want) > 0);
    assert_memory_equal(want, "unix:/", 6);
    assert_int_equal(server_address(f.server, 2, want, sizeof want), -1);

    /* Neither the port nor the socket of a server that runs can be taken. */
    struct config cfg = f.cfg;
    snprintf(cfg.listen, sizeof cfg.listen, "%.100s", address);
    assert_int_equal(server_start(&cfg, NULL, &second, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.text, address));
    snprintf(cfg.listen, sizeof cfg.listen, "none");
    assert_int_equal(server_start(&cfg, NULL, &second, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.text, cfg.unix_socket));
    assert_int_equal(stat(f.cfg.unix_socket, &st), 0);

    /* Nor is a file removed that is no socket. */
    snprintf(cfg.unix_socket, sizeof cfg.unix_socket, "%s/file", f.folder);
    FILE *file = fopen(cfg.unix_socket, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(server_start(&cfg, NULL, &second, &err), ERR_SYSTEM);
    assert_int_equal(stat(cfg.unix_socket, &st), 0);
    unlink(cfg.unix_socket);
    cfg.unix_socket[0] = '\0';
    assert_int_equal(server_start(&cfg, NULL, &second, &err), ERR_INVALID);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_answer_after_the_commit),
        cmocka_unit_test(order_of_one_connection),
        cmocka_unit_test(later_answers_block_their_connection),
        cmocka_unit_test(peer_gone_meanwhile),
        cmocka_unit_test(large_users_block_their_connection),
        cmocka_unit_test(peer_of_a_large_user_gone),
        cmocka_unit_test(failed_writes),
        cmocka_unit_test(loading),
        cmocka_unit_test(attached_is_every_worker),
        cmocka_unit_test(password),
        cmocka_unit_test(max_clients),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(strangers_time_out),
        cmocka_unit_test(unread_replies),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(quit_behind_replies),
        cmocka_unit_test(endless_line),
        cmocka_unit_test(short_of_memory),
        cmocka_unit_test(stop_finishes_what_was_begun),
        cmocka_unit_test(stop_without_an_answer),
        cmocka_unit_test(stop_answers_about_large_users),
        cmocka_unit_test(stop_leaves_large_users),
        cmocka_unit_test(sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
