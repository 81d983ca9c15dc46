#include "cli/import/import_remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/pipeline.h"

enum { GROUP_MAX = 512 }; /* items of one command */

struct import_remote {
    struct pipeline *pipeline;
    int64_t retention;
    int64_t at_ms; /* of the group that is being filled */
    const char *file;
    uint64_t line;
    size_t n;                          /* its items */
    struct slice words[3 + GROUP_MAX]; /* PLAYEDAT, user, time, items */
    bool counts;                       /* the account may ask for what forgets drop, */
    uint64_t forgotten;                /* which were so many before */
};

static const struct slice info[] = {{"INFO", 4}, {"stats", 5}};

static int ask_retention(struct client *client, int64_t *retention, struct err *err)
{
    const struct slice words[] = {slice_str("CONFIG"), slice_str("GET"), slice_str("retention")};
    const struct reply *reply;
    int rc = client_call(client, words, 3, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (!reply_integer(reply_field(reply, "retention"), retention) || *retention < 0) {
        return err_set(err, ERR_INVALID, "%s is no Unseen server: CONFIG GET retention gave no number",
                       client_address(client));
    }
    return 0;
}

/* What forgets have dropped on the server, if its answer to INFO says so. */
static bool read_forgotten(const struct reply *reply, uint64_t *n)
{
    static const char name[] = "forgotten_dropped:";
    const char *at =
        reply->kind == REPLY_TEXT ? memmem(reply->text.data, reply->text.len, name, sizeof name - 1) : NULL;
    *n = 0;
    if (at == NULL) {
        return false;
    }
    for (at += sizeof name - 1; at < reply->text.data + reply->text.len && *at >= '0' && *at <= '9'; at++) {
        *n = *n * 10 + (uint64_t)(*at - '0');
    }
    return true;
}

/* A server that was started again counts from 0, and one that has just started answers LOADING until it has recovered
 * what was staged. */
static int meet(void *arg, struct client *client, struct err *err)
{
    struct import_remote *r = arg;
    const struct slice ping = slice_str("PING");
    const struct reply *reply;
    int rc = client_call(client, &ping, 1, &reply, err);
    if (rc < 0 || (rc = ask_retention(client, &r->retention, err)) < 0) {
        return rc;
    }
    rc = client_call(client, info, 2, &reply, err);
    r->counts = rc == 0 && read_forgotten(reply, &r->forgotten);
    return rc == ERR_INVALID ? 0 : rc; /* an account that may not ask for that */
}

int import_remote_open(const struct import_remote_how *how, struct import_remote **remote, int64_t *retention,
                       struct err *err)
{
    struct import_remote *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    const struct pipeline_how server = {.address = how->address,
                                        .password = how->password,
                                        .effort = how->once ? PIPELINE_ONCE : PIPELINE_RESUMES,
                                        .meet = meet,
                                        .arg = r,
                                        .label = how->progress != NULL ? "import" : NULL,
                                        .progress = how->progress};
    int rc = pipeline_open(&server, &r->pipeline, err);
    if (rc < 0) {
        import_remote_close(r);
        return rc;
    }
    *retention = r->retention;
    *remote = r;
    return 0;
}

void import_remote_close(struct import_remote *r)
{
    if (r != NULL) {
        pipeline_close(r->pipeline);
        free(r);
    }
}

/* Reads answers until at most `left` are to come. */
static int collect(struct import_remote *r, size_t left, struct import_tally *tally, struct err *err)
{
    while (pipeline_length(r->pipeline) > left) {
        struct pipeline_note of;
        const struct reply *reply;
        int rc = pipeline_next(r->pipeline, &of, &reply, err);
        if (rc < 0) {
            return rc;
        }
        if (reply->kind == REPLY_ERROR) {
            char text[sizeof(err->text)];
            slice_show(reply->text, text, sizeof text);
            /* Another code than ERR (FULL, NOAUTH) is no fault of the event. */
            if (strncmp(text, "ERR ", 4) != 0) {
                return err_set(err, ERR_BUSY, "%s: the server answered: %s", pipeline_address(r->pipeline), text);
            }
            import_tally_refused(tally, of.owner, of.line, of.n, text);
        } else if (reply->kind != REPLY_INTEGER || reply->integer < 0) {
            return err_set(err, ERR_INVALID, "%s: the server answered something else than a number to PLAYEDAT",
                           pipeline_address(r->pipeline));
        }
    }
    return 0;
}

/* Sends the words that are there, whose answer will be counted for n items of file:line. */
static int send_words(struct import_remote *r, size_t n_words, const char *file, uint64_t line, size_t n,
                      struct import_tally *tally, struct err *err)
{
    if (pipeline_is_full(r->pipeline)) {
        int rc = collect(r, pipeline_length(r->pipeline) / 2, tally, err);
        if (rc < 0) {
            return rc;
        }
    }
    return pipeline_send(r->pipeline, r->words, n_words, &(struct pipeline_note){file, line, n}, err);
}

int import_remote_flush(struct import_remote *r, struct import_tally *tally, struct err *err)
{
    if (r->n == 0) {
        return 0;
    }
    char time[24];
    int len = snprintf(time, sizeof(time), "%" PRId64, r->at_ms);
    r->words[0] = slice_str("PLAYEDAT");
    r->words[2] = slice_of(time, (size_t)len);
    int rc = send_words(r, 3 + r->n, r->file, r->line, r->n, tally, err);
    if (rc == 0) {
        r->n = 0;
    }
    return rc;
}

int import_remote_deliver(struct import_remote *r, struct slice user, const struct slice *items, size_t n,
                          const char *file, uint64_t line, struct import_tally *tally, struct err *err)
{
    int rc = import_remote_flush(r, tally, err);
    r->words[0] = slice_str("DELIVERED");
    r->words[1] = user;
    for (size_t at = 0; rc == 0 && at < n; at += GROUP_MAX) {
        size_t some = n - at < GROUP_MAX ? n - at : GROUP_MAX;
        memcpy(r->words + 2, items + at, some * sizeof(*items));
        rc = send_words(r, 2 + some, file, line, some, tally, err);
    }
    return rc;
}

int import_remote_add(struct import_remote *r, const struct import_event *event, const char *file, uint64_t line,
                      struct import_tally *tally, struct err *err)
{
    bool same = r->n > 0 && r->n < GROUP_MAX && r->at_ms == event->at_ms && slice_eq(r->words[1], event->user);
    if (!same) {
        int rc = import_remote_flush(r, tally, err);
        if (rc < 0) {
            return rc;
        }
        r->at_ms = event->at_ms;
        r->file = file;
        r->line = line;
        r->words[1] = event->user;
    }
    r->words[3 + r->n++] = event->item;
    return 0;
}

/* Of this server since it was met. */
static int count_forgotten(struct import_remote *r, struct import_tally *tally, struct err *err)
{
    const struct reply *reply;
    uint64_t now = 0;
    int rc = pipeline_call(r->pipeline, info, 2, &reply, err);
    if (rc == 0 && read_forgotten(reply, &now) && now > r->forgotten) {
        import_tally_forgotten(tally, now - r->forgotten);
        r->forgotten = now;
    }
    return rc == ERR_INVALID ? 0 : rc; /* the account may no longer ask */
}

int import_remote_end(struct import_remote *r, struct import_tally *tally, struct err *err)
{
    int rc = import_remote_flush(r, tally, err);
    rc = rc < 0 ? rc : collect(r, 0, tally, err);
    return rc < 0 || !r->counts ? rc : count_forgotten(r, tally, err);
}
