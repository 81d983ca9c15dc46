/* `unseen front`: asks the running server how its front is, and has it compared or filled again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/front/front_pass.h"
#include "cli/lib/options.h"

static const char help[] =
    "Tells how the Redis is that stands in front of the disk, what waits for it, and how it compared last; has all\n"
    "users compared with what stands there, or brought in again.\n"
    "\n"
    "Usage: unseen front --status [--json] [OPTION ...]\n"
    "       unseen front --reconcile | --rebuild [--no-wait] [OPTION ...]\n"
    "\n"
    "Asks the server, whose account needs the role watch for --status, and admin for the others. Those run in the\n"
    "server, at front_users_rate; to interrupt this program doesn't end them. What differs is named and sent again at\n"
    "once. While users are brought in again the front answers nothing.\n"
    "\n"
    "Options:\n"
    "      --status           show it once\n"
    "      --reconcile        compare all users, and repair what differs\n"
    "      --rebuild          remove what stands there, and bring all users in; also ends it that another server has\n"
    "                         taken the front over: that one is shut out then\n"
    "      --no-wait          don't wait until that is done\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that serves the\n"
    "                         data folder; its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account\n"
    "      --json             with --status: print JSON\n"
    "\n"
    "Exit code: 0 it is full, and in step or sending, and no user differed; 1 it waits, is filled, fenced or off,\n"
    "users differed, or it failed; 2 wrong usage.\n"
    "\n"
    "Examples:\n"
    "  unseen front --status\n"
    "  unseen front --status --json | jq .differences\n"
    "  unseen front --reconcile --to unix:/run/unseen/unseen.sock\n"
    "  unseen front --rebuild --no-wait\n";

static void print_sent(const struct reply *map)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT];
    uint64_t events = reply_count(map, "events"), states = reply_count(map, "states");
    uint64_t giants = reply_count(map, "giants"), unread = reply_count(map, "unread");
    uint64_t outages = reply_count(map, "outages"), rebuilds = reply_count(map, "rebuilds");
    printf("sent      %s event%s, %s state%s of users, ", count_text(events, a), plural(events), count_text(states, b),
           plural(states));
    printf("%s\n", size_text(reply_count(map, "bytes"), c));
    if (giants + unread > 0) {
        printf("left out  %s state%s too large, %s that could not be read\n", count_text(giants, a), plural(giants),
               count_text(unread, b));
    }
    if (outages + rebuilds > 0) {
        printf("outages   %s; all users were brought in %s time%s\n", count_text(outages, a), count_text(rebuilds, b),
               plural(rebuilds));
    }
}

static void print_waiting(const struct reply *map)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], when[TIME_TEXT];
    uint64_t waiting = reply_count(map, "waiting"), dirty = reply_count(map, "dirty");
    int64_t lost = reply_signed(map, "lost_since");
    printf("waiting   %s event%s, %s", count_text(waiting, a), plural(waiting),
           size_text(reply_count(map, "waiting_bytes"), b));
    printf(", %.1f s behind; ", (double)reply_signed(map, "behind_ms") / 1000);
    printf("%s user%s to be sent again\n", count_text(dirty, a), plural(dirty));
    if (lost != 0) {
        printf("lost      since %s: %s events were left out, all users are brought in again\n", time_text(lost, when),
               count_text(reply_count(map, "left_out"), a));
    }
}

static void print_compared(const struct reply *map)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], when[TIME_TEXT];
    uint64_t compared = reply_count(map, "compared"), differences = reply_count(map, "differences");
    int64_t at = reply_signed(map, "reconciled_at");
    printf("compared  %s user%s since the start, %s differed", count_text(compared, a), plural(compared),
           count_text(differences, b));
    printf("; all users %s%s\n", at != 0 ? "at " : "not yet", at != 0 ? time_text(at, when) : "");
    if (reply_count(map, "comparing") != 0) {
        printf("          all users are being compared\n");
    }
    front_print_named(map);
}

static void print_people(const struct reply *map)
{
    char text[FRONT_TEXT_MAX], when[TIME_TEXT], a[OUTPUT_TEXT];
    int64_t since = reply_signed(map, "since");
    bool full = reply_count(map, "full") != 0;
    reply_copy(map, "state", text, sizeof text);
    printf("front     %s, %s%s%s\n", text, full ? "full" : "not full", since != 0 ? ", since " : "",
           since != 0 ? time_text(since, when) : "");
    reply_copy(map, "cause", text, sizeof text);
    if (text[0] != '\0') {
        front_print("cause     ", slice_str(text));
    }
    reply_copy(map, "redis", text, sizeof text);
    front_print("redis     ", slice_str(text[0] != '\0' ? text : "not reached yet"));
    printf("has       all up to event %" PRIu64 ", epoch %" PRIu64 "\n", reply_count(map, "to"),
           reply_count(map, "epoch"));
    if (!full) {
        printf("filled    %s users so far\n", count_text(reply_count(map, "filled"), a));
    }
    print_waiting(map);
    print_sent(map);
    print_compared(map);
}

static void print_json(const struct reply *map)
{
    struct json j = {.out = stdout};
    const struct reply *named = reply_field(map, "named");
    json_open(&j, NULL, '{');
    reply_json(&j, map);
    json_open(&j, "named", '[');
    for (size_t i = 0; named != NULL && i < named->n; i++) {
        json_id(&j, NULL, named->items[i].text);
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

/* 1: it can't be asked. */
static int show(struct client *client, bool json, struct err *err)
{
    const struct reply *map;
    char state[FRONT_TEXT_MAX];
    int rc = front_ask(client, &map, err);
    if (rc < 0) {
        return rc;
    }
    json ? print_json(map) : print_people(map);
    reply_copy(map, "state", state, sizeof state);
    bool well = strcmp(state, "in step") == 0 || strcmp(state, "sending") == 0;
    return !well || reply_count(map, "full") == 0;
}

int cli_front(int argc, char **argv)
{
    bool status = false, reconcile = false, rebuild = false, no_wait = false, json = false;
    const char *to = NULL;
    const struct cli_flag flags[] = {
        {"status", &status, NULL},   {"reconcile", &reconcile, NULL}, {"rebuild", &rebuild, NULL},
        {"no-wait", &no_wait, NULL}, {"json", &json, NULL},           {"to", NULL, &to},
        {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"front", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (status + reconcile + rebuild != 1) {
        return cli_misuse("front", "expected one of --status, --reconcile, --rebuild");
    }
    if ((json && !status) || (no_wait && status)) {
        return cli_misuse("front", json ? "--json goes with --status" : "--no-wait goes with --reconcile or --rebuild");
    }
    struct config cfg;
    struct client *client = NULL;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0 || server_connect(&cfg, to, &client, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = status      ? show(client, json, &err)
             : reconcile ? front_reconcile_all(client, !no_wait, &err)
                         : front_rebuild_all(client, !no_wait, &err);
    client_close(client);
    return rc < 0 ? cli_fail(&err) : rc > 0 ? EXIT_FAILED : EXIT_GOOD;
}
