#include "cli/lib/server.h"

#include <stdio.h>
#include <string.h>

#include "store/sqlite/sqlite_store.h"

enum { ADDRESS_TEXT = CONFIG_TEXT + 16 };

/* A pool has no file that names who serves it. The configuration says where a node of this machine listens; that it
 * does somewhere was checked. */
static void own_node(const struct config *cfg, char *out, size_t size)
{
    size_t n = strcspn(cfg->listen, ", ");
    if (strcmp(cfg->listen, "none") == 0) {
        snprintf(out, size, "unix:%s", cfg->unix_socket);
    } else {
        snprintf(out, size, "%.*s", (int)n, cfg->listen);
    }
}

int server_address_of(const struct config *cfg, char *out, size_t size, struct err *err)
{
    if (cfg->store == STORE_ENGINE_RADOS) {
        own_node(cfg, out, size);
        return 0;
    }
    return sqlite_store_address(cfg->data, out, size, err);
}

/* Into out, where to itself doesn't say it. */
static int find_server(const struct config *cfg, const char **to, char out[ADDRESS_TEXT], struct err *err)
{
    out[0] = '\0';
    if (*to != NULL) {
        return 0;
    }
    *to = out;
    int rc = server_address_of(cfg, out, ADDRESS_TEXT, err);
    return rc < 0 || out[0] == '\0'
               ? err_set(err, ERR_NOTFOUND, "no server serves the data folder %s: start it, or name one with --to",
                         cfg->data)
               : 0;
}

int server_connect_user(const struct config *cfg, const char *to, const char *user, struct client **client,
                        struct err *err)
{
    const char *password;
    char address[ADDRESS_TEXT];
    int rc = find_server(cfg, &to, address, err);
    rc = rc < 0 ? rc : client_prepare_user(cfg, user, &password, err);
    return rc < 0 ? rc : client_connect_user(to, user, password, client, err);
}

int server_connect(const struct config *cfg, const char *to, struct client **client, struct err *err)
{
    return server_connect_user(cfg, to, NULL, client, err);
}

int server_pipeline(const struct config *cfg, const char *to, const char *label, struct pipeline **pipeline,
                    struct err *err)
{
    static char address[ADDRESS_TEXT];
    struct pipeline_how how = {.effort = PIPELINE_REPEATS, .label = label};
    int rc = find_server(cfg, &to, address, err);
    how.address = to;
    rc = rc < 0 ? rc : client_prepare(cfg, &how.password, err);
    return rc < 0 ? rc : pipeline_open(&how, pipeline, err);
}

int server_something_else(const char *address, const char *command, const char *expected, struct err *err)
{
    return err_set(err, ERR_VERSION, "%s answers %s with something else than %s: is it an Unseen of this version?",
                   address, command, expected);
}

/* The command's first two words, which are our own. */
static const char *name_of(const struct slice *words, size_t n, char out[64])
{
    snprintf(out, 64, "%.*s%s%.*s", (int)words[0].len, words[0].data, n > 1 ? " " : "", n > 1 ? (int)words[1].len : 0,
             n > 1 ? words[1].data : "");
    return out;
}

static bool has(const struct reply *map, const char *name)
{
    const struct reply *field = reply_field(map, name);
    return field != NULL && field->kind != REPLY_ARRAY && field->kind != REPLY_NULL;
}

int server_ask_map(struct client *client, const struct slice *words, size_t n, const char *field,
                   const struct reply **map, struct err *err)
{
    char name[64], expected[64];
    int rc = client_call(client, words, n, map, err);
    if (rc < 0 || has(*map, field)) {
        return rc;
    }
    snprintf(expected, sizeof expected, "a map with %s", field);
    return server_something_else(client_address(client), name_of(words, n, name), expected, err);
}

int server_ask_list(struct client *client, const struct slice *words, size_t n, const char *field,
                    const struct reply **list, struct err *err)
{
    char name[64], expected[64];
    int rc = client_call(client, words, n, list, err);
    bool good = rc == 0 && (*list)->kind == REPLY_ARRAY;
    for (size_t i = 0; good && i < (*list)->n; i++) {
        good = has(&(*list)->items[i], field);
    }
    if (rc < 0 || good) {
        return rc;
    }
    snprintf(expected, sizeof expected, "a list of maps with %s", field);
    return server_something_else(client_address(client), name_of(words, n, name), expected, err);
}

int server_ask_text(struct client *client, const struct slice *words, size_t n, const char *text, struct err *err)
{
    char name[64];
    const struct reply *reply;
    int rc = client_call(client, words, n, &reply, err);
    return rc < 0 || (reply->kind == REPLY_TEXT && slice_eq(reply->text, slice_str(text)))
               ? rc
               : server_something_else(client_address(client), name_of(words, n, name), text, err);
}

int64_t reply_signed(const struct reply *map, const char *name)
{
    int64_t value = 0;
    const struct reply *field = reply_field(map, name);
    return field != NULL && reply_integer(field, &value) ? value : 0;
}

uint64_t reply_count(const struct reply *map, const char *name)
{
    return (uint64_t)reply_signed(map, name);
}

void reply_copy(const struct reply *map, const char *name, char *out, size_t size)
{
    const struct reply *field = reply_field(map, name);
    out[0] = '\0';
    if (field != NULL && field->kind == REPLY_TEXT) {
        slice_show(field->text, out, size);
    }
}

void reply_json(struct json *j, const struct reply *map)
{
    for (size_t i = 0; i + 1 < map->n; i += 2) {
        const struct reply *value = &map->items[i + 1];
        char key[64];
        int64_t number;
        slice_show(map->items[i].text, key, sizeof key);
        if (value->kind == REPLY_TEXT) {
            json_id(j, key, value->text);
        } else if (value->kind == REPLY_DOUBLE) {
            json_double(j, key, value->number);
        } else if (reply_integer(value, &number)) {
            json_number(j, key, number);
        }
    }
}
