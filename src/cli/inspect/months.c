#include <stdio.h>
#include <stdlib.h>

#include "base/calendar.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/source.h"
#include "store/admin.h"

static const char help[] =
    "Lists the stored months, newest first. Plays that are still staged are in none of them.\n\n"
    "Usage: unseen months [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "Opens the data folder, or asks the server that serves it. With store = rados the months\n"
    "are as the nightly walks have found them, which take four weeks to come by everybody:\n"
    "how old that is stands below.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --json             print JSON, as GET /v1/months answers it\n\n"
    "Examples:\n"
    "  unseen months\n"
    "  unseen months --json --data /var/lib/unseen\n";

static void print_people(const struct store_month_info *months, int n, bool walked)
{
    char month[MONTH_TEXT], text[OUTPUT_TEXT];
    uint64_t plays = 0, bytes = 0;
    struct table t;
    if (n == 0) {
        puts(walked ? "no month is known yet: no nightly walk has found one" : "no month is stored yet");
        return;
    }
    table_begin(&t, "month|users>|plays>|size>|state");
    for (int i = 0; i < n; i++) {
        const struct store_month_info *m = &months[i];
        table_cell(&t, "%s", month_name(m->month, month));
        table_cell(&t, "%s", count_text(m->users, text));
        table_cell(&t, "%s", count_text(m->plays, text));
        table_cell(&t, "%s", size_text(m->bytes, text));
        if (m->state == STORE_MONTH_SEALING || m->state == STORE_MONTH_EXPIRING) {
            table_cell(&t, "%s, %.1f %% done", store_month_state_name(m->state), 100 * m->progress);
        } else {
            table_cell(&t, "%s", store_month_state_name(m->state));
        }
        plays += m->plays;
        bytes += m->bytes;
    }
    table_cell(&t, "all");
    table_cell(&t, "%s", "");
    table_cell(&t, "%s", count_text(plays, text));
    table_cell(&t, "%s", size_text(bytes, text));
    table_cell(&t, "%s", "");
    table_end(&t, stdout);
    if (months[0].found_ms > 0) {
        printf("found by nightly walks since %s, which have come by %.0f %% of the users so far\n",
               date_text(months[0].found_ms, text), 100 * months[0].coverage);
    }
}

static void print_json(const struct store_month_info *months, int n)
{
    char month[MONTH_TEXT];
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_open(&j, "months", '[');
    for (int i = 0; i < n; i++) {
        const struct store_month_info *m = &months[i];
        json_open(&j, NULL, '{');
        json_text(&j, "month", month_name(m->month, month));
        json_number(&j, "users", (int64_t)m->users);
        json_number(&j, "plays", (int64_t)m->plays);
        json_number(&j, "bytes", (int64_t)m->bytes);
        json_text(&j, "state", store_month_state_name(m->state));
        json_double(&j, "progress", m->progress);
        json_bool(&j, "in_window", m->in_window);
        if (m->found_ms > 0) {
            json_number(&j, "found", m->found_ms);
            json_double(&j, "coverage", m->coverage);
        }
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

int cli_months(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"months", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct config cfg;
    struct source *source;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0 || source_open(&cfg, to, &source, &err) < 0) {
        return cli_fail(&err);
    }
    struct store_month_info *months = calloc(SOURCE_MONTHS_MAX, sizeof *months);
    int n = months == NULL ? err_set(&err, ERR_NOMEM, "out of memory")
                           : source_months(source, months, SOURCE_MONTHS_MAX, &err);
    if (n < 0) {
        cli_fail(&err);
    } else {
        json ? print_json(months, n) : print_people(months, n, cfg.store == STORE_ENGINE_RADOS);
    }
    free(months);
    source_close(source);
    return n < 0 ? EXIT_FAILED : EXIT_GOOD;
}
