/* `unseen kafka`: asks the running server how far its reading from Kafka is. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/calendar.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/server.h"

static const char help[] =
    "Shows how far the reading from Kafka is, by partition: the next offset to read, before which all is durable in\n"
    "the data folder, the end of the log, and how far behind that is.\n"
    "\n"
    "Usage: unseen kafka --status [--json] [OPTION ...]\n"
    "       unseen kafka --watch [OPTION ...]\n"
    "\n"
    "Asks the server. The partitions are those that the group has assigned to it now; of more than 1,024 it shows\n"
    "those that are furthest behind. What is not known yet is a dash, or -1 in JSON.\n"
    "\n"
    "Options:\n"
    "      --status           show it once\n"
    "      --watch            show it every 2 seconds, until it is interrupted\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that serves the\n"
    "                         data folder; its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account\n"
    "      --json             with --status: print JSON\n"
    "\n"
    "Exit code: 0 it reads, or waits for a partition; 1 it is paused or can't reach a broker, or it failed; 2 wrong\n"
    "usage.\n"
    "\n"
    "Examples:\n"
    "  unseen kafka --status\n"
    "  unseen kafka --status --json | jq '.partitions[] | select(.lag > 1000)'\n"
    "  unseen kafka --watch --to unix:/run/unseen/unseen.sock\n";

enum { WATCH_S = 2, NAME_TEXT = 300 };

static const char *known_text(int64_t n, char out[OUTPUT_TEXT])
{
    return n < 0 ? "-" : count_text((uint64_t)n, out);
}

static const char *lag_text(int64_t ms, char out[OUTPUT_TEXT])
{
    if (ms < 0) {
        return "-";
    }
    snprintf(out, OUTPUT_TEXT, "%lld.%lld s", (long long)(ms / 1000), (long long)(ms % 1000 / 100));
    return out;
}

static double rate_of(const struct reply *map)
{
    double rate = 0;
    const struct reply *field = reply_field(map, "rate");
    return field != NULL && reply_number(field, &rate) ? rate : 0;
}

/* It is a broker's word, or of a message. */
static void print_shown(const char *before, const char *text)
{
    struct buf line = {0};
    escape_id(&line, slice_str(text));
    printf("%s%.*s\n", before, (int)line.len, line.data);
    buf_free(&line);
}

static void print_partitions(const struct reply *list)
{
    char text[NAME_TEXT], count[OUTPUT_TEXT];
    struct table t;
    table_begin(&t, "topic|partition>|next>|end>|lag>|behind>|rate>|dead>");
    for (size_t i = 0; i < list->n; i++) {
        const struct reply *p = &list->items[i];
        reply_copy(p, "topic", text, sizeof text);
        table_cell(&t, "%s", text);
        table_cell(&t, "%lld", (long long)reply_signed(p, "partition"));
        table_cell(&t, "%s", known_text(reply_signed(p, "next"), count));
        table_cell(&t, "%s", known_text(reply_signed(p, "end"), count));
        table_cell(&t, "%s", known_text(reply_signed(p, "lag"), count));
        table_cell(&t, "%s", lag_text(reply_signed(p, "lag_ms"), count));
        table_cell(&t, "%.0f/s", rate_of(p));
        table_cell(&t, "%s", count_text(reply_count(p, "dead"), count));
    }
    table_end(&t, stdout);
    for (size_t i = 0; i < list->n; i++) {
        reply_copy(&list->items[i], "error", text, sizeof text);
        if (text[0] != '\0') {
            char before[NAME_TEXT + 32], topic[NAME_TEXT];
            reply_copy(&list->items[i], "topic", topic, sizeof topic);
            snprintf(before, sizeof before, "%s %lld: ", topic, (long long)reply_signed(&list->items[i], "partition"));
            print_shown(before, text);
        }
    }
}

