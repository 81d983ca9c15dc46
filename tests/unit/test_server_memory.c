/* Memory is bounded, whatever clients do: by the server's own account, whole; and who behaves is answered meanwhile.
 * Sizes are chosen so that 16 MiB are far too little for what is asked. Time is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake_store.h"
#include "resp/client.h"
#include "tests/lib/server_fixture.h"

enum { LIMIT = 16 * 1024 * 1024, CROWD = 400, CROWD_MOST = 1000, HOLDERS = 60 };

struct crowd {
    struct fixture f;
    int fd[CROWD_MOST];
    int n;
    int clock; /* a connection of the Unix socket: moves the clock, and asks */
};

static void begin(struct crowd *c, const char *password)
{
    *c = (struct crowd){.n = 0};
    fixture_init(&c->f);
    c->f.cfg.workers = 1;
    c->f.cfg.request_memory = LIMIT;
    snprintf(c->f.cfg.listen, sizeof c->f.cfg.listen, "127.0.0.1:0");
    snprintf(c->f.cfg.requirepass, sizeof c->f.cfg.requirepass, "%s", password);
    fixture_start(&c->f);
    fixture_attach(&c->f);
    c->clock = client_open(&c->f);
    if (password[0] != '\0') {
        client_say(c->clock, "AUTH secret\r\n");
        client_expect(c->clock, "+OK\r\n");
    }
}

static void end(struct crowd *c)
{
    for (int i = 0; i < c->n; i++) {
        close(c->fd[i]);
    }
    close(c->clock);
    fixture_stop(&c->f);
    fixture_end(&c->f);
}

/* One more of them. */
static int join(struct crowd *c)
{
    return c->fd[c->n++] = client_open_tcp(&c->f);
}

/* One that won't read: the kernel keeps less for a Unix socket. */
static int join_deaf(struct crowd *c)
{
    return c->fd[c->n++] = client_open(&c->f);
}

