#include <stdio.h>

#include "base/calendar.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/source.h"

static const char help[] =
    "Says why an item is hidden from a user: every place where it is seen, newest first.\n\n"
    "Usage: unseen why USER ITEM [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "Opens the data folder, or asks the server that serves it.\n\n"
    "A place is 'staged' (played, not yet in a month's filter), 'delivered' (among the last\n"
    "items sent), a month, or 'legacy' (in the old Redis of a user who is not migrated yet;\n"
    "only a running server asks there). A month's filter may err: its chance is shown.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --json             print JSON, as POST /v1/why answers it\n\n"
    "Examples:\n"
    "  unseen why u42 video:7\n"
    "  unseen why u42 video:7 --json\n";

static void print_people(struct slice user, struct slice item, const struct place *places, int n)
{
    char name[PLACE_TEXT], text[OUTPUT_TEXT];
    struct buf line = {0};
    escape_id(&line, item);
    buf_addf(&line, n > 0 ? " is hidden from " : " is unseen by ");
    escape_id(&line, user);
    printf("%.*s\n", (int)line.len, line.data);
    buf_free(&line);
    if (n == 0) {
        return;
    }
    putchar('\n');
    struct table t;
    table_begin(&t, "seen in|chance of error");
    for (int i = 0; i < n; i++) {
        struct buf cell = {0};
        escape_id(&cell, place_name(&places[i], name));
        table_cell(&t, "%.*s", (int)cell.len, cell.data);
        buf_free(&cell);
        table_cell(&t, "%s", places[i].error > 0 ? chance_text(places[i].error, text) : "none");
    }
    table_end(&t, stdout);
}

static void print_json(struct slice user, struct slice item, const struct place *places, int n)
{
    char name[PLACE_TEXT];
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_id(&j, "user", user);
    json_id(&j, "item", item);
    json_bool(&j, "seen", n > 0);
    json_open(&j, "places", '[');
    for (int i = 0; i < n; i++) {
        json_open(&j, NULL, '{');
        json_id(&j, "place", place_name(&places[i], name));
        json_double(&j, "error", places[i].error);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

int cli_why(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"why", help, "USER ITEM", 2, 2, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct slice user = slice_str(options.words[0]), item = slice_str(options.words[1]);
    struct config cfg;
    struct source *source;
    struct place places[PLACES_MAX];
    struct err err;
    if (dedup_check_id("user", 0, user, &err) < 0 || dedup_check_id("item", 0, item, &err) < 0) {
        return cli_misuse("why", "%s", err.text);
    }
    if (cli_options_config(&options, &cfg, &err) < 0 || source_open(&cfg, to, &source, &err) < 0) {
        return cli_fail(&err);
    }
    int n = source_why(source, user, item, places, &err);
    if (n < 0) {
        cli_fail(&err);
    } else {
        json ? print_json(user, item, places, n) : print_people(user, item, places, n);
    }
    source_close(source);
    return n < 0 ? EXIT_FAILED : EXIT_GOOD;
}
