#include <stdio.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/server.h"

static const char help[] =
    "Asks the server of the data folder whether it answers: for the health check of a container. With store = rados,\n"
    "the node that listens where the configuration says.\n\n"
    "Usage: unseen ping [--to ADDRESS] [OPTION ...]\n\n"
    "Its exit code is 0 when the server answers. Else it is 1, and one line says why: no server\n"
    "has the folder, the server still reads it, or it does not answer. Where there are accounts and\n"
    "no requirepass, an account must be in $UNSEEN_USER and $UNSEEN_PASSWORD; any role will do.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n\n"
    "Examples:\n"
    "  unseen ping\n"
    "  unseen ping --data /srv/unseen\n";

static int ping(const struct config *cfg, const char *to, char *address, size_t size, struct err *err)
{
    int rc = 0;
    if (to != NULL) {
        snprintf(address, size, "%s", to);
    } else {
        rc = server_address_of(cfg, address, size, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (address[0] == '\0') {
        return err_set(err, ERR_NOTFOUND, "%s: no server is ready: none runs, or it is still starting", cfg->data);
    }
    struct client *client;
    struct slice word = slice_str("PING");
    const char *password;
    if ((rc = client_prepare(cfg, &password, err)) < 0 || (rc = client_connect(address, password, &client, err)) < 0) {
        return rc;
    }
    rc = server_ask_text(client, &word, 1, "PONG", err);
    client_close(client);
    return rc;
}

int cli_ping(int argc, char **argv)
{
    const char *to = NULL;
    const struct cli_flag flags[] = {{"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"ping", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    char address[CONFIG_TEXT + 16];
    struct config cfg;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0 || ping(&cfg, to, address, sizeof address, &err) < 0) {
        return cli_fail(&err);
    }
    printf("%s answers\n", address);
    return EXIT_GOOD;
}