/* What fits into the sockets; the rest would wait for the server. Returns where it has come to. */
static size_t push_from(int fd, const struct buf *bytes, size_t sent)
{
    while (sent < bytes->len) {
        ssize_t n = send(fd, bytes->data + sent, bytes->len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        sent += (size_t)n;
    }
    return sent;
}

static void push(int fd, const struct buf *bytes)
{
    push_from(fd, bytes, 0);
}

static void add_echo(struct buf *out, size_t len, size_t sent)
{
    buf_addf(out, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", len);
    assert_int_equal(buf_reserve(out, sent), 0);
    memset(out->data + out->len, 'e', sent);
    out->len += sent;
}

/* A question of so many words, and its answer as text. */
static void add_seen(struct buf *request, struct buf *answer, int words)
{
    buf_addf(request, "*%d\r\n$4\r\nSEEN\r\n$1\r\nu\r\n", words + 2);
    buf_addf(answer, "*%d\r\n", words);
    for (int i = 0; i < words; i++) {
        buf_addf(request, "$1\r\na\r\n");
        buf_addf(answer, ":0\r\n");
    }
    buf_add(answer, "", 1);
}

static void settle(const struct crowd *c)
{
    for (int i = 0; i < 3; i++) {
        client_say(c->clock, "PING\r\n");
        client_expect(c->clock, "+PONG\r\n");
    }
}

static long long used(const struct crowd *c)
{
    return client_info(c->clock, "memory", "request_memory_used");
}

/* Until a figure is above this: another worker may not have read yet what was sent. */
static void need_above(const struct crowd *c, const char *figure, long long floor)
{
    enum { LOOKS = 100 * 1000 };
    for (int i = 0; client_info(c->clock, "memory", figure) <= floor; i++) {
        assert_true(i < LOOKS);
        settle(c);
    }
}

/* Behind it come turns of all workers, so that what one has given back reaches those who wait with another. */
static void advance(const struct crowd *c, int ms)
{
    char text[64];
    for (int turn = 0; turn < 4; turn++) {
        snprintf(text, sizeof text, "DEBUG ADVANCE %d\r\n", turn == 0 ? ms : 0);
        client_say(c->clock, text);
        client_expect(c->clock, "+OK\r\n");
    }
}

/* A question of so many candidates, of 27 bytes each, and its answer as text. */
static void add_question(struct buf *question, struct buf *answer, int n)
{
    buf_addf(question, "*%d\r\n$6\r\nUNSEEN\r\n$1\r\nu\r\n", n + 2);
    buf_addf(answer, "*%d\r\n", n);
    for (int i = 0; i < n; i++) {
        buf_addf(question, "$20\r\nvideo:%014d\r\n", i);
        buf_addf(answer, "$20\r\nvideo:%014d\r\n", i);
    }
    buf_add(answer, "", 1);
}

/* It comes in two pieces and is answered within so many seconds of the server's clock; 0: at once. */
static void ask_for(const struct crowd *c, int n, int seconds)
{
    struct buf question = {0}, want = {0};
    add_question(&question, &want, n);
    int fd = client_open_tcp(&c->f);
    client_send(fd, question.data, question.len / 2);
    settle(c);
    client_send(fd, question.data + question.len / 2, question.len - question.len / 2);
    for (int i = 0; i < seconds && !client_has_input(fd); i++) {
        settle(c);
        advance(c, 1000);
    }
    client_expect(fd, want.data);
    close(fd);
    buf_free(&question);
    buf_free(&want);
}

static void ask(const struct crowd *c, int n)
{
    ask_for(c, n, 0);
}

/* Whether the server has ended the connection. */
static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static int count_closed(const struct crowd *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        char bytes[4096];
        while (recv(c->fd[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        }
        n += is_closed(c->fd[i]);
    }
    return n;
}

/* Every kind of request whose reply is large beside it, by a crowd that never reads: the sum stays below the limit, and
 * who reads is answered; and when others wait, the unread are closed within seconds. */
static void replies_that_nobody_reads(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int times;
    } kinds[] = {
        {"CLIENT LIST\r\n", 200},
        {"COMMAND DOCS\r\n", 500},
        {"COMMAND INFO client client client client client client client client client client\r\n", 500},
        {"INFO\r\n", 500},
        {"CONFIG GET *\r\n", 500},
        {"NO SUCH COMMAND\r\n", 5000},
        {"MULTI\r\nCOMMAND DOCS\r\nCOMMAND DOCS\r\nINFO\r\nINFO\r\nCOMMAND\r\nEXEC\r\n", 100},
        {"SEEN u a b c d e f g h i j k l m n o p q r s t u v w x y z\r\n", 5000},
        {"PLAYED u\r\n", 5000},
        {"RING\r\nMONTHS\r\nHISTORY u\r\nSLOWLOG GET -1\r\n", 500},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct crowd c;
        struct buf pipeline = {0};
        begin(&c, "");
        for (int i = 0; i < kinds[k].times; i++) {
            buf_addf(&pipeline, "%s", kinds[k].request);
        }
        long long most = 0;
        while (c.n < CROWD) {
            push(join_deaf(&c), &pipeline);
            if (c.n % 20 == 0) {
                settle(&c);
                long long now = used(&c);
                most = now > most ? now : most;
            }
        }
        if (most > LIMIT) {
            fail_msg("%s held %lld bytes", kinds[k].request, most);
        }
        ask_for(&c, 1000, 10);
        end(&c);
        buf_free(&pipeline);
    }
}

/* The same request of everybody, run and answered as far as the peer takes it. */
static void ask_all(const struct crowd *c, int first, int n, const struct buf *request)
{
    long long run = client_info(c->clock, "stats", "total_commands_processed");
    for (int i = 0; i < n; i++) {
        client_send(c->fd[first + i], request->data, request->len);
    }
    while (client_info(c->clock, "stats", "total_commands_processed") < run + n) {
    }
    settle(c);
}

/* How often the kernel takes the reply to this for one that doesn't read. */
static int count_taken(const struct crowd *c, int fd, const struct buf *request)
{
    int before = 0, now = 0, size = 0;
    for (int n = 0;; n++) {
        assert_int_equal(ioctl(fd, FIONREAD, &before), 0);
        client_send(fd, request->data, request->len);
        settle(c);
        assert_int_equal(ioctl(fd, FIONREAD, &now), 0);
        size = n == 0 ? now - before : size;
        if (now - before < size || size == 0) {
            return n;
        }
    }
}

/* Small replies to so many that there is no room for a batch of them each: what one was granted while there was plenty
 * is no good any more when there is little. Before, the kernel is filled until it leaves a bit to the server. */
static void small_replies_that_nobody_reads(void **state)
{
    (void)state;
    enum { PINGS = 600, TURNS = 8 };
    struct crowd c;
    struct buf large = {0}, small = {0}, pings = {0};
    begin(&c, "");
    add_echo(&large, 6000, 6000);
    buf_addf(&large, "\r\n");
    buf_addf(&small, "ECHO %0100d\r\n", 0);
    for (int i = 0; i < PINGS; i++) {
        buf_addf(&pings, "PING\r\n");
    }
    int n_large = count_taken(&c, join_deaf(&c), &large), n_small = 0;
    while (c.n < CROWD_MOST) {
        join_deaf(&c);
    }
    for (int i = 0; i < n_large; i++) {
        ask_all(&c, 1, c.n - 1, &large);
    }
    n_small = count_taken(&c, c.fd[1], &small);
    for (int i = 0; i <= n_small; i++) {
        ask_all(&c, 2, c.n - 2, &small);
    }
    buf_clear(&small);
    buf_addf(&small, "PING\r\n");
    ask_all(&c, 2, c.n - 2, &small);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < c.n; i++) {
            push(c.fd[i], &pings);
            if (i % 50 == 0) {
                settle(&c);
            }
        }
        settle(&c);
        long long now = used(&c);
        if (now > LIMIT * 5 / 8) {
            fail_msg("%lld bytes are held in turn %d", now, turn);
        }
    }
    ask_for(&c, 1000, 10);
    end(&c);
    buf_free(&large);
    buf_free(&small);
    buf_free(&pings);
}

