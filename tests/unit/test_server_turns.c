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

#include "resp/command.h"
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
    size_t before = atomic_load(&session_overruns);
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
        if (atomic_load(&session_overruns) != before) {
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
    add_words(&named, "CLIENT SETNAME", 1, SESSION_NAME_MAX - 1);
    add_words(&named, "CLIENT SETINFO LIB-NAME", 1, SESSION_NAME_MAX - 1);
    add_words(&named, "CLIENT SETINFO LIB-VER", 1, SESSION_NAME_MAX - 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_requests_hold_up_nobody),
        cmocka_unit_test(replies_fit_what_was_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
