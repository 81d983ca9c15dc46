/* Logins that wait to be checked: how many there may be, and those whose call is gone. The hash takes as long as the
 * test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <crypt.h>
#include <sys/socket.h>
#include <unistd.h>

#include "grpc/grpc.h"
#include "net/listener.h"
#include "service/account_file.h"
#include "service/login.h"
#include "tests/lib/server_fixture.h"

#define HASH "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$6foLM1JhGupouWKMU70wxK61Kw9ZnecbACjJwRadqM2"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_open;
static int n_hashed; /* or being so */

/* Instead of libcrypt's: every password is wrong. */
char *crypt_rn(const char *phrase, const char *setting, void *data, int size)
{
    (void)phrase;
    (void)setting;
    (void)data;
    (void)size;
    pthread_mutex_lock(&lock);
    n_hashed++;
    pthread_cond_broadcast(&changed);
    while (!is_open) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void await_hash(void)
{
    pthread_mutex_lock(&lock);
    while (n_hashed == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    is_open = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static struct fixture f;
static struct grpc *edge;
static struct listeners bound;

static bool has_grpc(void)
{
    return strcmp(grpc_library_version(), "none") != 0;
}

static void begin(void)
{
    struct err err = {0};
    struct account_set *set = NULL;
    is_open = false;
    n_hashed = 0;
    bound = (struct listeners){0};
    fixture_init(&f);
    f.cfg.workers = 1;
    snprintf(f.cfg.grpc, sizeof f.cfg.grpc, has_grpc() ? "127.0.0.1:0" : "none");
    assert_int_equal(grpc_open(&f.cfg, &bound, &edge, &err), 0);
    assert_int_equal(server_start(&f.cfg, &bound, &f.server, &err), 0);
    fixture_attach(&f);
    char text[] = "bob ask " HASH "\n";
    assert_int_equal(account_file_parse("FILE", slice_of(text, sizeof text - 1), &set, &err), 0);
    assert_true(server_replace_accounts(f.server, set));
}

static void end(void)
{
    fixture_stop(&f);
    fixture_end(&f);
    grpc_free(edge);
}

static void say_auth(int fd, int password)
{
    char text[64];
    snprintf(text, sizeof text, "AUTH bob p%d\r\n", password);
    client_say(fd, text);
}

/* A connection that its worker has. */
static int join(void)
{
    int fd = client_open(&f);
    client_say(fd, "RESET\r\n");
    client_expect(fd, "+RESET\r\n");
    return fd;
}

/* The only worker has seen all that was sent before. */
static void settle(int fd)
{
    for (int i = 0; i < 3; i++) {
        client_say(fd, "RESET\r\n");
        client_expect(fd, "+RESET\r\n");
    }
}

/* One is being checked, and so many of one address wait. Equal ones are one. */
static void test_bound(void **state)
{
    (void)state;
    enum { WAITING = LOGIN_CHECKS_ADDRESS + 1, EQUAL = 8 };
    int fd[WAITING], equal[EQUAL], other;
    begin();
    other = join();
    for (int i = 0; i < WAITING; i++) {
        fd[i] = join();
        say_auth(fd[i], i);
        if (i == 0) {
            await_hash();
        }
    }
    settle(other);
    say_auth(other, 1000);
    client_expect(other, "-BUSY too many logins wait to be checked, try again\r\n");
    for (int i = 0; i < EQUAL; i++) {
        equal[i] = join();
        say_auth(equal[i], i);
    }
    settle(other);
    for (int i = 0; i < EQUAL; i++) {
        assert_false(client_has_input(equal[i]));
    }
    let_go();
    for (int i = 0; i < WAITING; i++) {
        client_expect(fd[i], "-WRONGPASS");
        close(fd[i]);
    }
    for (int i = 0; i < EQUAL; i++) {
        client_expect(equal[i], "-WRONGPASS");
        close(equal[i]);
    }
    assert_int_equal(n_hashed, WAITING);
    say_auth(other, 1000); /* there is room again */
    client_expect(other, "-WRONGPASS");
    close(other);
    end();
}

/* --- a call that is gone --- */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
static const char headers[] = "\x83\x86\x01\x01x\x00\x05:path\x18/unseen.v1.Unseen/Filter"
                              "\x00\x0c"
                              "content-type\x10"
                              "application/grpc"
                              "\x00\x0d"
                              "authorization\x0e"
                              "Basic Ym9iOng=";
static const char cancel[] = "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08";
static const char ping[] = "\x00\x00\x08\x06\x00\x00\x00\x00\x00"
                           "pingpong";
enum { HEAD = 9, HEADERS = 1, PING = 6, ACK = 1 };

static void say_frame(int fd, const char *head, size_t head_len, const char *rest, size_t len)
{
    client_send(fd, head, head_len);
    client_send(fd, rest, len);
}

/* Up to the answer to a ping. Returns how many frames of calls came. */
static int await_pong(int fd)
{
    int n = 0;
    for (bool found = false; !found;) {
        unsigned char head[HEAD], body[65536];
        assert_int_equal(recv(fd, head, HEAD, MSG_WAITALL), HEAD);
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        assert_in_range(len, 0, sizeof body);
        assert_int_equal(len > 0 ? recv(fd, body, len, MSG_WAITALL) : 0, len);
        n += head[3] == HEADERS;
        found = head[3] == PING && (head[4] & ACK) != 0;
    }
    return n;
}

static int connect_grpc(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)atoi(strrchr(bound.list[0].address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    client_send(fd, preface, sizeof preface - 1);
    return fd;
}

/* Its check goes on, and counts, but there is nobody to be told. */
static void test_cancelled(void **state)
{
    (void)state;
    if (!has_grpc()) {
        print_message("built without nghttp2\n");
        skip();
    }
    begin();
    int other = join(), fd = connect_grpc();
    const char head[HEAD] = {0, 0, (char)(sizeof headers - 1), HEADERS, 4, 0, 0, 0, 1};
    say_frame(fd, head, HEAD, headers, sizeof headers - 1);
    await_hash();
    say_frame(fd, cancel, sizeof cancel - 1, ping, sizeof ping - 1);
    assert_int_equal(await_pong(fd), 0);
    let_go();
    say_auth(other, 0); /* which is checked behind it */
    client_expect(other, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client_send(fd, ping, sizeof ping - 1);
    assert_int_equal(await_pong(fd), 0);
    assert_int_equal(n_hashed, 2);
    close(fd);
    close(other);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
