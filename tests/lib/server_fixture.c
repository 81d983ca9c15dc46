#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "dedup/sessions.h"
#include "legacy/read_through.h"
#include "tests/lib/server_fixture.h"
#include "tests/unit/fake_store.h"

void fixture_init(struct fixture *f)
{
    *f = (struct fixture){0};
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_LEVEL_ERROR);
    clock_test_start(FIXTURE_NOW);
    snprintf(f->folder, sizeof f->folder, "/tmp/unseen-test-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    config_defaults(&f->cfg);
    snprintf(f->cfg.listen, sizeof f->cfg.listen, "none");
    snprintf(f->cfg.unix_socket, sizeof f->cfg.unix_socket, "%s/socket", f->folder);
    f->cfg.workers = 2;
    snprintf(f->cfg.backup_root, sizeof f->cfg.backup_root, "/");
    f->store = fake_store_new();
}

void fixture_start(struct fixture *f)
{
    struct err err = {0};
    if (server_start(&f->cfg, NULL, &f->server, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

void fixture_attach(struct fixture *f)
{
    struct err err = {0};
    dedup_init(&f->dedup, f->store, &f->cfg);
    f->dedup.tier = f->tier;
    if (sessions_new(&f->cfg, f->dedup.seed, &f->dedup.sessions, &err) < 0) {
        fail_msg("%s", err.text);
    }
    if (read_through_start(&f->dedup, &f->dedup.read_through, &err) < 0) {
        fail_msg("%s", err.text);
    }
    if (server_attach(f->server, &f->dedup, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

void fixture_stop(struct fixture *f)
{
    server_stop(f->server);
}

void fixture_end(struct fixture *f)
{
    server_free(f->server);
    read_through_free(f->dedup.read_through);
    sessions_free(f->dedup.sessions);
    fake_store_free(f->store);
    assert_int_equal(access(f->cfg.unix_socket, F_OK), -1); /* the server took its file along */
    rmdir(f->folder);
}

static int open_socket(int family, const void *address, socklen_t len)
{
    int fd = socket(family, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    struct timeval stuck = {.tv_sec = FIXTURE_STUCK_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &stuck, sizeof stuck);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &stuck, sizeof stuck);
    assert_int_equal(connect(fd, address, len), 0);
    return fd;
}

int client_open(const struct fixture *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", f->folder);
    return open_socket(AF_UNIX, &a, sizeof a);
}

int client_open_tcp(const struct fixture *f)
{
    char address[SERVER_ADDRESS_TEXT];
    assert_true(server_address(f->server, 0, address, sizeof address) > 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = open_socket(AF_INET, &a, sizeof a);
    const int on = 1; /* else what is sent in two goes waits for 40 ms in between, for a delayed acknowledgement */
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    return fd;
}

void client_send(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            return; /* the server has said all it wanted to */
        }
        assert_true(n > 0);
        bytes += n;
        len -= (size_t)n;
    }
}

void client_say(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

void client_expect(int fd, const char *want)
{
    size_t len = strlen(want), got = 0;
    char *text = calloc(1, len + 1);
    assert_non_null(text);
    while (got < len) {
        ssize_t n = recv(fd, text + got, len - got, 0);
        if (n <= 0) {
            break;
        }
        got += (size_t)n;
    }
    assert_string_equal(text, want);
    free(text);
}

enum { LINE = 256 };

static void read_line(int fd, char line[LINE])
{
    size_t got = 0;
    while (got < LINE - 1 && recv(fd, line + got, 1, 0) == 1 && line[got++] != '\n') {
    }
    line[got] = '\0';
}

static bool is_late(const char *line)
{
    static const char late[] = "-ERR not answered within question_timeout";
    return strncmp(line, late, sizeof late - 1) == 0;
}

void client_ask_in_time(int fd, const char *question, const char *want)
{
    enum { TRIES = 50 };
    char line[LINE];
    for (int tries = 0; tries < TRIES; tries++) {
        client_say(fd, question);
        if (recv(fd, line, 1, MSG_PEEK) != 1 || line[0] != '-') {
            break;
        }
        read_line(fd, line);
        if (strcmp(line, want) == 0) {
            return;
        }
        if (!is_late(line)) {
            assert_string_equal(line, want);
        }
    }
    client_expect(fd, want);
}

void client_ask_held(const struct fixture *f, int fd, const char *question)
{
    client_say(fd, question);
    while (!fake_store_scan_waits(f->store)) {
        if (client_has_input(fd)) {
            char line[LINE];
            read_line(fd, line);
            assert_true(is_late(line));
            client_say(fd, question);
        }
    }
}

void client_read_all(int fd, struct buf *out)
{
    for (;;) {
        assert_int_equal(buf_reserve(out, 4096), 0);
        ssize_t n = recv(fd, out->data + out->len, out->cap - out->len, 0);
        if (n <= 0) {
            assert_true(n == 0 || errno == ECONNRESET);
            break;
        }
        out->len += (size_t)n;
    }
    buf_add(out, "", 1);
    out->len--;
}

bool client_has_input(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

void client_ask(const struct fixture *f, const char *text, struct buf *out)
{
    int fd = client_open(f);
    client_say(fd, text);
    shutdown(fd, SHUT_WR);
    client_read_all(fd, out);
    close(fd);
}

static bool like(const char *want, const char *got)
{
    for (; *want != '\0' && *want != '\1'; want++, got++) {
        if (*want != *got) {
            return false;
        }
    }
    if (*want == '\0') {
        return *got == '\0';
    }
    for (;; got++) {
        if (like(want + 1, got)) {
            return true;
        }
        if (*got == '\0') {
            return false;
        }
    }
}

long long client_info(int fd, const char *section, const char *name)
{
    char text[64], got[16384] = "";
    snprintf(text, sizeof text, "INFO %s\r\n", section);
    client_say(fd, text);
    size_t len = 0;
    while (len < 4 || memcmp(got + len - 4, "\r\n\r\n", 4) != 0) {
        ssize_t n = recv(fd, got + len, sizeof got - 1 - len, 0);
        assert_true(n > 0);
        len += (size_t)n;
    }
    snprintf(text, sizeof text, "\n%s:", name);
    const char *at = strstr(got, text);
    assert_non_null(at);
    return atoll(at + strlen(text));
}

bool text_is(const char *want, const struct buf *got, const char *about)
{
    bool same = like(want, got->data);
    if (!same) {
        print_error("%s\n--- want\n%s\n--- got\n%s\n", about, want, got->data);
    }
    return same;
}
