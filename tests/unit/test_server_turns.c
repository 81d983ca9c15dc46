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

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "resp/command.h"
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
#include "tests/lib/server_fixture.h"

static void begin(struct fixture *f)
{
    fixture_init(f);
    f->cfg.workers = 1;
    f->cfg.request_memory = 16 * 1024 * 1024;
    snprintf(f->cfg.listen, sizeof f->cfg.listen, "127.0.0.1:0");
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
    long long before = client_info(asker, "stats", "total_commands_processed");
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
        run = client_info(asker, "stats", "total_commands_processed") - before;
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

/* --- no reply is longer than what was reserved for it --- */

static void add_words(struct buf *out, const char *first, int times, size_t len)
{
    buf_addf(out, "%s", first);
    for (int i = 0; i < times; i++) {
        buf_addf(out, " ");
        for (size_t k = 0; k < len; k++) {
            buf_addf(out, "%c", 'a' + (char)(i % 26));
        }
    }
    buf_addf(out, "\r\n");
}

/* The same as an array of bulk strings. */
static void as_array(struct buf *out, const char *line)
{
    char *copy = strdup(line), *rest = copy;
    int n = 0;
    for (const char *at = line; *at != '\0'; at++) {
        n += *at == ' ' || *at == '\r';
    }
    buf_addf(out, "*%d\r\n", n);
    for (char *word = strtok_r(copy, " \r\n", &rest); word != NULL; word = strtok_r(NULL, " \r\n", &rest)) {
        buf_addf(out, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    free(copy);
}

static void run_within_bounds(const struct fixture *f, const char *line)
{
    size_t before = atomic_load(&resp_client_overruns);
    for (int form = 0; form < 4; form++) {
        struct buf text = {0}, got = {0};
        buf_addf(&text, "%s", form & 2 ? "HELLO 3\r\n" : "");
        if (form & 1) {
            as_array(&text, line);
        } else {
            buf_addf(&text, "%s", line);
        }
        buf_add(&text, "", 1);
        client_ask(f, text.data, &got);
        assert_true(got.len > 0);
        buf_free(&text);
        buf_free(&got);
        if (atomic_load(&resp_client_overruns) != before) {
            fail_msg("form %d of %.100s: the reply is longer than what was reserved", form, line);
        }
    }
}

/* Arguments that make the reply as long as it gets; NULL: none are needed. A command that is not here is run with words
 * of several sizes. */
static const char *const longest[][2] = {
    {"client|list", ""},
    {"command", ""},
    {"command|docs", ""},
    {"command|info", ""},
    {"config|get", "*"},
    {"slowlog|get", "-1"},
    {"info", "everything"},
    {"info", ""},
    {"ring", ""},
    {"months", ""},
    {"history", "u"},
    {"hello", "3"},
    {"why", "u i"},
    {"legacy|problems", "9"},
    {"feed", ""},
    {"legacy|mirror", ""},
    {"legacy|status", ""},
    {"filter", "u REPLY INDEXES ITEMS a b c d e f"},
    {"filter", "u REPLY BITMAP ITEMS a b c d e f"},
};

static void run_row(const struct fixture *f, const struct command *parent, const struct command *cmd)
{
    char name[COMMAND_NAME], line[256];
    command_full_name(parent, cmd, name);
    for (char *bar = strchr(name, '|'); bar != NULL; bar = NULL) {
        *bar = ' ';
    }
    if ((cmd->flags & CMD_TEST) != 0 || strncmp(name, "clock", 5) == 0) {
        return; /* the first move the test's clock; the fake store has none of its own */
    }
    static const size_t lens[] = {1, 30, 4000};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        for (int n = 0; n <= 10; n = n < 4 ? n + 1 : n + 6) {
            struct buf text = {0};
            add_words(&text, name, n, lens[i]);
            buf_add(&text, "", 1);
            run_within_bounds(f, text.data);
            buf_free(&text);
        }
    }
    command_full_name(parent, cmd, name);
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        if (strcmp(longest[i][0], name) == 0) {
            for (char *bar = strchr(name, '|'); bar != NULL; bar = NULL) {
                *bar = ' ';
            }
            snprintf(line, sizeof line, "%s%s%s\r\n", name, longest[i][1][0] != '\0' ? " " : "", longest[i][1]);
            run_within_bounds(f, line);
            command_full_name(parent, cmd, name);
        }
    }
}

static void replies_fit_what_was_reserved(void **state)
{
    (void)state;
    struct fixture f;
    struct buf named = {0};
    begin(&f);
    f.cfg.request_memory = 256 * 1024 * 1024; /* as much as the rows say, that is */
    f.cfg.slowlog_ms = 0;
    snprintf(f.cfg.backup_root, sizeof f.cfg.backup_root, "%s/none", f.folder);
    fixture_start(&f);
    fixture_attach(&f);
    int others[40];
    add_words(&named, "CLIENT SETNAME", 1, CLIENT_NAME_MAX - 1);
    add_words(&named, "CLIENT SETINFO LIB-NAME", 1, CLIENT_NAME_MAX - 1);
    add_words(&named, "CLIENT SETINFO LIB-VER", 1, CLIENT_NAME_MAX - 1);
    for (int i = 0; i < 40; i++) {
        others[i] = client_open(&f);
        client_send(others[i], named.data, named.len);
        client_expect(others[i], "+OK\r\n+OK\r\n+OK\r\n");
    }
    for (const struct command *cmd = command_table; cmd->name != NULL; cmd++) {
        run_row(&f, NULL, cmd);
        for (const struct command *sub = cmd->subs; sub != NULL && sub->name != NULL; sub++) {
            run_row(&f, cmd, sub);
        }
        if (cmd->subs != NULL) {
            char line[64];
            snprintf(line, sizeof line, "%s HELP\r\n", cmd->name);
            run_within_bounds(&f, line);
        }
    }
    for (int i = 0; i < 40; i++) {
        close(others[i]);
    }
    buf_free(&named);
    fixture_stop(&f);
    fixture_end(&f);
}

/* --- the same replies, however requests are cut --- */

/* A reader of its own on the other end would need a thread: sends what fits, and reads what is there. */
static void talk(int fd, const struct buf *text, uint64_t *r, size_t piece_max, int pacer, struct buf *got)
{
    size_t sent = 0;
    bool shut = false, ended = false;
    while (!ended) {
        size_t piece = 1 + random_below(r, piece_max);
        piece = piece < text->len - sent ? piece : text->len - sent;
        if (piece > 0) {
            ssize_t n = send(fd, text->data + sent, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        } else if (!shut) {
            shut = true;
            shutdown(fd, SHUT_WR);
        }
        if (random_below(r, 3) == 0 || shut) { /* the server has seen it by then */
            client_say(pacer, "PING\r\n");
            client_expect(pacer, "+PONG\r\n");
        }
        for (;;) {
            assert_int_equal(buf_reserve(got, 4096), 0);
            ssize_t n = recv(fd, got->data + got->len, 4096, MSG_DONTWAIT);
            if (n <= 0) {
                ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
                break;
            }
            got->len += (size_t)n;
        }
    }
}

/* A request, and the reply that a plain reading of it gives. */
static void add_random(uint64_t *r, struct buf *text, struct buf *want)
{
    static const size_t sizes[] = {0, 1, 100, 4096, 16383, 16384, 16385, 65535, 65536, 65537, 150000};
    size_t len = random_below(r, 3) > 0 ? random_below(r, 40) : sizes[random_below(r, sizeof sizes / sizeof *sizes)];
    switch (random_below(r, 5)) {
    case 0:
        buf_addf(text, "PING\r\n");
        buf_addf(want, "+PONG\r\n");
        break;
    case 1:
        buf_addf(text, "\r\n*0\r\nECHO w%zu\n", len);
        buf_addf(want, "$%d\r\nw%zu\r\n", 1 + snprintf(NULL, 0, "%zu", len), len);
        break;
    case 2:
        buf_addf(text, "*3\r\n$6\r\nPLAYED\r\n$1\r\nu\r\n$1\r\nx\r\n");
        buf_addf(want, ":1\r\n");
        break;
    default:
        buf_addf(text, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", len);
        buf_addf(want, "$%zu\r\n", len);
        for (size_t i = 0; i < len; i++) {
            char byte = (char)random_below(r, 256);
            buf_add(text, &byte, 1);
            buf_add(want, &byte, 1);
        }
        buf_addf(text, "\r\n");
        buf_addf(want, "\r\n");
        break;
    }
}

static void cuts_change_nothing(void **state)
{
    (void)state;
    enum { ROUNDS = 120, HOLDERS = 9 };
    for (int pass = 0; pass < 4; pass++) { /* memory: plenty, short; a password: none, one */
        bool is_short = pass & 1, secret = pass & 2;
        struct fixture f;
        int holders[HOLDERS], n_holders = 0;
        begin(&f);
        snprintf(f.cfg.requirepass, sizeof f.cfg.requirepass, "%s", secret ? "secret" : "");
        fixture_start(&f);
        fixture_attach(&f);
        int pacer = client_open(&f);
        if (secret) {
            client_say(pacer, "AUTH secret\r\n");
            client_expect(pacer, "+OK\r\n");
        }
        for (int i = 0; is_short && i < HOLDERS; i++) { /* half a request each, which is never ended */
            struct buf half = {0};
            buf_addf(&half, "%s*2\r\n$4\r\nECHO\r\n$1900000\r\n", secret ? "AUTH secret\r\n" : "");
            assert_int_equal(buf_reserve(&half, 1000 * 1000), 0);
            memset(half.data + half.len, 'h', 1000 * 1000);
            half.len += 1000 * 1000;
            int fd = holders[n_holders++] = client_open(&f);
            for (size_t sent = 0, tries = 0; sent < half.len && tries < 100; tries++) {
                ssize_t n = send(fd, half.data + sent, half.len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
                sent += n > 0 ? (size_t)n : 0;
                client_say(pacer, "PING\r\n");
                client_expect(pacer, "+PONG\r\n");
            }
            buf_free(&half);
        }
        for (uint64_t round = 1; round <= (uint64_t)test_rounds(ROUNDS); round++) {
            uint64_t r = (uint64_t)pass * 1000 + round;
            struct buf text = {0}, want = {0}, got = {0};
            buf_addf(&text, "%s", secret ? "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n" : "");
            buf_addf(&want, "%s", secret ? "+OK\r\n" : "");
            for (size_t n = 1 + random_below(&r, 30); n > 0; n--) {
                add_random(&r, &text, &want);
            }
            size_t whole = want.len;
            if (random_below(&r, 3) == 0) { /* and half a one, which is not answered */
                buf_addf(&text, "*2\r\n$4\r\nECHO\r\n$70000\r\nhalf");
            }
            static const size_t pieces[] = {7, 1000, 20000, 65536, 300000};
            int fd = random_below(&r, 2) == 0 ? client_open(&f) : client_open_tcp(&f);
            size_t piece = pieces[random_below(&r, text.len > 20000 ? 5 : 2) % 5];
            piece = text.len > 20000 && piece < 1000 ? 1000 : piece;
            talk(fd, &text, &r, piece, pacer, &got);
            if (got.len != whole || memcmp(got.data, want.data, whole) != 0) {
                fail_msg("pass %d, round %d: %zu bytes of replies, expected %zu", pass, (int)round, got.len, whole);
            }
            close(fd);
            buf_free(&text);
            buf_free(&want);
            buf_free(&got);
        }
        for (int i = 0; i < n_holders; i++) {
            close(holders[i]);
        }
        close(pacer);
        fixture_stop(&f);
        fixture_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_requests_hold_up_nobody),
        cmocka_unit_test(replies_fit_what_was_reserved),
        cmocka_unit_test(cuts_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