/* A few that don't read hold all that there is for requests. */
static void hold_all(struct crowd *c)
{
    struct buf pipeline = {0};
    for (int i = 0; i < 3000; i++) {
        buf_addf(&pipeline, "COMMAND DOCS\r\n");
    }
    for (int i = 0; i < HOLDERS; i++) {
        push(join_deaf(c), &pipeline);
        settle(c);
    }
    buf_free(&pipeline);
}

/* Lines are served by a timer of real time: whoever has room by now goes on before more time passes. */
static void serve_lines(const struct crowd *c)
{
    for (int i = 0; i < 500; i++) {
        if (client_info(c->clock, "memory", "request_memory_waiting") == 0 || used(c) >= LIMIT / 4) {
            return;
        }
        settle(c);
    }
}

/* A few of them hold all there is. Others who come then wait, none is closed; after seconds those that are in the way
 * are. */
static void unread_replies_give_way(void **state)
{
    (void)state;
    enum { CLIENTS = 3, SIZE = 120 * 1000 };
    struct crowd c;
    struct buf large = {0}, got = {0};
    begin(&c, "");
    hold_all(&c);
    need_above(&c, "request_memory_used", LIMIT / 8 * 3);
    int fd[CLIENTS];
    add_echo(&large, SIZE, SIZE);
    buf_addf(&large, "\r\n");
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = client_open_tcp(&c.f);
        client_send(fd[i], large.data, large.len / 2);
        settle(&c);
        client_send(fd[i], large.data + large.len / 2, large.len - large.len / 2);
    }
    settle(&c);
    need_above(&c, "request_memory_waiting", 0);
    assert_int_equal(count_closed(&c), 0); /* and reading has freed some */
    for (int i = 0; i < 12; i++) {
        advance(&c, 1000);
        serve_lines(&c);
    }
    for (int i = 0; i < CLIENTS; i++) {
        shutdown(fd[i], SHUT_WR);
        buf_clear(&got);
        client_read_all(fd[i], &got);
        assert_int_equal(got.len, strlen("$120000\r\n") + SIZE + 2);
        close(fd[i]);
    }
    end(&c);
    buf_free(&large);
    buf_free(&got);
}

