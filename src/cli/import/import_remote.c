#include "cli/import/import_remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/client.h"

enum {
    GROUP_MAX = 512, /* items of one command */
    /* Commands without an answer yet. Many, since the server commits what it has; not so many that its answers, even
     * errors, fill the connection while nobody reads them. */
    PIPELINE_MAX = 2048,
    LOADING_STEP_MS = 50,
    LOADING_TRIES = 5 * 60 * 1000 / LOADING_STEP_MS,
};

struct import_remote {
    struct client *client;
    int64_t at_ms; /* of the group that is being filled */
    const char *file;
    uint64_t line;
    size_t n;                          /* its items */
    struct slice words[3 + GROUP_MAX]; /* PLAYEDAT, user, time, items */
    struct {
        const char *file;
        uint64_t line;
        size_t n;
    } sent[PIPELINE_MAX]; /* a ring */
    size_t oldest, n_sent;
    bool counts;        /* the account may ask for what forgets drop, */
    uint64_t forgotten; /* which were so many before */
};

/* A server that has just started answers LOADING until it has recovered what was staged. */
static int wait_loaded(struct import_remote *r, struct err *err)
{
    const struct slice ping = slice_str("PING");
    const struct reply *reply;
    int rc = client_call(r->client, &ping, 1, &reply, err);
    for (int i = 0; rc == ERR_LOADING && i < LOADING_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOADING_STEP_MS * 1000 * 1000}, NULL);
        rc = client_call(r->client, &ping, 1, &reply, err);
    }
    return rc;
}

static int ask_retention(struct import_remote *r, const char *address, int64_t *retention, struct err *err)
{
    const struct slice words[] = {slice_str("CONFIG"), slice_str("GET"), slice_str("retention")};
    const struct reply *reply;
    int rc = client_call(r->client, words, 3, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (!reply_integer(reply_field(reply, "retention"), retention) || *retention < 0) {
        return err_set(err, ERR_INVALID, "%s is no Unseen server: CONFIG GET retention gave no number", address);
    }
    return 0;
}

/* What forgets have dropped on the server. 1; 0: it doesn't say; or an error of the connection. */
static int ask_forgotten(struct import_remote *r, uint64_t *n, struct err *err)
{
    static const char name[] = "forgotten_dropped:";
    const struct slice words[] = {slice_str("INFO"), slice_str("stats")};
    const struct reply *reply;
    int rc = client_call(r->client, words, 2, &reply, err);
    if (rc < 0) {
        return rc == ERR_INVALID ? 0 : rc; /* an answer: no permission */
    }
    const char *at =
        reply->kind == REPLY_TEXT ? memmem(reply->text.data, reply->text.len, name, sizeof name - 1) : NULL;
    if (at == NULL) {
        return 0;
    }
    *n = 0;
    for (at += sizeof name - 1; at < reply->text.data + reply->text.len && *at >= '0' && *at <= '9'; at++) {
        *n = *n * 10 + (uint64_t)(*at - '0');
    }
    return 1;
}

int import_remote_open(const char *address, const char *password, struct import_remote **remote, int64_t *retention,
                       struct err *err)
{
    struct import_remote *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = client_connect(address, password, &r->client, err);
    if (rc == 0) {
        rc = wait_loaded(r, err);
    }
    if (rc == 0) {
        rc = ask_retention(r, address, retention, err);
    }
    if (rc == 0) {
        rc = ask_forgotten(r, &r->forgotten, err);
        r->counts = rc == 1;
    }
    if (rc < 0) {
        import_remote_close(r);
        return rc;
    }
    *remote = r;
    return 0;
}

void import_remote_close(struct import_remote *r)
{
    if (r != NULL) {
        client_close(r->client);
        free(r);
    }
}

/* Reads answers until at most `left` are to come. */
static int collect(struct import_remote *r, size_t left, struct import_tally *tally, struct err *err)
{
    while (r->n_sent > left) {
        const struct reply *reply;
        int rc = client_read(r->client, &reply, err);
        if (rc < 0) {
            return rc;
        }
        if (reply->kind == REPLY_ERROR) {
            char text[sizeof(err->text)];
            slice_show(reply->text, text, sizeof text);
            /* Another code than ERR (BUSY, FULL, NOAUTH) is no fault of the event. */
            if (strncmp(text, "ERR ", 4) != 0) {
                return err_set(err, ERR_BUSY, "%s: the server answered: %s", client_address(r->client), text);
            }
            import_tally_refused(tally, r->sent[r->oldest].file, r->sent[r->oldest].line, r->sent[r->oldest].n, text);
        } else if (reply->kind != REPLY_INTEGER || reply->integer < 0) {
            return err_set(err, ERR_INVALID, "%s: the server answered something else than a number to PLAYEDAT",
                           client_address(r->client));
        }
        r->oldest = (r->oldest + 1) % PIPELINE_MAX;
        r->n_sent--;
    }
    return 0;
}

/* Sends the words that are there, whose answer will be counted for n items of file:line. */
static int send_words(struct import_remote *r, size_t n_words, const char *file, uint64_t line, size_t n,
                      struct import_tally *tally, struct err *err)
{
    if (r->n_sent == PIPELINE_MAX) {
        int rc = collect(r, PIPELINE_MAX / 2, tally, err);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = client_queue(r->client, r->words, n_words, err);
    if (rc < 0) {
        return rc;
    }
    size_t at = (r->oldest + r->n_sent++) % PIPELINE_MAX;
    r->sent[at].file = file;
    r->sent[at].line = line;
    r->sent[at].n = n;
    return 0;
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

int import_remote_end(struct import_remote *r, struct import_tally *tally, struct err *err)
{
    uint64_t forgotten = r->forgotten;
    int rc = import_remote_flush(r, tally, err);
    rc = rc < 0 ? rc : collect(r, 0, tally, err);
    rc = rc < 0 || !r->counts ? rc : ask_forgotten(r, &forgotten, err);
    if (rc >= 0 && forgotten > r->forgotten) {
        import_tally_forgotten(tally, forgotten - r->forgotten);
        r->forgotten = forgotten;
    }
    return rc < 0 ? rc : 0;
}
