/* `unseen archive`: how the archive is, what lies there, whether it can be read back, and giving old moments up. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "archive/moment.h"
#include "base/calendar.h"
#include "base/plural.h"
#include "cli/archive/archive_depot.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/progress.h"
#include "cli/lib/server.h"

static const char help[] =
    "Tells how the archive is that the server writes, what lies there, and whether all of it can be read back.\n\n"
    "Usage: unseen archive --status [--json] [OPTION ...]\n"
    "       unseen archive --list | --verify [--from URL] [--json] [OPTION ...]\n"
    "       unseen archive --forget-now [OPTION ...]\n\n"
    "--status and --forget-now ask the server, whose account needs the role watch, or admin. --list and --verify read\n"
    "the archive itself, whether or not a server runs.\n\n"
    "Options:\n"
    "      --status           show how it is, what waits, and how far a round is\n"
    "      --list             show the nodes, and from when to when each can be had back\n"
    "      --verify           read every object and check it\n"
    "      --forget-now       archive all users again at once, and delete what is older once that has ended: so what "
    "was\n"
    "                         forgotten is nowhere in it any more, and moments before are given up\n"
    "      --from URL         the archive: file:///path of a folder, or s3://bucket/prefix; default: archive_url\n"
    "                         of the configuration, whose other options of [archive] hold in any case\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that serves the\n"
    "                         data folder; its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account\n"
    "      --json             print JSON\n\n"
    "Exit code: 0 it is in step and restorable, was listed, or is whole; 1 it is not, or it failed; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen archive --status\n"
    "  unseen archive --list --from file:///mnt/nas/unseen\n"
    "  unseen archive --verify --from file:///mnt/nas/unseen\n"
    "  unseen archive --forget-now\n";

enum { TEXT = 320 };

static void print_status(const struct reply *map)
{
    char text[TEXT], a[OUTPUT_TEXT], b[OUTPUT_TEXT], when[TIME_TEXT];
    int64_t since = reply_signed(map, "since"), at = reply_signed(map, "archived_at");
    uint64_t waiting = reply_count(map, "waiting"), rounded = reply_count(map, "rounded_at");
    reply_copy(map, "state", text, sizeof text);
    printf("archive   %s%s%s\n", text, since != 0 ? ", since " : "", since != 0 ? time_text(since, when) : "");
    reply_copy(map, "cause", text, sizeof text);
    if (text[0] != '\0') {
        printf("cause     %s\n", text);
    }
    reply_copy(map, "url", text, sizeof text);
    printf("url       %s\n", text);
    reply_copy(map, "node", text, sizeof text);
    printf("node      %s\n", text[0] != '\0' ? text : "not known yet");
    printf("has       all that was recorded up to %s\n", at != 0 ? time_text(at, when) : "no moment yet");
    printf("waiting   %s event%s, %s, %.1f s behind\n", count_text(waiting, a), plural(waiting),
           size_text(reply_count(map, "waiting_bytes"), b), (double)reply_signed(map, "behind_ms") / 1000);
    printf("round     %s%s", rounded != 0 ? "the last one ended " : "none has ended yet",
           rounded != 0 ? time_text((int64_t)rounded, when) : "");
    if (reply_count(map, "round") != 0) {
        printf("; number %" PRIu64 " is under way, %.1f %%", reply_count(map, "round"),
               (double)reply_count(map, "round_permille") / 10);
    }
    printf("\nwritten   %s segment%s, %s", count_text(reply_count(map, "segments"), a),
           plural(reply_count(map, "segments")), size_text(reply_count(map, "segment_bytes"), b));
    printf("; %s part%s of rounds, %s\n", count_text(reply_count(map, "parts"), a), plural(reply_count(map, "parts")),
           size_text(reply_count(map, "part_bytes"), b));
    printf("errors    %s\n", count_text(reply_count(map, "errors"), a));
}

/* 1: it is not well. */
static int show(struct client *client, bool json, struct err *err)
{
    const struct slice words[] = {slice_str("ARCHIVE"), slice_str("STATUS")};
    const struct reply *map;
    char state[TEXT];
    struct json j = {.out = stdout};
    int rc = server_ask_map(client, words, 2, "state", &map, err);
    if (rc < 0) {
        return rc;
    }
    if (json) {
        json_open(&j, NULL, '{');
        reply_json(&j, map);
        json_close(&j, '}');
    } else {
        print_status(map);
    }
    reply_copy(map, "state", state, sizeof state);
    return strcmp(state, "in step") != 0;
}