/* Nine that stop in the middle of the largest request there may be: a question of ordinary size is answered all the
 * same, and when somebody wants as much, they are closed after seconds. */
static void half_sent_large(void **state)
{
    (void)state;
    enum { N = 9, SIZE = 2000 * 1000 };
    struct crowd c;
    struct buf half = {0}, whole = {0}, got = {0};
    begin(&c, "");
    add_echo(&half, SIZE, SIZE * 7 / 8);
    for (int i = 0; i < N; i++) {
        join(&c);
        for (size_t sent = 0, before = 1; sent != before;) {
            before = sent;
            sent = push_from(c.fd[i], &half, sent);
            settle(&c);
        }
    }
    assert_true(used(&c) <= LIMIT);
    ask(&c, 2000);
    ask(&c, 10 * 1000);
    assert_int_equal(count_closed(&c), 0);
    add_echo(&whole, SIZE, SIZE);
    buf_addf(&whole, "\r\n");
    int fd = client_open_tcp(&c.f);
    push(fd, &whole);
    for (int i = 0; i < 40 && !client_has_input(fd); i++) {
        settle(&c);
        advance(&c, 5000);
    }
    close(fd);
    assert_true(count_closed(&c) > 0);
    end(&c);
    buf_free(&half);
    buf_free(&whole);
    buf_free(&got);
}

/* What came of a question of up to 64 KiB before memory ran short is held; the rest, in pieces, and the answer need
 * nobody else to give way. */
static void middling_questions_go_on(void **state)
{
    (void)state;
    static const int sizes[] = {100, 640, 1000, 1700, 2400};
    enum { N = sizeof sizes / sizeof *sizes };
    struct crowd c;
    struct buf question[N] = {{0}}, want[N] = {{0}};
    int fd[N];
    begin(&c, "");
    for (int i = 0; i < N; i++) {
        add_question(&question[i], &want[i], sizes[i]);
        fd[i] = client_open_tcp(&c.f);
        client_send(fd[i], question[i].data, question[i].len / 20 * 19);
    }
    settle(&c);
    hold_all(&c);
    for (int i = 0; i < N; i++) {
        size_t at = question[i].len / 20 * 19, piece = question[i].len / 60;
        for (; question[i].len - at > piece; at += piece) {
            client_send(fd[i], question[i].data + at, piece);
            settle(&c);
        }
        client_send(fd[i], question[i].data + at, question[i].len - at);
        client_expect(fd[i], want[i].data);
        close(fd[i]);
        buf_free(&question[i]);
        buf_free(&want[i]);
    }
    struct buf late = {0}, answer = {0}; /* of which nothing is held */
    add_question(&late, &answer, 1600);
    int other = client_open_tcp(&c.f);
    client_send(other, late.data, late.len / 20 * 19);
    settle(&c);
    client_send(other, late.data + late.len / 20 * 19, late.len - late.len / 20 * 19);
    client_expect(other, answer.data);
    close(other);
    buf_free(&late);
    buf_free(&answer);
    assert_int_equal(count_closed(&c), 0);
    end(&c);
}

/* Whole requests that wait for memory for their replies. They stay with the kernel, and what would be known of their
 * many arguments is several times as much. */
static void waiting_holds_no_arguments(void **state)
{
    (void)state;
    enum { ARGS = 8000 };
    struct crowd c;
    struct buf many = {0}, want = {0};
    begin(&c, "");
    hold_all(&c);
    add_seen(&many, &want, ARGS);
    while (c.n < CROWD) {
        client_send(join(&c), many.data, many.len);
    }
    settle(&c);
    need_above(&c, "request_memory_waiting", 0);
    long long now = used(&c);
    if (now > LIMIT * 5 / 8) {
        fail_msg("%lld bytes are held", now);
    }
    for (int i = 0; i < 12; i++) {
        advance(&c, 1000);
    }
    for (int i = HOLDERS; i < c.n; i++) {
        client_expect(c.fd[i], want.data);
    }
    end(&c);
    buf_free(&many);
    buf_free(&want);
}

