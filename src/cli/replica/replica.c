#include <stdio.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/replica/replica.h"

static const char help[] =
    "Tells who a node is among replicas, and how far they are.\n\n"
    "Usage: unseen replica --status [--server ADDRESS] [--json] [OPTION ...]\n\n"
    "Asks the server at ADDRESS (host:port, tls://host:port or unix:/path), or the one that serves the data folder.\n"
    "Of a primary it lists the replicas that it keeps its feed for, of a replica how far behind it is.\n\n"
    "Options:\n"
    "      --status           print role, term, and who follows whom\n"
    "      --server ADDRESS   the server to ask\n"
    "      --user NAME        the account there, which needs the role admin; default: that of $UNSEEN_USER\n"
    "      --json             print JSON\n\n"
    "Exit code: 0; 1 failed; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen replica --status\n"
    "  unseen replica --status --server 10.0.0.7:7979 --json\n";

int cli_replica(int argc, char **argv)
{
    bool json = false, status = false;
    const char *server = NULL, *user = NULL;
    const struct cli_flag flags[] = {{"status", &status, NULL},
                                     {"server", NULL, &server},
                                     {"user", NULL, &user},
                                     {"json", &json, NULL},
                                     {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"replica", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    static struct config cfg;
    struct err err;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (!status) {
        return cli_misuse("replica", "expected --status");
    }
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    return replica_status(&cfg, server, user, json);
}
