/* `unseen migrate`: asks the running server to take over users from another Redis, and shows its progress. */
#include "cli/migrate/migrate.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"

static const char help[] =
    "Brings users over from another Redis, while the service runs.\n"
    "\n"
    "Usage: unseen migrate --keys FILE | --scan | --status | --watch | --problems | --pause | --resume | --again\n"
    "                      | --verify [N] | --mirror-reset\n"
    "\n"
    "The address of the old Redis and the form of its keys stand in the section [legacy] of the server's\n"
    "configuration. Users are only noted here. The server reads them in an order of its own; with read_through, those\n"
    "who are asked about come first. It merges their plays and deliveries with what it has, and marks them once all\n"
    "of it is durable. It goes on after a restart, and waits while the old Redis is away. A user who is noted twice "
    "is\n"
    "read once. docs/migrate.md explains it step by step.\n"
    "\n"
    "For --scan and --verify this command connects to the old Redis itself, with legacy_password (and\n"
    "legacy_sentinel_password) of its own configuration. N is how many users --verify draws at random; without it, it "
    "takes all of the old Redis.\n"
    "\n"
    "Options:\n"
    "      --keys FILE        note the users of a file, plain or packed with gzip or zstd; - is standard input.\n"
    "                         A line is a key of the old Redis, or else a user's id\n"
    "      --forgotten        with --keys: note users of the file even if they were forgotten here; otherwise those\n"
    "                         are skipped and counted\n"
    "      --scan             note the users of all keys that the old Redis has\n"
    "      --status           show how far it is\n"
    "      --watch            follow it until none waits, with a progress bar on a terminal; then as --status\n"
    "      --problems         list the keys that could not be taken over, in whole or in part, and why\n"
    "      --pause            pause, also over restarts of the server\n"
    "      --resume           end the pause\n"
    "      --again            read all noted users again, except those who were forgotten\n"
    "      --verify           compare the plays in the old Redis with what the server answers, and list those\n"
    "                         within the window that are not seen\n"
    "      --mirror-reset     accept what the mirror has left out; while it is off, drop what still waits for the old\n"
    "                         Redis\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that serves the\n"
    "                         data folder; its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account\n"
    "      --json             print JSON\n"
    "      --quiet            show no progress\n"
    "\n"
    "Exit code: 0 good; 1 failed, or --verify found plays that are not seen; 2 wrong usage.\n"
    "\n"
    "Examples:\n"
    "  redis-cli --scan --pattern 'played:*' | unseen migrate --keys -\n"
    "  unseen migrate --scan -c /etc/unseen/unseen.conf\n"
    "  unseen migrate --watch\n"
    "  unseen migrate --verify 1000 --json | jq .missing\n";

/* --- the server --- */

/* The server's own [legacy] holds, whatever this configuration says; it doesn't tell the password. */
static int ask_config(struct migrate *m, struct err *err)
{
    const struct slice words[] = {slice_str("CONFIG"), slice_str("GET"), slice_str("legacy_*"), slice_str("window")};
    const struct reply *reply;
    int rc = client_call(m->client, words, 4, &reply, err);
    for (size_t i = 0; rc == 0 && reply->kind == REPLY_ARRAY && i + 1 < reply->n; i += 2) {
        char name[CONFIG_TEXT], value[CONFIG_TEXT];
        const struct slice *n = &reply->items[i].text, *v = &reply->items[i + 1].text;
        if (n->len >= sizeof name || v->len >= sizeof value) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)n->len, n->data);
        snprintf(value, sizeof value, "%.*s", (int)v->len, v->data);
        const bool asked = strncmp(name, "legacy_", 7) == 0 || strcmp(name, "window") == 0;
        const struct config_option *option = asked ? config_find(name) : NULL;
        if (option != NULL && option->type != CONFIG_SECRET && strcmp(name, "legacy_password_file") != 0) {
            rc = config_set(&m->cfg, name, value, err);
        }
    }
    if (rc == 0 && config_legacy(&m->cfg)[0] == '\0') {
        rc = err_set(err, ERR_NOTFOUND, "the server knows no Redis to come from: set redis in its section [legacy]");
    }
    return rc;
}

int migrate_command(struct migrate *m, const char *name, const char *argument, const struct reply **reply,
                    struct err *err)
{
    const struct slice words[] = {slice_str("LEGACY"), slice_str(name), slice_str(argument)};
    return client_call(m->client, words, argument[0] != '\0' ? 3 : 2, reply, err);
}

/* --- what is shown --- */