/* The server's ends of Unix sockets get small buffers, as a kernel short of memory gives them. */
static void shrink_kernel(void)
{
    for (int fd = 3; fd < 4 * CROWD; fd++) {
        struct sockaddr_un at = {0};
        socklen_t size = sizeof at;
        int least = 1;
        if (getsockname(fd, (struct sockaddr *)&at, &size) == 0 && at.sun_family == AF_UNIX && at.sun_path[0] != '\0') {
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
        }
    }
}

/* Replies are made although there is no room, since the kernel seems to take them; and then it takes little. */
static void kernels_that_take_little(void **state)
{
    (void)state;
    enum { SIZE = 45 * 1000 };
    struct crowd c;
    struct buf echo = {0};
    begin(&c, "");
    hold_all(&c);
    add_echo(&echo, SIZE, SIZE);
    buf_addf(&echo, "\r\n");
    while (c.n < CROWD) {
        join_deaf(&c);
    }
    settle(&c);
    shrink_kernel();
    close(c.clock);
    c.clock = client_open(&c.f);
    for (int i = HOLDERS; i < c.n; i++) {
        push(c.fd[i], &echo);
        settle(&c);
    }
    long long now = used(&c);
    if (now > LIMIT) {
        fail_msg("%lld bytes are held", now);
    }
    end(&c);
    buf_free(&echo);
}

/* Half requests of any size below 64 KiB: what is beyond the limit stays with the kernel. None is closed before its
 * minute is over, and when its other half comes it is answered. */
static void half_sent_small(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 10 * 1000, 20 * 1000, 60 * 1000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct crowd c;
        struct buf half = {0}, rest = {0}, got = {0};
        begin(&c, "");
        add_echo(&half, sizes[k], sizes[k] / 2);
        while (c.n < CROWD) {
            push(join(&c), &half);
        }
        settle(&c);
        assert_true(used(&c) <= LIMIT * 5 / 8);
        ask(&c, 1000);
        advance(&c, 30000);
        assert_int_equal(count_closed(&c), 0);
        assert_int_equal(buf_reserve(&rest, sizes[k] - sizes[k] / 2 + 2), 0);
        memset(rest.data, 'e', sizes[k] - sizes[k] / 2);
        rest.len = sizes[k] - sizes[k] / 2;
        buf_addf(&rest, "\r\n");
        for (int i = 0; i < c.n; i++) {
            client_send(c.fd[i], rest.data, rest.len);
            shutdown(c.fd[i], SHUT_WR);
            buf_clear(&got);
            client_read_all(c.fd[i], &got);
            assert_true(got.len > sizes[k]);
        }
        end(&c);
        buf_free(&half);
        buf_free(&rest);
        buf_free(&got);
    }
}

/* Who has not given the password holds nothing of the budget, whatever he sends. */
static void strangers_hold_nothing(void **state)
{
    (void)state;
    struct crowd c;
    struct buf half = {0}, got = {0};
    begin(&c, "secret");
    long long before = used(&c);
    add_echo(&half, 15 * 1000, 14 * 1000);
    while (c.n < CROWD) {
        push(join(&c), &half);
    }
    settle(&c);
    assert_true(used(&c) <= before + 512 * 1024);
    int fd = client_open_tcp(&c.f);
    client_say(fd, "*2\r\n$4\r\nAU");
    settle(&c);
    client_say(fd, "TH\r\n$6\r\nsecret\r\nPING\r\nECHO ab");
    client_expect(fd, "+OK\r\n+PONG\r\n");
    client_say(fd, "c\r\n");
    client_expect(fd, "$3\r\nabc\r\n");
    close(fd);

    /* What ends behind half a request ends the connection. */
    fd = client_open_tcp(&c.f);
    client_say(fd, "*2\r\n$4\r\nAU");
    settle(&c);
    shutdown(fd, SHUT_WR);
    client_read_all(fd, &got);
    assert_int_equal(got.len, 0);
    close(fd);
    end(&c);
    buf_free(&half);
    buf_free(&got);
}

