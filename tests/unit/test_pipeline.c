/* Commands under way with a server that this test plays itself: it is busy, loses connections, stays away. Whatever it
 * does, each command is answered once, with what the server said to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/task.h"
#include "cli/lib/pipeline.h"
#include "tests/lib/send_bytes.h"

enum { COMMANDS = 5000, CONNECTIONS = 8 };

/* It answers N with the number behind it, which is 10 or more. */
struct server {
    int listener;
    char address[64];
    pthread_t thread;
    /* of each command: 0 it is answered, 1 busy, 2 loading, 3 the connection ends before that */
    int (*_Atomic does)(struct server *s, int number);
    unsigned seed;
    atomic_int connections, taken[COMMANDS];
};

static bool answer(struct server *s, FILE *in, int fd)
{
    char line[64], reply[64];
    int words = 0, number = 0;
    if (fgets(line, sizeof line, in) == NULL || sscanf(line, "*%d", &words) != 1) {
        return false;
    }
    for (int i = 0; i < words; i++) {
        if (fgets(line, sizeof line, in) == NULL || fgets(line, sizeof line, in) == NULL) {
            return false;
        }
    }
    number = atoi(line);
    if (number < 10) { /* HELLO 3 */
        return send_bytes(fd, "%0\r\n", 4);
    }
    switch (atomic_load(&s->does)(s, number - 10)) {
    case 1:
        return send_bytes(fd, "-BUSY not now\r\n", 15);
    case 2:
        return send_bytes(fd, "-LOADING still\r\n", 16);
    case 3:
        return false;
    default:
        atomic_fetch_add(&s->taken[number - 10], 1);
        return send_bytes(fd, reply, (size_t)snprintf(reply, sizeof reply, ":%d\r\n", number));
    }
}

static void *serve(void *arg)
{
    struct server *s = arg;
    for (int fd; (fd = accept(s->listener, NULL, NULL)) >= 0;) {
        FILE *in = fdopen(fd, "r");
        atomic_fetch_add(&s->connections, 1);
        while (answer(s, in, fd)) {
        }
        fclose(in);
    }
    return NULL;
}

static struct server *begin(int (*does)(struct server *s, int number))
{
    struct server *s = calloc(1, sizeof *s);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    s->does = does;
    s->seed = 7;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &len), 0);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    return s;
}

static void stop(struct server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    s->listener = -1;
}

static void end(struct server *s, struct pipeline *p)
{
    pipeline_close(p);
    if (s->listener >= 0) {
        stop(s);
    }
    free(s);
}

static struct pipeline *open_to(struct server *s, enum pipeline_effort effort)
{
    struct pipeline *p;
    struct err err = {0};
    assert_int_equal(pipeline_open(&(struct pipeline_how){.address = s->address, .effort = effort}, &p, &err), 0);
    return p;
}

static int send_number(struct pipeline *p, int number, struct err *err)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number + 10);
    const struct slice words[] = {slice_str("N"), slice_str(text)};
    return pipeline_send(p, words, 2, &(struct pipeline_note){.line = (uint64_t)number}, err);
}

/* The number that was answered; an error's code. */
static int next_number(struct pipeline *p, struct err *err)
{
    struct pipeline_note note;
    const struct reply *reply;
    int rc = pipeline_next(p, &note, &reply, err);
    if (rc == 0) {
        assert_int_equal(reply->kind, REPLY_INTEGER);
        assert_int_equal(reply->integer, note.line + 10);
    }
    return rc < 0 ? rc : (int)note.line;
}

static int at_random(struct server *s, int number)
{
    (void)number;
    int drawn = rand_r(&s->seed) % 1000;
    if (drawn == 0 && atomic_load(&s->connections) < CONNECTIONS) {
        return 3;
    }
    return drawn < 10 ? 2 : drawn < 200 ? 1 : 0;
}

static void each_is_answered_once(void **state)
{
    (void)state;
    static bool answered[COMMANDS];
    struct server *s = begin(at_random);
    struct pipeline *p = open_to(s, PIPELINE_RESUMES);
    struct err err = {0};
    int n = 0;
    for (int i = 0; i < COMMANDS || pipeline_length(p) > 0;) {
        if (i < COMMANDS && !pipeline_is_full(p)) {
            assert_int_equal(send_number(p, i++, &err), 0);
            continue;
        }
        int number = next_number(p, &err);
        assert_true(number >= 0);
        assert_false(answered[number]);
        answered[number] = true;
        n++;
    }
    assert_int_equal(n, COMMANDS);
    for (int i = 0; i < COMMANDS; i++) {
        assert_true(atomic_load(&s->taken[i]) >= 1);
    }
    assert_int_equal(atomic_load(&s->connections), CONNECTIONS);
    end(s, p);
}

