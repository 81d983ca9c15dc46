#include <stdio.h>

#include "base/calendar.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/source.h"

static const char help[] =
    "Shows what is remembered of a user.\n\n"
    "Usage: unseen user USER [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "Opens the data folder, or asks the server that serves it.\n\n"
    "The error is the chance that a never-played item is hidden.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --json             print JSON, as GET /v1/users/USER answers it; null: the user was\n"
    "                         never heard of\n\n"
    "Examples:\n"
    "  unseen user u42\n"
    "  unseen user u42 --json --data /var/lib/unseen\n"
    "  unseen user -- -17     a user whose id begins with a dash\n";

static void print_people(struct slice user, const struct history *h)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], month[MONTH_TEXT];
    struct buf id = {0};
    uint64_t items = 0;
    for (size_t i = 0; i < h->n_months; i++) {
        items += h->months[i].items;
    }
    escape_id(&id, user);
    printf("user       %.*s\n", (int)id.len, id.data);
    buf_free(&id);
    printf("plays      %s in %zu month%s, and %s staged\n", count_text(items, a), h->n_months, plural(h->n_months),
           count_text(h->staged, b));
    printf("delivered  %s remembered\n", count_text(h->delivered, a));
    printf("error      %s, over the window\n", chance_text(h->error, a));
    if (h->n_months == 0) {
        return;
    }
    putchar('\n');
    struct table t;
    table_begin(&t, "month|plays>|size>|error>|expires from|state");
    for (size_t i = 0; i < h->n_months; i++) {
        const struct history_month *m = &h->months[i];
        table_cell(&t, "%s", month_name(m->month, month));
        table_cell(&t, "%s", count_text(m->items, a));
        table_cell(&t, "%s", size_text(m->bytes, a));
        table_cell(&t, "%s", chance_text(m->error, a));
        table_cell(&t, "%s", date_text(m->expires_ms, a));
        table_cell(&t, "%s", m->sealed ? "sealed" : "live");
    }
    table_end(&t, stdout);
}

static void print_json(struct slice user, const struct history *h)
{
    char month[MONTH_TEXT];
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_id(&j, "user", user);
    json_open(&j, "months", '[');
    for (size_t i = 0; i < h->n_months; i++) {
        const struct history_month *m = &h->months[i];
        json_open(&j, NULL, '{');
        json_text(&j, "month", month_name(m->month, month));
        json_number(&j, "items", (int64_t)m->items);
        json_number(&j, "bytes", (int64_t)m->bytes);
        json_double(&j, "error", m->error);
        json_bool(&j, "sealed", m->sealed);
        json_bool(&j, "in_window", m->in_window);
        json_number(&j, "expires", m->expires_ms);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_number(&j, "staged", (int64_t)h->staged);
    json_number(&j, "delivered", (int64_t)h->delivered);
    json_double(&j, "error", h->error);
    json_close(&j, '}');
}

static void print_unknown(struct slice user)
{
    struct buf id = {0};
    escape_id(&id, user);
    printf("%.*s: never heard of, so everything is unseen\n", (int)id.len, id.data);
    buf_free(&id);
}

int cli_user(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"user", help, "USER", 1, 1, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct slice user = slice_str(options.words[0]);
    struct config cfg;
    struct source *source;
    struct history history;
    struct err err;
    if (dedup_check_id("user", 0, user, &err) < 0) {
        return cli_misuse("user", "%s", err.text);
    }
    if (cli_options_config(&options, &cfg, &err) < 0 || source_open(&cfg, to, &source, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = source_history(source, user, &history, &err);
    if (rc < 0) {
        cli_fail(&err);
    } else if (rc == 0) {
        json ? (void)puts("null") : print_unknown(user);
    } else {
        json ? print_json(user, &history) : print_people(user, &history);
    }
    source_close(source);
    return rc < 0 ? EXIT_FAILED : EXIT_GOOD;
}
