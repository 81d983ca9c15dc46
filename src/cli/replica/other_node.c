#include "cli/replica/other_node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/lib/server.h"
#include "replica/replica.h"
#include "store/feed.h"

struct slice id_text(uint64_t id, char out[ID_TEXT])
{
    snprintf(out, ID_TEXT, "%016" PRIx64, id);
    return slice_str(out);
}

struct slice number_text(int64_t n, char out[NUMBER_TEXT])
{
    snprintf(out, NUMBER_TEXT, "%" PRId64, n);
    return slice_str(out);
}

bool reply_id(const struct reply *r, uint64_t *id)
{
    return r != NULL && r->kind == REPLY_TEXT && r->text.len == ID_TEXT - 1 && hex_read(r->text.data, ID_TEXT - 1, id);
}

uint64_t reply_id_field(const struct reply *map, const char *name)
{
    uint64_t id = 0;
    return reply_id(reply_field(map, name), &id) ? id : 0;
}

int other_node_open(const struct config *cfg, const char *address, const char *user, const struct other_told *told,
                    struct other_node *out, struct err *err)
{
    static struct config read;
    struct pipeline_how how = {
        .address = address, .effort = PIPELINE_REPEATS, .label = told->label, .progress = told->progress};
    *out = (struct other_node){.address = address};
    read = *cfg;
    int rc = config_read_passwords(&read, err);
    if (rc < 0) {
        return rc;
    }
    const char *named = user != NULL ? user : getenv("UNSEEN_USER");
    bool configured = named == NULL || strcmp(named, read.replica_user) == 0;
    if (user == NULL && configured && read.replica_user[0] != '\0') {
        user = read.replica_user;
    }
    how.user = user;
    if ((rc = client_prepare_user(cfg, user, &how.password, err)) < 0) {
        return rc;
    }
    if (configured && read.replica_password[0] != '\0') {
        how.password = read.replica_password;
    }
    return pipeline_open(&how, &out->pipeline, err);
}

void other_node_close(struct other_node *o)
{
    pipeline_close(o->pipeline);
    o->pipeline = NULL;
}

static int code_of(struct slice text)
{
    static const struct {
        const char *word;
        int code;
    } words[] = {
        {"LOST ", ERR_NOTFOUND}, {"VERSION ", ERR_VERSION}, {"READONLY ", ERR_REPLICA}, {"NOPERM ", ERR_NOPERM}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i].word);
        if (text.len >= len && memcmp(text.data, words[i].word, len) == 0) {
            return words[i].code;
        }
    }
    return ERR_INVALID;
}

int other_node_answer(struct other_node *o, const struct reply **reply, struct err *err)
{
    struct pipeline_note note;
    int rc = pipeline_next(o->pipeline, &note, reply, err);
    if (rc < 0) {
        return rc;
    }
    struct slice text = (*reply)->text;
    return (*reply)->kind == REPLY_ERROR ? err_set(err, code_of(text), "%s: %.*s", o->address, (int)text.len, text.data)
                                         : 0;
}

int other_node_ask(struct other_node *o, const struct slice *words, size_t n, struct err *err)
{
    return pipeline_send(o->pipeline, words, n, &(struct pipeline_note){0}, err);
}

int other_node_call(struct other_node *o, const struct slice *words, size_t n, const struct reply **reply,
                    struct err *err)
{
    int rc = other_node_ask(o, words, n, err);
    return rc < 0 ? rc : other_node_answer(o, reply, err);
}

int other_node_hello(struct other_node *o, uint64_t node, uint64_t term, struct err *err)
{
    enum { NO_NODE = 1 }; /* no folder has this id, and 0 is none */
    char protocol[NUMBER_TEXT], id[ID_TEXT], number[NUMBER_TEXT];
    const struct slice words[] = {slice_str("REPLICA"),
                                  slice_str("HELLO"),
                                  number_text(REPLICA_PROTOCOL, protocol),
                                  id_text(node != 0 ? node : NO_NODE, id),
                                  number_text((int64_t)term, number),
                                  slice_str("")};
    const struct reply *map;
    int rc = other_node_call(o, words, 6, &map, err);
    if (rc < 0) {
        return rc;
    }
    o->protocol = reply_signed(map, "protocol");
    o->node = reply_id_field(map, "node");
    o->run = reply_id_field(map, "run");
    o->leader = reply_id_field(map, "leader");
    o->term = reply_count(map, "term");
    o->last = reply_count(map, "last");
    o->window = reply_signed(map, "window");
    o->retention = reply_signed(map, "retention");
    o->delivered_max = reply_signed(map, "delivered_max");
    reply_copy(map, "version", o->version, sizeof o->version);
    reply_copy(map, "role", o->role, sizeof o->role);
    reply_copy(map, "address", o->says, sizeof o->says);
    if (o->node == 0 || o->run == 0 || !reply_id(reply_field(map, "seed"), &o->seed)) {
        return err_set(err, ERR_VERSION,
                       "%s: the answer to REPLICA HELLO has no node, run or seed: is it an Unseen of "
                       "another version?",
                       o->address);
    }
    return 0;
}

int other_node_fits(const struct other_node *o, const struct config *cfg, struct err *err)
{
    const struct {
        const char *name;
        int64_t theirs, ours;
    } settings[] = {
        {"window", o->window, cfg->window},
        {"retention", o->retention, cfg->retention},
        {"delivered_max", o->delivered_max, cfg->delivered_max},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (settings[i].theirs != settings[i].ours) {
            return err_set(err, ERR_INVALID,
                           "%s is %" PRId64 " at %s, and %" PRId64 " here: both must be the same (-c FILE names the "
                           "configuration)",
                           settings[i].name, settings[i].theirs, o->address, settings[i].ours);
        }
    }
    return 0;
}

/* A replica that is known stays enlisted when its feed is lost. */
static int still_kept(struct other_node *o, uint64_t node, struct err *err)
{
    const struct slice words[] = {slice_str("REPLICA"), slice_str("STATUS")};
    const struct reply *map;
    int rc = other_node_call(o, words, 2, &map, err);
    const struct reply *list = rc == 0 ? reply_field(map, "replicas") : NULL;
    for (size_t i = 0; list != NULL && i < list->n; i++) {
        char state[16];
        reply_copy(&list->items[i], "state", state, sizeof state);
        if (reply_id_field(&list->items[i], "node") == node && strcmp(state, feed_place_name(FEED_LOST)) == 0) {
            return err_set(err, ERR_NOTFOUND, "%s no longer has what was recorded since this folder was known there",
                           o->address);
        }
    }
    return rc;
}

int other_node_enlist(struct other_node *o, uint64_t node, uint64_t *run, uint64_t *seq, struct err *err)
{
    char id[ID_TEXT];
    const struct slice words[] = {slice_str("REPLICA"), slice_str("ENLIST"), id_text(node, id)};
    const struct reply *map;
    int64_t number;
    int rc = other_node_call(o, words, 3, &map, err);
    if (rc < 0) {
        return rc;
    }
    const struct reply *field = reply_field(map, "seq");
    *run = reply_id_field(map, "run");
    if (*run == 0 || field == NULL || !reply_integer(field, &number) || reply_id_field(map, "node") != o->node) {
        return err_set(err, ERR_VERSION, "%s: the answer to REPLICA ENLIST has no node, run or seq", o->address);
    }
    *seq = (uint64_t)number;
    return still_kept(o, node, err);
}