static int always_busy(struct server *s, int number)
{
    (void)s;
    (void)number;
    return 1;
}

static int busy_at_first(struct server *s, int number)
{
    (void)number;
    return s->seed-- > 5 ? 1 : 0;
}

static int never(struct server *s, int number)
{
    (void)s;
    (void)number;
    return 3;
}

static int honest(struct server *s, int number)
{
    (void)s;
    (void)number;
    return 0;
}

/* Real time goes on by a minute a look, so that it need not be waited for. */
static void pass_time(void *arg)
{
    struct task *t = arg;
    pthread_mutex_lock(t->mutex);
    while (task_wait_real(t, clock_real_us() + 10 * 1000)) {
        clock_test_pass(60 * 1000);
    }
    pthread_mutex_unlock(t->mutex);
}

static int ask_while_time_passes(struct pipeline *p, struct err *err)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct task clock;
    task_init(&clock, &mutex);
    assert_int_equal(task_start(&clock, "clock", TASK_SILENT, pass_time, &clock, err), 0);
    int rc = next_number(p, err);
    task_stop(&clock);
    task_destroy(&clock);
    return rc;
}

static void it_gives_up(void **state)
{
    (void)state;
    struct err err = {0};
    struct server *busy = begin(always_busy);
    struct pipeline *p = open_to(busy, PIPELINE_REPEATS);
    assert_int_equal(send_number(p, 0, &err), 0);
    assert_int_equal(ask_while_time_passes(p, &err), ERR_BUSY);
    assert_non_null(strstr(err.text, "the server answered: BUSY not now, and so for 600 s"));
    end(busy, p);

    struct server *closes = begin(never); /* it lets everybody in, and hangs up at the first command */
    p = open_to(closes, PIPELINE_RESUMES);
    assert_int_equal(send_number(p, 0, &err), 0);
    assert_int_equal(ask_while_time_passes(p, &err), ERR_CLOSED);
    assert_non_null(strstr(err.text, "and so for 600 s"));
    end(closes, p);

    struct server *gone = begin(honest);
    p = open_to(gone, PIPELINE_RESUMES);
    assert_int_equal(send_number(p, 0, &err), 0);
    assert_int_equal(next_number(p, &err), 0);
    gone->does = never;
    assert_int_equal(send_number(p, 1, &err), 0);
    shutdown(gone->listener, SHUT_RDWR);
    assert_int_equal(ask_while_time_passes(p, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.text, "and so for 60 s"));
    end(gone, p);
}

/* What a connection took with it is the caller's to ask for, a refusal is not. */
static void refusals_alone(void **state)
{
    (void)state;
    struct err err = {0};
    struct server *s = begin(busy_at_first);
    struct pipeline *p = open_to(s, PIPELINE_REPEATS);
    assert_int_equal(send_number(p, 0, &err), 0);
    assert_int_equal(next_number(p, &err), 0);
    s->does = never;
    assert_int_equal(send_number(p, 1, &err), 0);
    assert_int_equal(next_number(p, &err), ERR_CLOSED);
    assert_int_equal(atomic_load(&s->connections), 1);
    end(s, p);
}

/* Nothing is sent again: its caller does that. */
static void once_is_once(void **state)
{
    (void)state;
    struct err err = {0};
    struct pipeline_note note;
    const struct reply *reply;
    struct server *s = begin(always_busy);
    struct pipeline *p = open_to(s, PIPELINE_ONCE);
    assert_int_equal(send_number(p, 0, &err), 0);
    assert_int_equal(pipeline_next(p, &note, &reply, &err), 0);
    assert_int_equal(reply->kind, REPLY_ERROR);
    s->does = never;
    assert_int_equal(send_number(p, 1, &err), 0);
    assert_int_equal(next_number(p, &err), ERR_CLOSED);
    assert_int_equal(atomic_load(&s->connections), 1);
    end(s, p);
}

static void no_server_no_wait(void **state)
{
    (void)state;
    struct pipeline *p;
    struct err err = {0};
    struct server *s = begin(honest);
    stop(s);
    assert_int_equal(pipeline_open(&(struct pipeline_how){.address = s->address}, &p, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.text, s->address));
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_answered_once), cmocka_unit_test(it_gives_up),       cmocka_unit_test(refusals_alone),
        cmocka_unit_test(once_is_once),          cmocka_unit_test(no_server_no_wait),
    };
    clock_test_start(INT64_C(1795255200000));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
