/* A ring of the commands without an answer: first those that were sent, in the order of their answers, then those that
 * are to be sent again. Once the answers to all that were sent are there, and some were refused, it waits a moment and
 * sends these; so it does with all of them when the connection is lost. */
#include "cli/lib/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

enum { STEP_MS = 100, KEEP_BYTES = 64 * 1024 };

struct sent {
    struct buf bytes; /* as RESP has the command */
    struct pipeline_note note;
};

struct pipeline {
    struct pipeline_how how;
    struct client *client; /* NULL: the connection is lost */
    bool met;              /* and all was said over it that comes first */
    struct sent ring[PIPELINE_MAX];
    size_t oldest, n, on_wire, bytes;
    struct err trouble; /* the last; code 0: none since the last answer */
    int64_t busy_since_ms, gone_since_ms;
};

static int64_t now_ms(void)
{
    return clock_real_us() / 1000;
}

static struct sent *at(struct pipeline *p, size_t i)
{
    return &p->ring[(p->oldest + i) % PIPELINE_MAX];
}

static void say(const struct pipeline *p, const char *what, const char *more)
{
    if (p->how.label != NULL) {
        progress_say(p->how.progress, "%s: %s%s\n", p->how.label, what, more);
    }
}

/* --- trouble --- */

/* Told once, until something is answered again. */
static void note_trouble(struct pipeline *p, const struct err *err)
{
    if (p->trouble.code == 0) {
        p->busy_since_ms = now_ms();
        say(p, err->text, "; trying again");
    }
    p->trouble = *err;
}

static void end_trouble(struct pipeline *p)
{
    if (p->trouble.code != 0) {
        say(p, p->how.address, " answers again");
    }
    p->trouble = (struct err){0};
}

static void lose(struct pipeline *p, const struct err *err)
{
    note_trouble(p, err);
    p->gone_since_ms = now_ms();
    client_close(p->client);
    p->client = NULL;
    p->met = false;
    p->on_wire = 0;
}

static bool passes(int code)
{
    return code == ERR_SYSTEM || code == ERR_CLOSED || code == ERR_LOADING;
}

/* --- the connection --- */

static int connect_once(struct pipeline *p, struct err *err)
{
    int rc = p->client == NULL ? client_connect_user(p->how.address, p->how.user, p->how.password, &p->client, err) : 0;
    if (rc < 0) {
        return rc;
    }
    rc = p->how.meet != NULL ? p->how.meet(p->how.arg, p->client, err) : 0;
    p->met = rc == 0;
    if (rc < 0 && rc != ERR_LOADING) {
        client_close(p->client);
        p->client = NULL;
    }
    return rc;
}

static int give_up(const struct pipeline *p, int64_t ms, struct err *err)
{
    return err_set(err, p->trouble.code, "%s, and so for %d s", p->trouble.text, (int)(ms / 1000));
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000 * 1000}, NULL);
}

/* Until there is a connection. */
static int connect_again(struct pipeline *p, struct err *err)
{
    while (!p->met) {
        struct err why = {0};
        int rc = connect_once(p, &why);
        if (rc < 0 && !passes(rc)) {
            return err_set(err, rc, "%s", why.text);
        }
        if (rc < 0) {
            note_trouble(p, &why);
            p->gone_since_ms = rc == ERR_LOADING ? now_ms() : p->gone_since_ms;
            if (now_ms() - p->gone_since_ms >= PIPELINE_GONE_MS) {
                return give_up(p, PIPELINE_GONE_MS, err);
            }
            if (now_ms() - p->busy_since_ms >= PIPELINE_BUSY_MS) {
                return give_up(p, PIPELINE_BUSY_MS, err);
            }
            nap();
        }
    }
    return 0;
}

int pipeline_open(const struct pipeline_how *how, struct pipeline **pipeline, struct err *err)
{
    struct pipeline *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    p->how = *how;
    int rc = connect_once(p, err);
    if (rc == ERR_LOADING && how->effort != PIPELINE_ONCE) {
        p->gone_since_ms = now_ms();
        rc = connect_again(p, err);
        end_trouble(p);
    }
    if (rc < 0) {
        pipeline_close(p);
        return rc;
    }
    *pipeline = p;
    return 0;
}

void pipeline_close(struct pipeline *p)
{
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < PIPELINE_MAX; i++) {
        buf_free(&p->ring[i].bytes);
    }
    client_close(p->client);
    free(p);
}

const char *pipeline_address(const struct pipeline *p)
{
    return p->how.address;
}

/* --- sending --- */

size_t pipeline_length(const struct pipeline *p)
{
    return p->n;
}

bool pipeline_is_full(const struct pipeline *p)
{
    return p->n == PIPELINE_MAX || p->bytes >= PIPELINE_BYTES;
}

static void swap(struct sent *a, struct sent *b)
{
    struct sent old = *a;
    *a = *b;
    *b = old;
}

/* The first of those that are not. */
static int put_on_wire(struct pipeline *p, struct err *err)
{
    int rc = client_queue_encoded(p->client, buf_slice(&at(p, p->on_wire)->bytes), err);
    p->on_wire += rc == 0;
    return rc;
}