static int show_problems(struct migrate *m, struct err *err)
{
    const struct reply *reply;
    const struct slice words[] = {slice_str("LEGACY"), slice_str("PROBLEMS"), slice_str("1000")};
    int rc = server_ask_list(m->client, words, 3, "key", &reply, err);
    if (rc < 0) {
        return rc;
    }
    struct json j = {.out = stdout};
    if (m->json) {
        json_open(&j, NULL, '[');
    }
    for (size_t i = 0; i < reply->n; i++) {
        const struct reply *map = &reply->items[i];
        const struct reply *key = reply_field(map, "key"), *what = reply_field(map, "problem");
        if (m->json) {
            json_open(&j, NULL, '{');
            reply_json(&j, map);
            json_close(&j, '}');
        } else if (key != NULL && what != NULL) {
            struct buf line = {0};
            escape_id(&line, key->text);
            buf_addf(&line, "  ");
            escape_id(&line, what->text);
            printf("%.*s\n", (int)line.len, line.data);
            buf_free(&line);
        }
    }
    if (m->json) {
        json_close(&j, ']');
    }
    return 0;
}

static int reset_mirror(struct migrate *m, struct err *err)
{
    const struct reply *reply;
    return migrate_command(m, "MIRROR", "RESET", &reply, err);
}

static int say(struct migrate *m, const char *name, struct err *err)
{
    const struct reply *reply;
    int rc = migrate_command(m, name, "", &reply, err);
    if (rc == 0 && reply->kind == REPLY_INTEGER) {
        char count[OUTPUT_TEXT];
        printf("%s user%s to be read again\n", count_text((uint64_t)reply->integer, count),
               plural((uint64_t)reply->integer));
    }
    return rc;
}

/* --- the command line --- */

struct wants {
    const char *keys, *to;
    bool scan, status, watch, problems, pause, resume, again, verify, mirror_reset;
};

static int run(struct migrate *m, const struct wants *w, uint64_t sample, struct err *err)
{
    bool reads = w->scan || w->verify;
    int rc = reads ? redis_new(NULL, &m->redis, err) : 0;
    if (rc == 0 && (rc = server_connect(&m->cfg, w->to, &m->client, err)) == 0) {
        rc = ask_config(m, err);
    }
    if (rc == 0 && reads) {
        rc = config_read_legacy_password(&m->cfg, err);
        rc = rc < 0 ? rc : redis_connect(m->redis, &m->cfg, err);
    }
    if (rc < 0) {
        return rc;
    }
    return w->keys != NULL   ? migrate_keys(m, w->keys, err)
           : w->scan         ? migrate_scan(m, err)
           : w->status       ? migrate_status(m, false, err)
           : w->watch        ? migrate_status(m, true, err)
           : w->problems     ? show_problems(m, err)
           : w->pause        ? say(m, "PAUSE", err)
           : w->resume       ? say(m, "RESUME", err)
           : w->again        ? say(m, "AGAIN", err)
           : w->mirror_reset ? reset_mirror(m, err)
                             : migrate_verify(m, sample, err);
}

static bool read_sample(const struct cli_options *options, const struct wants *w, uint64_t *sample)
{
    *sample = 0;
    return options->n_words == 0 || (w->verify && count_read(options->words[0], UINT64_MAX, sample) && *sample > 0);
}

int cli_migrate(int argc, char **argv)
{
    static struct migrate m;
    struct wants w = {0};
    const struct cli_flag flags[] = {
        {"keys", NULL, &w.keys},
        {"scan", &w.scan, NULL},
        {"status", &w.status, NULL},
        {"watch", &w.watch, NULL},
        {"forgotten", &m.forgotten, NULL},
        {"problems", &w.problems, NULL},
        {"pause", &w.pause, NULL},
        {"resume", &w.resume, NULL},
        {"again", &w.again, NULL},
        {"verify", &w.verify, NULL},
        {"to", NULL, &w.to},
        {"json", &m.json, NULL},
        {"quiet", &m.quiet, NULL},
        {"mirror-reset", &w.mirror_reset, NULL},
        {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"migrate", help, "at most a number of users behind --verify", 0, 1, flags, false};
    struct cli_options options;
    int exit_code;
    uint64_t sample;
    struct err err;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    int n = (w.keys != NULL) + w.scan + w.status + w.watch + w.problems + w.pause + w.resume + w.again + w.verify +
            w.mirror_reset;
    if (n != 1) {
        return cli_misuse("migrate",
                          "expected one of --keys FILE, --scan, --status, --watch, --problems, --pause, --resume, "
                          "--again, --verify [N], --mirror-reset");
    }
    if (m.forgotten && w.keys == NULL) {
        return cli_misuse("migrate",
                          "--forgotten goes with --keys FILE: it notes those of the file who were forgotten");
    }
    if (!read_sample(&options, &w, &sample)) {
        return cli_misuse("migrate", "'%s': expected nothing, or a number of users behind --verify", options.words[0]);
    }
    if (cli_options_config(&options, &m.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = run(&m, &w, sample, &err);
    redis_close(m.redis);
    client_close(m.client);
    return rc < 0 ? cli_fail(&err) : rc > 0 ? EXIT_FAILED : EXIT_GOOD;
}
