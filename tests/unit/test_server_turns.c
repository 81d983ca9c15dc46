/* Who gets the next turn: one that has much to ask holds up nobody; and whatever pieces requests come in, and whether
 * memory is short or not, the replies are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/socket.h>
#include <unistd.h>

#include "server_fixture.h"

static void begin(struct fixture *f)
{
    fixture_init(f);
    f->cfg.workers = 1;
    f->cfg.request_memory = 16 * 1024 * 1024;
    snprintf(f->cfg.listen, sizeof f->cfg.listen, "127.0.0.1:0");
}

/* INFO's number. */
static long long info(int fd, const char *section, const char *name)
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

/* A crowd has half a million requests under way. Who then asks a few times is answered long before they are. */
static void many_requests_hold_up_nobody(void **state)
{
    (void)state;
    enum { CROWD = 50, EACH = 10 * 1000 };
    struct fixture f;
    struct buf pings = {0};
    int fd[CROWD];
    begin(&f);
    fixture_start(&f);
    fixture_attach(&f);
    int asker = client_open_tcp(&f);
    long long before = info(asker, "stats", "total_commands_processed");
    for (int i = 0; i < EACH; i++) {
        buf_addf(&pings, "PING\r\n");
    }
    for (int i = 0; i < CROWD; i++) {
        fd[i] = client_open(&f);
        client_say(fd[i], "PING\r\n");
        client_expect(fd[i], "+PONG\r\n");
    }
    for (int i = 0; i < CROWD; i++) {
        client_send(fd[i], pings.data, pings.len);
    }
    long long run = 0;
    for (int i = 0; i < 3; i++) {
        run = info(asker, "stats", "total_commands_processed") - before;
    }
    if (run > CROWD * EACH / 3) {
        fail_msg("%lld requests of others were run first", run);
    }
    for (int i = 0; i < CROWD; i++) {
        struct buf got = {0};
        shutdown(fd[i], SHUT_WR);
        client_read_all(fd[i], &got);
        assert_int_equal(got.len, EACH * strlen("+PONG\r\n"));
        close(fd[i]);
        buf_free(&got);
    }
    close(asker);
    buf_free(&pings);
    fixture_stop(&f);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_requests_hold_up_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