/* Room for arguments is no more than what the request has. */
static void arguments_are_charged(void **state)
{
    (void)state;
    enum { ARGS = 60000 };
    struct crowd c;
    struct buf many = {0}, want = {0};
    begin(&c, "");
    add_seen(&many, &want, ARGS);
    long long before = used(&c);
    for (int i = 0; i < 64; i++) {
        int fd = client_open_tcp(&c.f);
        client_send(fd, many.data, many.len);
        client_expect(fd, want.data);
        close(fd);
        client_say(join(&c), "*3\r\n$4\r\nSEEN\r\n$1\r\nu\r\n$1\r\n"); /* which would take the room of those over */
    }
    settle(&c);
    assert_true(used(&c) <= before + 1024 * 1024);
    end(&c);
    buf_free(&many);
    buf_free(&want);
}

/* Arrays of many short words, which nobody knows the size of beforehand. Each holds some, waits for more, and never
 * ends; together they hold all that there is for requests. They give way within seconds, and one of the same size that
 * does end is answered. */
static void half_sent_middling(void **state)
{
    (void)state;
    enum { WORDS = 40 * 1000, SENT = 36 * 1000, N = 120 };
    struct crowd c;
    struct buf half = {0}, whole = {0}, want = {0};
    begin(&c, "");
    add_seen(&whole, &want, WORDS);
    buf_add(&half, whole.data, whole.len / WORDS * SENT);
    size_t sent[N] = {0};
    while (c.n < N) {
        join(&c);
    }
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < N; i++) {
            sent[i] = push_from(c.fd[i], &half, sent[i]);
        }
        settle(&c);
    }
    assert_true(used(&c) <= LIMIT);
    need_above(&c, "request_memory_waiting", N / 4);
    ask(&c, 1000);
    int fd = client_open_tcp(&c.f);
    size_t at = 0;
    for (int i = 0; i < 45 && !client_has_input(fd); i++) {
        at = push_from(fd, &whole, at);
        settle(&c);
        assert_true(used(&c) <= LIMIT);
        /* Who waits is looked at every 20 ms of real time, so that many must pass within a second of the clock. */
        poll(&(struct pollfd){.fd = fd, .events = at < whole.len ? POLLOUT : POLLIN}, 1, 200);
        advance(&c, 1000);
    }
    assert_true(client_has_input(fd));
    assert_int_equal(at, whole.len);
    client_expect(fd, want.data);
    close(fd);
    end(&c);
    buf_free(&half);
    buf_free(&whole);
    buf_free(&want);
}

/* A question of up to 64 KiB that comes whole while others hold all there is, and one that comes in pieces on a Unix
 * socket, where the kernel has no mark that tells of the rest. */
static void middling_questions_have_room(void **state)
{
    (void)state;
    static const int sizes[] = {100, 1700, 1900, 2100, 2400};
    enum { PIECES = 5 };
    struct crowd c;
    begin(&c, "");
    hold_all(&c);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buf question = {0}, want = {0};
        add_question(&question, &want, sizes[i]);
        int fd = client_open_tcp(&c.f);
        client_send(fd, question.data, question.len);
        client_expect(fd, want.data);
        close(fd);
        fd = client_open(&c.f);
        for (size_t piece = 0; piece < PIECES; piece++) {
            size_t at = question.len * piece / PIECES;
            client_send(fd, question.data + at, question.len * (piece + 1) / PIECES - at);
            settle(&c);
        }
        client_expect(fd, want.data);
        client_send(fd, question.data, question.len / 2);
        settle(&c);
        shutdown(fd, SHUT_WR);
        buf_clear(&want);
        client_read_all(fd, &want);
        assert_int_equal(want.len, 0); /* it ended in the middle */
        close(fd);
        buf_free(&question);
        buf_free(&want);
    }
    need_above(&c, "request_memory_used", LIMIT / 8 * 3);
    assert_int_equal(count_closed(&c), 0);
    end(&c);
}