/* Whether it goes on in spite of that: then the connection is a thing of the past. */
static int survive(struct pipeline *p, int rc, struct err *err)
{
    if (p->how.effort != PIPELINE_RESUMES || !passes(rc)) {
        return rc;
    }
    lose(p, err);
    *err = (struct err){0};
    return 0;
}

int pipeline_send(struct pipeline *p, const struct slice *words, size_t n, const struct pipeline_note *note,
                  struct err *err)
{
    struct sent *last = at(p, p->n);
    buf_clear(&last->bytes);
    if (client_encode(words, n, &last->bytes) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a command");
    }
    last->note = *note;
    p->bytes += last->bytes.len;
    swap(last, at(p, p->on_wire)); /* before those that are to be sent again, in whatever order */
    p->n++;
    int rc = p->met ? put_on_wire(p, err) : 0;
    return rc < 0 ? survive(p, rc, err) : 0;
}

/* All of them, a moment later. */
static int send_again(struct pipeline *p, struct err *err)
{
    if (now_ms() - p->busy_since_ms >= PIPELINE_BUSY_MS) {
        return give_up(p, PIPELINE_BUSY_MS, err);
    }
    nap();
    int rc = connect_again(p, err);
    while (rc == 0 && p->met && p->on_wire < p->n) {
        rc = put_on_wire(p, err);
        rc = rc < 0 ? survive(p, rc, err) : 0;
    }
    return rc;
}

/* --- answers --- */

/* A refusal that ends by itself; in *err then, with the server's words. */
static bool is_refused(const struct pipeline *p, const struct reply *reply, struct err *err)
{
    static const struct {
        const char *word;
        int code;
    } words[] = {{"BUSY", ERR_BUSY}, {"LOADING", ERR_LOADING}};
    for (size_t i = 0; reply->kind == REPLY_ERROR && i < sizeof words / sizeof *words; i++) {
        const size_t len = strlen(words[i].word);
        if (reply->text.len > len && memcmp(reply->text.data, words[i].word, len) == 0 &&
            reply->text.data[len] == ' ') {
            char text[sizeof err->text];
            slice_show(reply->text, text, sizeof text);
            err_set(err, words[i].code, "%s: the server answered: %s", p->how.address, text);
            return true;
        }
    }
    return false;
}

static int read_reply(struct pipeline *p, const struct reply **reply, struct err *err)
{
    int rc = p->how.effort == PIPELINE_ONCE ? 1 : client_wait(p->client, PIPELINE_SILENCE_MS, err);
    return rc == 0
               ? err_set(err, ERR_SYSTEM, "%s says nothing for %d minutes", p->how.address, PIPELINE_SILENCE_MS / 60000)
           : rc < 0 ? rc
                    : client_read(p->client, reply, err);
}

/* The oldest one, behind all others. */
static void put_back(struct pipeline *p)
{
    swap(at(p, 0), at(p, p->n)); /* in a full ring its own place */
    p->oldest = (p->oldest + 1) % PIPELINE_MAX;
    p->on_wire--;
}

static void take_out(struct pipeline *p, struct pipeline_note *note)
{
    struct sent *oldest = at(p, 0);
    *note = oldest->note;
    p->bytes -= oldest->bytes.len;
    buf_clear(&oldest->bytes);
    buf_shrink(&oldest->bytes, KEEP_BYTES);
    p->oldest = (p->oldest + 1) % PIPELINE_MAX;
    p->n--;
    p->on_wire--;
}

int pipeline_next(struct pipeline *p, struct pipeline_note *note, const struct reply **reply, struct err *err)
{
    for (;;) {
        struct err refusal = {0};
        int rc = p->on_wire == 0 ? send_again(p, err) : 0;
        if (rc < 0) {
            return rc;
        }
        if (!p->met || p->on_wire == 0) { /* lost meanwhile */
            continue;
        }
        if ((rc = read_reply(p, reply, err)) < 0) {
            if ((rc = survive(p, rc, err)) < 0) {
                return rc;
            }
            continue;
        }
        if (p->how.effort != PIPELINE_ONCE && is_refused(p, *reply, &refusal)) {
            note_trouble(p, &refusal);
            put_back(p);
            continue;
        }
        end_trouble(p);
        take_out(p, note);
        return 0;
    }
}

int pipeline_answer(struct pipeline *p, struct pipeline_note *note, const struct reply **reply, struct err *err)
{
    int rc = pipeline_next(p, note, reply, err);
    if (rc == 0 && (*reply)->kind == REPLY_ERROR) {
        char text[sizeof err->text];
        slice_show((*reply)->text, text, sizeof text);
        rc = err_set(err, ERR_INVALID, "%s: %s", p->how.address, text);
    }
    return rc;
}

int pipeline_call(struct pipeline *p, const struct slice *words, size_t n, const struct reply **reply, struct err *err)
{
    struct pipeline_note note = {0};
    int rc = pipeline_send(p, words, n, &note, err);
    return rc < 0 ? rc : pipeline_answer(p, &note, reply, err);
}

int pipeline_push(struct pipeline *p, struct err *err)
{
    int rc = p->met ? client_wait(p->client, 0, err) : 0;
    return rc < 0 ? survive(p, rc, err) : 0;
}
