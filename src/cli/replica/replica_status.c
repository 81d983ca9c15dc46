/* `unseen replica --status`: REPLICA STATUS, for people and for programs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lib/output.h"
#include "cli/lib/server.h"
#include "cli/replica/replica.h"

enum { TEXT = 320 };

static const char *field(const struct reply *map, const char *name, char out[TEXT])
{
    reply_copy(map, name, out, TEXT);
    return out[0] != '\0' ? out : "-";
}

static void print_replicas(const struct reply *list)
{
    struct table t;
    char text[TEXT], size[OUTPUT_TEXT], count[OUTPUT_TEXT];
    table_begin(&t, "node|address|state|behind>|events>|bytes>|clock>");
    for (size_t i = 0; i < list->n; i++) {
        const struct reply *r = &list->items[i];
        table_cell(&t, "%s", field(r, "node", text));
        table_cell(&t, "%s", field(r, "address", text));
        table_cell(&t, "%s%s", field(r, "state", text), reply_count(r, "connected") != 0 ? "" : ", away");
        table_cell(&t, "%.1f s", (double)reply_signed(r, "behind_ms") / 1000);
        table_cell(&t, "%s", count_text(reply_count(r, "events"), count));
        table_cell(&t, "%s", size_text(reply_count(r, "bytes"), size));
        table_cell(&t, "%+" PRId64 " ms", reply_signed(r, "clock_apart_ms"));
    }
    table_end(&t, stdout);
}

static void print_people(const struct reply *map)
{
    char text[TEXT], role[TEXT];
    field(map, "role", role);
    printf("role      %s, term %" PRIu64 "\n", role, reply_count(map, "term"));
    printf("node      %s, run ", field(map, "node", text));
    printf("%s\n", field(map, "run", text));
    printf("address   %s\n", field(map, "address", text));
    if (strcmp(role, "primary") != 0) {
        printf("primary   %s, ", field(map, "leader_address", text));
        printf("node %s\n", field(map, "leader", text));
    }
    reply_copy(map, "writes_refused", text, sizeof text);
    if (text[0] != '\0') {
        printf("writes    refused: %s\n", text);
    }
    if (reply_count(map, "unheard") != 0) {
        printf("replaced  not known: no other node has answered since the start\n");
    }
    const struct reply *follower = reply_field(map, "follower");
    if (follower != NULL && follower->n > 0) {
        int64_t age = reply_signed(follower, "age_ms");
        printf("follows   %s", field(follower, "state", text));
        printf(", applied %" PRIu64 " of %" PRIu64, reply_count(follower, "applied"), reply_count(follower, "last"));
        if (age >= 0) {
            printf(", %.1f s old\n", (double)age / 1000);
        } else {
            printf(", not level since its start\n");
        }
        reply_copy(follower, "problem", text, sizeof text);
        if (text[0] != '\0') {
            printf("problem   %s\n", text);
        }
    }
    const struct reply *replicas = reply_field(map, "replicas");
    if (strcmp(role, "primary") == 0) {
        bool waits = strcmp(field(map, "ack", text), "local") != 0; /* else no write asks for a replica's step */
        printf("ack       %s%s\n", text,
               !waits                             ? ""
               : reply_count(map, "in_step") != 0 ? ", in step"
                                                  : ", out of step");
        if (replicas == NULL || replicas->n == 0) {
            printf("replicas  none\n");
        } else {
            putchar('\n');
            print_replicas(replicas);
        }
    }
}

static void print_json(const struct reply *map)
{
    struct json j = {.out = stdout};
    const struct reply *replicas = reply_field(map, "replicas"), *follower = reply_field(map, "follower");
    json_open(&j, NULL, '{');
    reply_json(&j, map);
    json_open(&j, "replicas", '[');
    for (size_t i = 0; replicas != NULL && i < replicas->n; i++) {
        json_open(&j, NULL, '{');
        reply_json(&j, &replicas->items[i]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    if (follower != NULL && follower->n > 0) {
        json_open(&j, "follower", '{');
        reply_json(&j, follower);
        json_close(&j, '}');
    }
    json_close(&j, '}');
}

int replica_status(const struct config *cfg, const char *to, const char *user, bool json)
{
    const struct slice words[] = {slice_str("REPLICA"), slice_str("STATUS")};
    const struct reply *map;
    struct client *client = NULL;
    struct err err = {0};
    int rc = server_connect_user(cfg, to, user, &client, &err);
    if (rc == ERR_NOTFOUND && to == NULL) {
        err_set(&err, rc, "no server serves the data folder %s: start it, or name one with --to", cfg->data);
    }
    rc = rc < 0 ? rc : server_ask_map(client, words, 2, "role", &map, &err);
    if (rc < 0) {
        client_close(client);
        return cli_fail(&err);
    }
    json ? print_json(map) : print_people(map);
    client_close(client);
    return EXIT_GOOD;
}
