#include <stdio.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/replica/replica.h"

static const char help[] =
    "Tells who a node is among replicas, and how far they are; or whether two nodes remember the same.\n\n"
    "Usage: unseen replica --status [--to ADDRESS] [--json] [OPTION ...]\n"
    "       unseen replica --verify --from ADDRESS --to ADDRESS [--json] [OPTION ...]\n\n"
    "--status asks the server at ADDRESS (host:port, tls://host:port or unix:/path), or the one that serves the data\n"
    "folder. Of a primary it lists the replicas that it keeps its feed for, of a replica how far behind it is.\n\n"
    "--verify has both nodes flush what is staged, and compares all users page by page: their months, last "
    "deliveries,\n"
    "and what was un-seen. Both may be in service: users that differ are looked at again once the replica has come\n"
    "level. All that is remembered goes over the wire, compressed as it is stored.\n\n"
    "Options:\n"
    "      --status           print role, term, and who follows whom\n"
    "      --verify           compare the users of two nodes\n"
    "      --from ADDRESS     one of them, as a rule the primary\n"
    "      --to ADDRESS       the server to ask, or the other one\n"
    "      --user NAME        the account there, with the roles admin and watch; default: that of $UNSEEN_USER\n"
    "      --json             print JSON\n\n"
    "Exit code: 0; 1 failed, or users differ; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen replica --status\n"
    "  unseen replica --status --to 10.0.0.7:7979 --json\n"
    "  unseen replica --verify --from 10.0.0.1:7979 --to 10.0.0.2:7979\n";

int cli_replica(int argc, char **argv)
{
    bool json = false, status = false, verify = false;
    const char *from = NULL, *to = NULL, *user = NULL;
    const struct cli_flag flags[] = {{"status", &status, NULL}, {"verify", &verify, NULL}, {"from", NULL, &from},
                                     {"to", NULL, &to},         {"user", NULL, &user},     {"json", &json, NULL},
                                     {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"replica", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    static struct config cfg;
    struct err err;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (status == verify) {
        return cli_misuse("replica", "expected --status, or --verify");
    }
    if (verify && (from == NULL || to == NULL)) {
        return cli_misuse("replica", "--verify needs --from ADDRESS and --to ADDRESS");
    }
    if (status && from != NULL) {
        return cli_misuse("replica", "--from belongs to --verify");
    }
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    return verify ? replica_verify(&cfg, from, to, user, json) : replica_status(&cfg, to, user, json);
}
