/* Turns the replies of HISTORY, WHY, MONTHS and CLOCK back into the domain's structs. Fields that a newer server adds
 * are ignored. A missing field, or one of a wrong type, is an error that names it. */
#include "cli/lib/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "net/client.h"
#include "store/admin.h"

struct remote {
    struct source source;
    struct client *client;
    char address[CONFIG_TEXT + 16];
    const char *password;         /* the caller's */
    struct history_month *months; /* of the last history */
};

/* For errors: who was asked what. */
struct asked {
    const struct client *client;
    const char *command;
};

static int unexpected(const struct asked *q, const char *field, struct err *err)
{
    return err_set(err, ERR_VERSION, "%s: the server's answer to %s has no readable '%s': is it another version?",
                   client_address(q->client), q->command, field);
}

static int field_u64(const struct reply *map, const struct asked *q, const char *key, uint64_t *out, struct err *err)
{
    int64_t value;
    if (!reply_integer(reply_field(map, key), &value) || value < 0) {
        return unexpected(q, key, err);
    }
    *out = (uint64_t)value;
    return 0;
}

static int field_double(const struct reply *map, const struct asked *q, const char *key, double *out, struct err *err)
{
    return reply_number(reply_field(map, key), out) ? 0 : unexpected(q, key, err);
}

static int field_month(const struct reply *map, const struct asked *q, int *out, struct err *err)
{
    const struct reply *field = reply_field(map, "month");
    char text[MONTH_TEXT];
    if (field == NULL || field->kind != REPLY_TEXT || field->text.len >= sizeof text) {
        return unexpected(q, "month", err);
    }
    memcpy(text, field->text.data, field->text.len);
    text[field->text.len] = '\0';
    *out = month_parse(text);
    return *out >= 0 ? 0 : unexpected(q, "month", err);
}

static int read_history_month(const struct reply *map, const struct asked *q, struct history_month *out,
                              struct err *err)
{
    uint64_t sealed = 0, in_window = 0, expires = 0;
    *out = (struct history_month){0};
    int rc = field_month(map, q, &out->month, err);
    rc = rc < 0 ? rc : field_u64(map, q, "items", &out->items, err);
    rc = rc < 0 ? rc : field_u64(map, q, "bytes", &out->bytes, err);
    rc = rc < 0 ? rc : field_double(map, q, "error", &out->error, err);
    rc = rc < 0 ? rc : field_u64(map, q, "sealed", &sealed, err);
    rc = rc < 0 ? rc : field_u64(map, q, "in_window", &in_window, err);
    rc = rc < 0 ? rc : field_u64(map, q, "expires", &expires, err);
    out->sealed = sealed != 0;
    out->in_window = in_window != 0;
    out->expires_ms = (int64_t)expires;
    return rc;
}

static int remote_history(struct source *s, struct slice user, struct history *out, struct err *err)
{
    struct remote *r = (struct remote *)s;
    const struct asked q = {r->client, "HISTORY"};
    const struct slice words[] = {slice_str(q.command), user};
    const struct reply *reply;
    int rc = client_call(r->client, words, 2, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind == REPLY_NULL) {
        return 0;
    }
    *out = (struct history){0};
    rc = field_u64(reply, &q, "staged", &out->staged, err);
    rc = rc < 0 ? rc : field_u64(reply, &q, "delivered", &out->delivered, err);
    rc = rc < 0 ? rc : field_double(reply, &q, "error", &out->error, err);
    const struct reply *months = reply_field(reply, "months");
    if (rc == 0 && (months == NULL || months->kind != REPLY_ARRAY)) {
        rc = unexpected(&q, "months", err);
    }
    if (rc < 0) {
        return rc;
    }
    free(r->months);
    r->months = calloc(months->n + 1, sizeof *r->months);
    if (r->months == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    out->months = r->months;
    out->n_months = months->n;
    for (size_t i = 0; i < months->n && rc == 0; i++) {
        rc = read_history_month(&months->items[i], &q, &r->months[i], err);
    }
    return rc < 0 ? rc : 1;
}

static int read_place(const struct reply *name, const struct reply *error, const struct asked *q, struct place *out,
                      struct err *err)
{
    char text[PLACE_TEXT], is[PLACE_TEXT];
    *out = (struct place){0};
    if (name->kind != REPLY_TEXT || name->text.len >= sizeof text) {
        return unexpected(q, "place", err);
    }
    snprintf(text, sizeof text, "%.*s", (int)name->text.len, name->text.data);
    static const enum place_kind named[] = {PLACE_BLOCKED, PLACE_STAGED, PLACE_DELIVERED, PLACE_ITEM, PLACE_LEGACY};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        out->kind = named[i];
        if (slice_eq(name->text, place_name(out, is))) {
            return 0;
        }
    }
    static const char also[] = "also:";
    const size_t n = sizeof also - 1;
    const bool of_other = name->text.len > n && memcmp(name->text.data, also, n) == 0;
    out->kind = of_other ? PLACE_ALSO : PLACE_MONTH;
    out->user = of_other ? slice_of(name->text.data + n, name->text.len - n) : out->user;
    out->month = of_other ? 0 : month_parse(text);
    bool good = out->month >= 0 && reply_number(error, &out->error);
    return good ? 0 : unexpected(q, text, err);
}