static int forget_now(struct client *client, struct err *err)
{
    const struct slice words[] = {slice_str("ARCHIVE"), slice_str("FORGETNOW")};
    int rc = server_ask_text(client, words, 2, "OK", err);
    if (rc == 0) {
        printf("a round begins; what is older is deleted once it has ended: unseen archive --status\n");
    }
    return rc;
}

static int ask(const struct cli_options *options, const char *to, bool status, bool json)
{
    struct config cfg;
    struct client *client = NULL;
    struct err err;
    if (cli_options_config(options, &cfg, &err) < 0 || server_connect(&cfg, to, &client, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = status ? show(client, json, &err) : forget_now(client, &err);
    client_close(client);
    return rc < 0 ? cli_fail(&err) : rc > 0 ? EXIT_FAILED : EXIT_GOOD;
}

/* --- reading it back --- */

struct verifying {
    struct depot *depot;
    struct catalog catalog;
    struct progress progress;
    struct json *json; /* NULL: for people */
    struct buf bytes, records;
    uint64_t objects, all, read, problems, refused; /* refused: objects of another key, `first` of them */
    struct err first;
};

static void found(struct verifying *v, const char *problem)
{
    v->problems++;
    if (v->json != NULL) {
        json_text(v->json, NULL, problem);
    } else {
        progress_say(&v->progress, "%s\n", problem);
    }
}

static void failed(struct verifying *v, const struct err *err)
{
    if (err->code != ERR_KEY) {
        found(v, err->text);
    } else if (v->refused++ == 0) {
        v->first = *err;
    }
}

static bool read_back(struct verifying *v, const char *name, struct object_head *head)
{
    struct err err = {0};
    enum object_record kind;
    struct slice record;
    size_t at = 0;
    char size[OUTPUT_TEXT];
    int rc = moment_read_object(v->depot, name, &v->bytes, head, &v->records, &err);
    while (rc == 0 && (rc = object_next(buf_slice(&v->records), &at, &kind, &record, &err)) == 1) {
        rc = 0;
    }
    v->objects++;
    v->read += v->bytes.len;
    progress_show(&v->progress, v->objects, v->all, "%s", size_text(v->read, size));
    if (rc < 0) {
        failed(v, &err);
    }
    return rc == 0;
}

static void verify_all(struct verifying *v)
{
    const struct catalog *c = &v->catalog;
    struct object_head head;
    struct err err;
    char name[DEPOT_NAME_MAX];
    for (size_t i = 0; i < c->n_segments; i++) {
        if (read_back(v, catalog_segment_name(&c->segments[i], name), &head) &&
            catalog_check_segment(&c->segments[i], &head, &err) < 0) {
            found(v, err.text);
        }
    }
    for (size_t i = 0; i < c->n_shards; i++) {
        if (read_back(v, catalog_shard_name(&c->shards[i], name), &head) &&
            catalog_check_shard(&c->shards[i], &head, &err) < 0) {
            found(v, err.text);
        }
    }
    for (size_t i = 0; i < c->n_segments; i++) {
        const struct catalog_segment *s = &c->segments[i], *beside;
        if ((i == 0 || s[-1].node != s->node) && (beside = catalog_beside(c, s->node)) != NULL) {
            char text[TEXT];
            snprintf(text, sizeof text, "%s: two copies of a folder wrote at the same time, also this",
                     catalog_segment_name(beside, name));
            found(v, text);
        }
    }
    for (size_t i = 0; i < c->n_rounds; i++) {
        struct moment m = {.node = c->rounds[i].node, .round = c->rounds[i]};
        if (c->rounds[i].ended) {
            v->objects++;
            if (moment_read_end(v->depot, c, &c->rounds[i], &m.end, &err) < 0) {
                failed(v, &err);
            } else if (catalog_reach(c, m.node, m.round.from) < m.round.to) {
                char text[TEXT];
                snprintf(text, sizeof text, "%s: segments behind event %" PRIu64 " are missing",
                         catalog_end_name(m.node, m.round.round, name), catalog_reach(c, m.node, m.round.from));
                found(v, text);
            }
        }
        moment_free(&m);
    }
    if (v->refused > 0) {
        char text[TEXT + 64], n[OUTPUT_TEXT];
        snprintf(text, sizeof text, "%s object%s can't be checked: %s", count_text(v->refused, n), plural(v->refused),
                 v->first.text);
        found(v, text);
    }
}

/* What that means for what is deleted, also of forgotten users. Not a problem of the archive itself. */
static void tell_versions(struct depot *d, struct json *json)
{
    struct err err = {0};
    int rc = d->ops->versions(d, &err);
    const char *word = rc == DEPOT_VERSIONS_KEPT        ? "kept"
                       : rc == DEPOT_VERSIONS_SUSPENDED ? "suspended"
                       : rc == DEPOT_VERSIONS_NONE      ? "none"
                                                        : "unknown";
    if (json != NULL) {
        json_text(json, "versions", word);
    } else if (rc == DEPOT_VERSIONS_KEPT) {
        printf("the bucket keeps versions: what is deleted stays in it, also of forgotten users; switch them off, and "
               "delete the old ones\n");
    } else if (rc == DEPOT_VERSIONS_SUSPENDED) {
        printf(
            "the bucket kept versions once: what was deleted then may be in it still, also of forgotten users; delete "
            "the old ones\n");
    } else if (rc < 0) {
        printf("whether the bucket keeps versions, and so what is deleted, is not known: %s\n", err.text);
    }
}

static int verify(const struct config *cfg, const char *from, bool json, struct err *err)
{
    struct json j = {.out = stdout};
    struct verifying v = {.json = json ? &j : NULL};
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT];
    int rc = archive_depot_open(cfg, from, &v.depot, &v.catalog, err);
    if (rc == 0) {
        v.all = v.catalog.n_segments + v.catalog.n_shards + v.catalog.n_rounds;
        if (json) {
            json_open(&j, NULL, '{');
            json_open(&j, "problems", '[');
        }
        progress_begin(&v.progress, "verify", json);
        verify_all(&v);
        progress_end(&v.progress);
        if (json) {
            json_close(&j, ']');
            json_number(&j, "objects", (int64_t)v.objects);
            json_number(&j, "bytes", (int64_t)v.read);
            tell_versions(v.depot, &j);
            json_close(&j, '}');
        } else {
            tell_versions(v.depot, NULL);
            printf("%s object%s, %s: %" PRIu64 " problem%s\n", count_text(v.objects, a), plural(v.objects),
                   size_text(v.read, b), v.problems, plural(v.problems));
        }
    }
    buf_free(&v.bytes);
    buf_free(&v.records);
    catalog_free(&v.catalog);
    depot_close(v.depot);
    return rc < 0 ? rc : v.problems > 0;
}

int cli_archive(int argc, char **argv)
{
    bool status = false, list = false, check = false, now = false, json = false;
    const char *to = NULL, *from = NULL;
    const struct cli_flag flags[] = {
        {"status", &status, NULL}, {"list", &list, NULL}, {"verify", &check, NULL}, {"forget-now", &now, NULL},
        {"json", &json, NULL},     {"to", NULL, &to},     {"from", NULL, &from},    {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"archive", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (status + list + check + now != 1) {
        return cli_misuse("archive", "expected one of --status, --list, --verify, --forget-now");
    }
    if ((from != NULL && (status || now)) || (to != NULL && (list || check)) || (json && now)) {
        return cli_misuse("archive", "--from goes with --list and --verify, --to with --status and --forget-now");
    }
    if (status || now) {
        return ask(&options, to, status, json);
    }
    struct config cfg;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = list ? archive_list(&cfg, from, json, &err) : verify(&cfg, from, json, &err);
    return rc < 0 ? cli_fail(&err) : rc > 0 ? EXIT_FAILED : EXIT_GOOD;
}
