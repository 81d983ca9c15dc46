/* `unseen promote`: makes a replica the primary; over the server that serves the folder, else on the folder itself. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/server.h"
#include "replica/change.h"
#include "replica/clone_mark.h"
#include "store/factory.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] =
    "Makes a replica the primary, which takes the writes.\n\n"
    "Usage: unseen promote [--data DIR | --to ADDRESS] [--force] [--json] [OPTION ...]\n\n"
    "Asks the server that serves the data folder. If the old primary answers, it takes no more writes from then on, "
    "and\n"
    "all that it has is here before the new one takes any: nothing is lost. If it says nothing for half a second it "
    "is\n"
    "taken for dead. A replica that knows that it lacks something refuses then, unless it is forced.\n\n"
    "A folder that no server has open is changed itself, and no other node is asked: stop the old primary before. When "
    "the\n"
    "new one starts, it tells the old one and the other replicas. The folder of an old primary that was replaced is\n"
    "changed with --force alone.\n\n"
    "Bring the old primary back with unseen rejoin: it takes no writes once it has heard of the new one.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that serves the\n"
    "                         data folder; its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account, which needs the role admin\n"
    "      --force            also without what the old primary alone has\n"
    "      --json             print JSON\n\n"
    "Exit code: 0 it is the primary; 1 it is not; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen promote --data /var/lib/unseen\n"
    "  unseen promote --to replica1:7979\n"
    "  unseen promote --to replica1:7979 --force\n";

struct promoted {
    int64_t term, waited_ms;
    bool lossless, offline;
    char was[NODE_ADDRESS_TEXT], note[320];
};

static int ask_server(struct client *client, bool force, struct promoted *p, struct err *err)
{
    const struct slice words[] = {slice_str("REPLICA"), slice_str("PROMOTE"), slice_str("FORCE")};
    const struct reply *map;
    int rc = server_ask_map(client, words, force ? 3 : 2, "term", &map, err);
    if (rc == 0) {
        p->term = reply_signed(map, "term");
        p->waited_ms = reply_signed(map, "waited_ms");
        p->lossless = reply_signed(map, "lossless") != 0;
        reply_copy(map, "was", p->was, sizeof p->was);
        reply_copy(map, "note", p->note, sizeof p->note);
    }
    return rc;
}

static int change_folder(const struct config *cfg, bool force, struct promoted *p, struct err *err)
{
    struct store *store;
    struct store_node now;
    int rc = cli_options_has_folder(cfg, err);
    if (rc == 0 && !sqlite_store_holds_data(cfg->data)) {
        return err_set(err, ERR_NOTFOUND, "%s holds no data of Unseen", cfg->data);
    }
    if (rc == 0) {
        rc = store_open(cfg, &store, err);
    }
    if (rc == 0) {
        rc = clone_mark_check(store, cfg->data, err);
        rc = rc < 0 ? rc : change_promote_folder(store, cfg->replica_of, force, &now, p->was, err);
        store->ops->close(store);
    }
    if (rc == 0) {
        p->term = (int64_t)now.term;
        p->offline = true;
        snprintf(p->note, sizeof p->note, "the old primary was not asked");
    }
    return rc;
}

static void print_people(const struct promoted *p)
{
    printf("primary of term %" PRId64 "%s%s\n", p->term, p->was[0] != '\0' ? ", after " : "", p->was);
    if (p->lossless) {
        printf("nothing is lost: all that the old primary had is here (%" PRId64 " ms)\n", p->waited_ms);
    } else if (p->note[0] != '\0') {
        printf("%s\n", p->note);
    }
}

static void print_json(const struct promoted *p)
{
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_number(&j, "term", p->term);
    json_text(&j, "was", p->was);
    json_number(&j, "waited_ms", p->waited_ms);
    json_number(&j, "lossless", p->lossless);
    json_number(&j, "offline", p->offline);
    json_text(&j, "note", p->note);
    json_close(&j, '}');
}

int cli_promote(int argc, char **argv)
{
    bool json = false, force = false;
    const char *to = NULL;
    const struct cli_flag flags[] = {
        {"to", NULL, &to}, {"force", &force, NULL}, {"json", &json, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"promote", help, "no argument", 0, 0, flags, false};
    static struct config cfg; /* the client keeps what it needs of it */
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct client *client = NULL;
    struct promoted promoted = {0};
    struct err err = {0};
    int rc = cli_options_config(&options, &cfg, &err);
    rc = rc < 0 || to != NULL ? rc : cli_options_has_folder(&cfg, &err);
    if (rc == 0) {
        rc = server_connect(&cfg, to, &client, &err);
        rc = rc == 0                            ? ask_server(client, force, &promoted, &err)
             : rc == ERR_NOTFOUND && to == NULL ? change_folder(&cfg, force, &promoted, &err)
                                                : rc;
    }
    client_close(client);
    if (rc < 0) {
        return cli_fail(&err);
    }
    json ? print_json(&promoted) : print_people(&promoted);
    return EXIT_GOOD;
}
