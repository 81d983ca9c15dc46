/* Commands of a subcommand that are under way with a running server; their answers come when they come. What the server
 * is too busy for (-BUSY, -LOADING) is sent once more, and so is, over a new connection, what had no answer when the
 * connection was lost. So each command has to be one that may come twice, and behind those that were sent after it. One
 * thread.
 */
#ifndef UNSEEN_CLI_LIB_PIPELINE_H
#define UNSEEN_CLI_LIB_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/lib/progress.h"
#include "net/client.h"

enum {
    PIPELINE_MAX = 2048,                 /* commands without an answer, */
    PIPELINE_BYTES = 16 * 1024 * 1024,   /* and their bytes, beyond which only an answer makes room */
    PIPELINE_BUSY_MS = 10 * 60 * 1000,   /* so long nothing but refusals come: the server may wait for its disk */
    PIPELINE_GONE_MS = 60 * 1000,        /* so long there is no server */
    PIPELINE_SILENCE_MS = 10 * 60 * 1000 /* so long it says nothing: a LOAD takes as long as it takes */
};

enum pipeline_effort {
    PIPELINE_RESUMES, /* as said above */
    PIPELINE_REPEATS, /* refusals alone: what is under way ends with its connection */
    PIPELINE_ONCE,    /* nothing is sent again: a refusal is an answer */
};

struct pipeline_how {
    const char *address, *user, *password; /* of client_connect_user(); these outlive the pipeline */
    enum pipeline_effort effort;
    /* After each connection, before anything else is said; NULL: nothing. ERR_LOADING: it is called again. */
    int (*meet)(void *arg, struct client *client, struct err *err);
    void *arg;
    const char *label; /* who tells on standard error that the server is away, or busy; NULL: that is not told */
    struct progress *progress; /* what is drawn there meanwhile, or NULL */
};

/* Whose command it is, for the caller. */
struct pipeline_note {
    const void *owner;
    uint64_t line;
    size_t n;
};

struct pipeline;

/* Connects; waits while the server is loading, but not for one that isn't there. how is copied. */
int pipeline_open(const struct pipeline_how *how, struct pipeline **pipeline, struct err *err);
void pipeline_close(struct pipeline *p); /* NULL is allowed */

const char *pipeline_address(const struct pipeline *p);
size_t pipeline_length(const struct pipeline *p); /* commands without an answer */
bool pipeline_is_full(const struct pipeline *p);  /* then pipeline_next() comes first */

/* The words are copied. */
int pipeline_send(struct pipeline *p, const struct slice *words, size_t n, const struct pipeline_note *note,
                  struct err *err);

/* Sends what is still queued here; no answer is waited for. */
int pipeline_push(struct pipeline *p, struct err *err);

/* The next answer, of one that is under way; an error reply is one. The reply lives until the next call. ERR_BUSY,
 * ERR_LOADING: for PIPELINE_BUSY_MS the server has refused all there was; ERR_SYSTEM, ERR_CLOSED: it is gone. */
int pipeline_next(struct pipeline *p, struct pipeline_note *note, const struct reply **reply, struct err *err);

/* The same, but an error reply is an error: ERR_INVALID, with the server's words. */
int pipeline_answer(struct pipeline *p, struct pipeline_note *note, const struct reply **reply, struct err *err);

/* One command, and that. Nothing else is under way. */
int pipeline_call(struct pipeline *p, const struct slice *words, size_t n, const struct reply **reply, struct err *err);

#endif