/* RESP3: a map of places to the chance that each is an error. */
static int remote_why(struct source *s, struct slice user, struct slice item, struct place *places, struct err *err)
{
    struct remote *r = (struct remote *)s;
    const struct asked q = {r->client, "WHY"};
    const struct slice words[] = {slice_str(q.command), user, item};
    const struct reply *reply;
    int rc = client_call(r->client, words, 3, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n % 2 != 0 || reply->n / 2 > PLACES_MAX) {
        return unexpected(&q, "map of places", err);
    }
    int n = 0;
    for (size_t i = 0; i < reply->n; i += 2) {
        rc = read_place(&reply->items[i], &reply->items[i + 1], &q, &places[n++], err);
        if (rc < 0) {
            return rc;
        }
    }
    return n;
}

static int read_state(const struct reply *map, const struct asked *q, enum store_month_state *out, struct err *err)
{
    const struct reply *field = reply_field(map, "state");
    for (int state = STORE_MONTH_LIVE; state <= STORE_MONTH_EXPIRING && field != NULL; state++) {
        const char *name = store_month_state_name((enum store_month_state)state);
        if (field->kind == REPLY_TEXT && slice_eq(field->text, slice_str(name))) {
            *out = (enum store_month_state)state;
            return 0;
        }
    }
    return unexpected(q, "state", err);
}

