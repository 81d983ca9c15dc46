#include <stdio.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/source.h"

static const char help[] =
    "Shows what is believed of the clock, and sets it right when the machine can't.\n\n"
    "Usage: unseen clock [--accept | --set-back] [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "Opens the data folder, or asks the server that serves it.\n\n"
    "While the clock is doubted nothing is swept or sealed, plays get the later time, and questions look back from\n"
    "the earlier one. Set the machine's clock right first, if it is wrong (timedatectl, chronyc): then it is believed\n"
    "by itself. Neither option makes a play unseen.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"

    "      --accept           the clock is right, although it is far ahead of the newest time, or behind the "
    "program's\n"
    "                         build at a first start\n"
    "      --set-back         the clock is right, and a later time was believed wrongly: forget that\n"
    "      --json             print JSON\n\n"
    "Exit code: 0 the clock is believed; 1 it is doubted, or it failed; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen clock\n"
    "  unseen clock --accept --data /var/lib/unseen\n";

enum { CLOCK_TEXT = 32 };

static const char *clock_text(int64_t ms, char out[CLOCK_TEXT])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL || strftime(out, CLOCK_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0) {
        snprintf(out, CLOCK_TEXT, "%lld ms", (long long)ms);
    }
    return out;
}

static void print_people(const struct store_clock *c)
{
    char text[CLOCK_TEXT];
    printf("clock     %s, %s\n", clock_text(c->wall_ms, text), c->doubted ? "doubted" : "believed");
    if (!c->known) {
        printf("plays     refused, until the time is known\n");
    } else if (c->doubted) {
        printf("believed  %s\n", clock_text(c->believed_ms, text));
    }
    if (c->known) {
        printf("newest    %s, the highest time that was ever believed\n", clock_text(c->newest_ms, text));
    }
    if (c->unsure_ms != 0) {
        printf("window    begins by %s, before which the clock leapt\n", clock_text(c->unsure_ms, text));
    }
    if (c->doubted) {
        printf("why       %s\n", c->reason);
    }
}

static void print_json(const struct store_clock *c)
{
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_text(&j, "state", store_clock_state_name(c));
    json_number(&j, "wall", c->wall_ms);
    json_number(&j, "believed", c->believed_ms);
    json_number(&j, "newest", c->newest_ms);
    json_number(&j, "held", c->unsure_ms);
    json_text(&j, "reason", c->reason);
    json_close(&j, '}');
}

int cli_clock(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false, accept = false, set_back = false;
    const struct cli_flag flags[] = {{"accept", &accept, NULL},
                                     {"set-back", &set_back, NULL},
                                     {"json", &json, NULL},
                                     {"to", NULL, &to},
                                     {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"clock", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (accept && set_back) {
        return cli_misuse("clock", "--accept or --set-back, not both");
    }
    struct config cfg;
    struct source *source;
    struct store_clock clock;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0 || source_open(&cfg, to, &source, &err) < 0) {
        return cli_fail(&err);
    }
    enum source_clock what = accept ? SOURCE_CLOCK_ACCEPT : set_back ? SOURCE_CLOCK_SET_BACK : SOURCE_CLOCK_LOOK;
    int rc = source_clock(source, what, &clock, &err);
    if (rc < 0) {
        cli_fail(&err);
    } else {
        json ? print_json(&clock) : print_people(&clock);
    }
    source_close(source);
    return rc < 0 || clock.doubted ? EXIT_FAILED : EXIT_GOOD;
}
