#include <stdio.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/server.h"
#include "dedup/dedup.h"

static const char help[] =
    "Lets what is known of one user be known of another one, too, as of a phone before its owner logged in.\n\n"
    "Usage: unseen merge FROM INTO [--forget] [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "Asks a running server (MERGE). An item that is hidden from either is hidden from INTO once this has\n"
    "ended. FROM stays as it is, and expires. When late events of FROM have come, merge again: it is a\n"
    "union. A folder that no server has open is merged by serving it.\n\n"
    "Options:\n"
    "      --forget           forget FROM in the same step, whatever fails; needs the role forget, too\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --json             print JSON, as POST /v1/users/{user}:merge answers it\n\n"
    "Exit code: 0 it was merged, or nothing is known of FROM; 1 it failed, and may be repeated.\n\n"
    "Examples:\n"
    "  unseen merge phone7 ann\n"
    "  unseen merge phone7 ann --forget --to 10.0.0.5:7979\n";

static int merge(struct client *client, struct slice from, struct slice into, bool forget, int64_t *known,
                 struct err *err)
{
    const struct slice words[] = {slice_str("MERGE"), from, into, slice_str("FORGET")};
    const struct reply *reply;
    int rc = client_call(client, words, forget ? 4 : 3, &reply, err);
    if (rc == 0 && reply->kind != REPLY_INTEGER) {
        rc = server_something_else(client_address(client), "MERGE", "a number", err);
    }
    *known = rc == 0 ? reply->integer : 0;
    return rc;
}

static void print_people(struct slice from, struct slice into, bool forget, bool known)
{
    struct buf line = {0};
    if (!known) {
        buf_addf(&line, "nothing is known of ");
    }
    escape_id(&line, from);
    if (known) {
        buf_addf(&line, " is merged into ");
        escape_id(&line, into);
        buf_addf(&line, "%s", forget ? ", and forgotten" : "");
    }
    printf("%.*s\n", (int)line.len, line.data);
    buf_free(&line);
}

int cli_merge(int argc, char **argv)
{
    const char *to = NULL;
    bool forget = false, json = false;
    const struct cli_flag flags[] = {
        {"forget", &forget, NULL}, {"json", &json, NULL}, {"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"merge", help, "FROM INTO", 2, 2, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct slice from = slice_str(options.words[0]), into = slice_str(options.words[1]);
    struct config cfg;
    struct client *client = NULL;
    struct err err;
    int64_t known;
    if (dedup_check_id("user", 0, from, &err) < 0 || dedup_check_id("user", 0, into, &err) < 0) {
        return cli_misuse("merge", "%s", err.text);
    }
    if (cli_options_config(&options, &cfg, &err) < 0 || server_connect(&cfg, to, &client, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = merge(client, from, into, forget, &known, &err);
    client_close(client);
    if (rc < 0) {
        return cli_fail(&err);
    }
    if (json) {
        printf("{\"merged\":%d}\n", (int)known);
    } else {
        print_people(from, into, forget, known > 0);
    }
    return EXIT_GOOD;
}