static int remote_months(struct source *s, struct store_month_info *out, int max, struct err *err)
{
    struct remote *r = (struct remote *)s;
    const struct asked q = {r->client, "MONTHS"};
    const struct slice words[] = {slice_str(q.command)};
    const struct reply *reply;
    int rc = client_call(r->client, words, 1, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY) {
        return unexpected(&q, "months", err);
    }
    int n = 0;
    for (size_t i = 0; i < reply->n && n < max; i++, n++) {
        const struct reply *map = &reply->items[i];
        out[n] = (struct store_month_info){0};
        rc = field_month(map, &q, &out[n].month, err);
        rc = rc < 0 ? rc : field_u64(map, &q, "users", &out[n].users, err);
        rc = rc < 0 ? rc : field_u64(map, &q, "plays", &out[n].plays, err);
        rc = rc < 0 ? rc : field_u64(map, &q, "bytes", &out[n].bytes, err);
        rc = rc < 0 ? rc : read_state(map, &q, &out[n].state, err);
        uint64_t in_window = 0;
        rc = rc < 0 ? rc : field_double(map, &q, "progress", &out[n].progress, err);
        rc = rc < 0 ? rc : field_u64(map, &q, "in_window", &in_window, err);
        out[n].in_window = in_window != 0;
        if (reply_field(map, "found") != NULL) {
            uint64_t found = 0;
            rc = rc < 0 ? rc : field_u64(map, &q, "found", &found, err);
            rc = rc < 0 ? rc : field_double(map, &q, "coverage", &out[n].coverage, err);
            out[n].found_ms = (int64_t)found;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return n;
}

static int remote_clock(struct source *s, enum source_clock what, struct store_clock *out, struct err *err)
{
    const struct asked q = {((struct remote *)s)->client, "CLOCK"};
    const struct slice words[] = {slice_str(q.command), slice_str(what == SOURCE_CLOCK_ACCEPT ? "ACCEPT" : "SETBACK")};
    const struct reply *reply, *reason, *state;
    struct {
        const char *name;
        int64_t *field;
    } times[] = {{"wall", &out->wall_ms},
                 {"believed", &out->believed_ms},
                 {"newest", &out->newest_ms},
                 {"held", &out->unsure_ms}};
    int rc = client_call(((struct remote *)s)->client, words, what == SOURCE_CLOCK_LOOK ? 1 : 2, &reply, err);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        if (!reply_integer(reply_field(reply, times[i].name), times[i].field)) {
            return unexpected(&q, times[i].name, err);
        }
    }
    if ((state = reply_field(reply, "state")) == NULL || state->kind != REPLY_TEXT) {
        return unexpected(&q, "state", err);
    }
    if ((reason = reply_field(reply, "reason")) == NULL || reason->kind != REPLY_TEXT) {
        return unexpected(&q, "reason", err);
    }
    out->known = !slice_eq(state->text, slice_str("unknown"));
    out->doubted = !slice_eq(state->text, slice_str("believed"));
    slice_show(reason->text, out->reason, sizeof out->reason);
    return 0;
}

/* The number behind "name:" in an INFO; 0 when there is none. */
static uint64_t info_number(const char *info, const char *name)
{
    const char *line = strstr(info, name);
    return line != NULL ? strtoull(line + strlen(name), NULL, 10) : 0;
}

/* One look at how far it is. What goes wrong here is told, if at all, by the answer that is waited for. */
static void show_backup(struct client *c, struct source_backup *out)
{
    const struct slice words[] = {slice_str("INFO"), slice_str("backup")};
    const struct reply *reply;
    char info[2048], phase[32];
    if (client_call(c, words, 2, &reply, NULL) < 0 || reply->kind != REPLY_TEXT || reply->text.len >= sizeof info) {
        return;
    }
    memcpy(info, reply->text.data, reply->text.len);
    info[reply->text.len] = '\0';
    const char *line = strstr(info, "backup_phase:");
    if (line != NULL && sscanf(line, "backup_phase:%31[a-z]", phase) == 1) {
        out->progress(out->arg, phase, info_number(info, "backup_done:"), info_number(info, "backup_total:"));
    }
}

static int remote_backup(struct source *s, const char *folder, struct source_backup *out, struct err *err)
{
    struct remote *r = (struct remote *)s;
    const struct asked q = {r->client, "BACKUP"};
    const struct slice words[] = {slice_str(q.command), slice_str(folder)};
    const struct reply *reply;
    struct client *watch; /* a connection answers in order, so the progress is asked for on another */
    int rc = client_connect(r->address, r->password, &watch, err);
    if (rc < 0) {
        return rc;
    }
    rc = client_queue(r->client, words, 2, err);
    while (rc == 0 && (rc = client_wait(r->client, SOURCE_POLL_MS, err)) == 0) {
        show_backup(watch, out);
    }
    client_close(watch);
    if (rc < 0 || (rc = client_answer(r->client, &reply, err)) < 0) {
        return rc;
    }
    uint64_t took_ms = 0;
    rc = field_u64(reply, &q, "bytes", &out->bytes, err);
    rc = rc < 0 ? rc : field_u64(reply, &q, "problems", &out->problems, err);
    rc = rc < 0 ? rc : field_u64(reply, &q, "ms", &took_ms, err);
    out->took_ms = (int64_t)took_ms;
    return rc;
}

static void remote_close(struct source *s)
{
    struct remote *r = (struct remote *)s;
    client_close(r->client);
    free(r->months);
    free(r);
}

int source_remote(const char *address, const char *password, struct source **source, struct err *err)
{
    static const struct source_ops ops = {remote_history, remote_why,    remote_months,
                                          remote_clock,   remote_backup, remote_close};
    struct remote *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->source.ops = &ops;
    snprintf(r->address, sizeof r->address, "%s", address);
    r->password = password;
    int rc = client_connect(address, password, &r->client, err);
    if (rc < 0) {
        free(r);
        return rc;
    }
    *source = &r->source;
    return 0;
}
