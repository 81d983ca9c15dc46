/* What a client of gRPC may send: frames of HTTP/2, headers, calls, prefixes and messages, put to a server that runs in
 * this process. Behind the bytes the client stops sending, and then the server ends the connection; now and then a
 * client of good manners must still be answered. The preface is not part of the input; its first byte chooses where
 * the bytes are cut in two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "grpc/grpc.h"
#include "net/listener.h"
#include "tests/lib/server_fixture.h"

enum { ROUNDS = 64, MEMORY = 16 * 1024 * 1024 };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* SETTINGS, then POST /grpc.health.v1.Health/Check with an empty message. */
static const char good[] = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
                           "\x00\x00\x55\x01\x04\x00\x00\x00\x01"
                           "\x83\x86\x01\x01x\x00\x05:path\x1c/grpc.health.v1.Health/Check"
                           "\x00\x0c"
                           "content-type\x10"
                           "application/grpc"
                           "\x00\x02te\x08trailers"
                           "\x00\x00\x05\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00";

static struct fixture fixture;
static struct grpc *edge;
static struct listeners bound; /* its own */

static void stop(void)
{
    fixture_stop(&fixture);
    fixture_end(&fixture);
    grpc_free(edge);
}

/* Once a process. */
static void start(void)
{
    struct err err = {0};
    fixture_init(&fixture);
    fixture.cfg.request_memory = MEMORY;
    snprintf(fixture.cfg.grpc, sizeof fixture.cfg.grpc, "127.0.0.1:0");
    CHECK(grpc_open(&fixture.cfg, &bound, &edge, &err) == 0);
    CHECK(server_start(&fixture.cfg, &bound, &fixture.server, &err) == 0);
    fixture_attach(&fixture);
    atexit(stop);
}

static int connected(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval stuck = {.tv_sec = FIXTURE_STUCK_S};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_port = htons((uint16_t)atoi(strrchr(bound.list[0].address, ':') + 1));
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &stuck, sizeof stuck);
    client_send(fd, preface, sizeof preface - 1);
    return fd;
}

/* Says that nothing more comes; what does, to the end of the connection. */
static void read_all(int fd, struct buf *out)
{
    char bytes[4096];
    ssize_t n;
    shutdown(fd, SHUT_WR);
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        buf_add(out, bytes, (size_t)n);
    }
    CHECK(n == 0 || errno == ECONNRESET); /* it did not take longer than anybody would wait */
    close(fd);
}

/* The one message that says SERVING. */
static void ask(void)
{
    struct buf out = {0};
    int fd = connected();
    client_send(fd, good, sizeof good - 1);
    read_all(fd, &out);
    CHECK(memmem(out.data, out.len, "\x00\x00\x00\x00\x02\x08\x01", 7) != NULL);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned round;
    struct buf out = {0};
    if (size < 1) {
        return 0;
    }
    if (edge == NULL) {
        start();
    }
    const char *bytes = (const char *)data + 1;
    size_t cut = (size - 1) * data[0] / UINT8_MAX;
    int fd = connected();
    client_send(fd, bytes, cut);
    client_send(fd, bytes + cut, size - 1 - cut);
    read_all(fd, &out);
    buf_free(&out);
    if (round++ % ROUNDS == 0) {
        ask();
    }
    return 0;
}