static void print_totals(const struct reply *map)
{
    static const char *const rows[][2] = {
        {"messages", "messages read since the server's start"},
        {"plays", "plays"},
        {"deliveries", "deliveries"},
        {"nulls", "messages without a value, passed over"},
        {"too_old", "events past retention, passed over"},
        {"dead", "messages that could not be read"},
        {"dead_letters", "dead letters in the data folder"},
        {"rebalances", "rebalances of the group"},
    };
    char count[OUTPUT_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%16s  %s\n", count_text(reply_count(map, rows[i][0]), count), rows[i][1]);
    }
}

static void print_status(const struct reply *map)
{
    char state[32], cause[NAME_TEXT], before[NAME_TEXT], count[OUTPUT_TEXT], behind[OUTPUT_TEXT], when[TIME_TEXT];
    const struct reply *list = reply_field(map, "partitions");
    uint64_t assigned = reply_count(map, "assigned");
    reply_copy(map, "state", state, sizeof state);
    reply_copy(map, "cause", cause, sizeof cause);
    snprintf(before, sizeof before, "%s%s", state, cause[0] != '\0' ? ": " : "");
    print_shown(before, cause);
    reply_copy(map, "group", cause, sizeof cause);
    printf("group %s, %s partition%s, lag ", cause, count_text(assigned, count), plural(assigned));
    printf("%s, %s behind, %.0f a second\n", known_text(reply_signed(map, "lag"), count),
           lag_text(reply_signed(map, "lag_ms"), behind), rate_of(map));
    print_totals(map);
    int64_t at = reply_signed(map, "error_at");
    if (at != 0) {
        reply_copy(map, "error", cause, sizeof cause);
        snprintf(before, sizeof before, "last error %s: ", time_text(at, when));
        print_shown(before, cause);
    }
    if (list != NULL && list->n > 0) {
        putchar('\n');
        print_partitions(list);
        if (list->n < assigned) {
            printf("The others are less far behind.\n");
        }
    }
}

static void print_json(const struct reply *map)
{
    struct json j = {.out = stdout};
    const struct reply *list = reply_field(map, "partitions");
    json_open(&j, NULL, '{');
    reply_json(&j, map);
    json_open(&j, "partitions", '[');
    for (size_t i = 0; list != NULL && i < list->n; i++) {
        json_open(&j, NULL, '{');
        reply_json(&j, &list->items[i]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

/* 1: it doesn't read. */
static int show(struct client *client, bool json, bool watch, struct err *err)
{
    const struct slice word = slice_str("KAFKA");
    const struct timespec pause = {.tv_sec = WATCH_S};
    const struct reply *reply;
    int rc;
    while ((rc = server_ask_map(client, &word, 1, "state", &reply, err)) == 0) {
        char state[32];
        json ? print_json(reply) : print_status(reply);
        reply_copy(reply, "state", state, sizeof state);
        if (!watch) {
            return strcmp(state, "paused") == 0 || strcmp(state, "connecting") == 0;
        }
        putchar('\n');
        if (fflush(stdout) != 0) {
            return 1; /* its reader is gone; main() says so */
        }
        nanosleep(&pause, NULL);
    }
    return rc;
}

int cli_kafka(int argc, char **argv)
{
    bool status = false, watch = false, json = false;
    const char *to = NULL;
    const struct cli_flag flags[] = {
        {"status", &status, NULL}, {"watch", &watch, NULL}, {"json", &json, NULL},
        {"to", NULL, &to},         {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"kafka", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (status == watch) {
        return cli_misuse("kafka", "expected one of --status, --watch");
    }
    if (json && watch) {
        return cli_misuse("kafka", "--json goes with --status");
    }
    struct config cfg;
    struct client *client = NULL;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0 || server_connect(&cfg, to, &client, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = show(client, json, watch, &err);
    client_close(client);
    return rc < 0 ? cli_fail(&err) : rc > 0 ? EXIT_FAILED : EXIT_GOOD;
}