/* Until so much is used as in the end: lists come a few lines a turn. */
static void settle_between(const struct crowd *c, long long least, long long most)
{
    for (int i = 0; i < 200000 && (used(c) < least || used(c) > most); i++) {
        settle(c);
    }
    assert_in_range(used(c), least, most);
}

/* A list of all clients is large, though it was asked for with few bytes: it is charged once, and many of them that
 * nobody reads leave the room of ordinary requests alone. */
static void unread_lists_leave_room(void **state)
{
    (void)state;
    enum { CLIENTS = 900, ASKERS = 40, LIST = CLIENTS * CLIENT_LINE_MAX };
    struct crowd c;
    struct buf lists = {0};
    begin(&c, "");
    while (c.n < CLIENTS) {
        join_deaf(&c);
    }
    for (int i = 0; i < 20; i++) {
        buf_addf(&lists, "CLIENT LIST\r\n");
    }
    push(c.fd[0], &lists);
    for (int i = 0; i < 200; i++) {
        settle(&c);
    }
    /* The list under way; and, where the kernel has left a bit of the one before, that one's memory as well. It comes
     * in steps. */
    settle_between(&c, LIST / 2, 2 * LIST + 3 * (LIMIT / 64));
    for (int i = 1; i < ASKERS; i++) {
        push(c.fd[i], &lists);
    }
    for (int i = 0; i < 2000; i++) {
        settle(&c);
    }
    settle_between(&c, 2 * LIST, (LIMIT - 3 * (LIMIT / 8)) / 4 * 3);
    ask(&c, 1000);
    end(&c);
    buf_free(&lists);
}

/* What MULTI has queued is held as long as its client likes, unless somebody waits for it. */
static void transactions_give_way(void **state)
{
    (void)state;
    struct crowd c;
    struct buf queue = {0}, half = {0};
    begin(&c, "");
    buf_addf(&queue, "MULTI\r\n");
    for (int i = 0; i < 15; i++) {
        add_echo(&queue, 60 * 1000, 60 * 1000);
        buf_addf(&queue, "\r\n");
    }
    for (int i = 0; i < 24; i++) {
        int fd = join(&c);
        for (size_t at = 0; at < queue.len; at += 60 * 1000) {
            client_send(fd, queue.data + at, queue.len - at < 60 * 1000 ? queue.len - at : 60 * 1000);
            settle(&c);
        }
    }
    assert_true(used(&c) <= LIMIT);
    ask(&c, 5000);
    advance(&c, 30000);
    assert_int_equal(count_closed(&c), 0);
    add_echo(&half, 2000 * 1000, 1000 * 1000);
    for (int i = 0; i < 2; i++) {
        int fd = join(&c);
        for (size_t sent = 0; sent < half.len; settle(&c)) {
            sent = push_from(fd, &half, sent);
        }
    }
    advance(&c, 3000);
    advance(&c, 3000);
    c.n -= 2;
    assert_true(count_closed(&c) > 0);
    c.n += 2;
    end(&c);
    buf_free(&queue);
    buf_free(&half);
}

int main(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files); /* both ends are here */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_that_nobody_reads),
        cmocka_unit_test(unread_replies_give_way),
        cmocka_unit_test(half_sent_large),
        cmocka_unit_test(half_sent_small),
        cmocka_unit_test(strangers_hold_nothing),
        cmocka_unit_test(arguments_are_charged),
        cmocka_unit_test(transactions_give_way),
        cmocka_unit_test(unread_lists_leave_room),
        cmocka_unit_test(half_sent_middling),
        cmocka_unit_test(waiting_holds_no_arguments),
        cmocka_unit_test(middling_questions_go_on),
        cmocka_unit_test(kernels_that_take_little),
        cmocka_unit_test(small_replies_that_nobody_reads),
        cmocka_unit_test(middling_questions_have_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
