/* HTTP, for health checks, metrics, the page and people without a Redis client. Off the hot path: one thread of its
 * own, with its own loop, on which libmicrohttpd runs, and on which every handler runs.
 *
 * Order of a process's life, beside that of resp/server.h:
 *
 *   server_start(), http_start()      the ports open; what needs no store is answered
 *   server_attach(), http_attach()    all is answered
 *   http_stop(), server_stop()        nothing new is accepted, what the store already holds is answered
 *   store close
 *   http_free(), server_free()
 *
 * To add a resource: a row in http/routes.c, a line in http/handlers.h, a file with its handler, and its description in
 * etc/openapi.json, which the tests hold against the table and the server. A handler reads what it needs from the
 * request and puts status, type and body into it. It never blocks: what needs an answer of the store takes a task
 * (http_task_new) and returns HTTP_LATER, while the connection is suspended.
 */
#ifndef UNSEEN_HTTP_HTTP_H
#define UNSEEN_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "dedup/dedup.h"
#include "dedup/sessions.h"
#include "net/loop_queue.h"
#include "service/service.h"

struct http;

enum {
    HTTP_ADDRESS_TEXT = LISTENER_TEXT + 8,
    HTTP_CLIENTS_MAX = 256,  /* connections; one more takes the place of one that says nothing */
    HTTP_CLIENTS_SPARE = 32, /* for moments, until that is gone; beyond, they wait until they are accepted */
    HTTP_FILES = 2 * HTTP_CLIENTS_MAX + HTTP_CLIENTS_SPARE, /* open files it may need */
    HTTP_BODY_MAX = 4 * 1024 * 1024,                        /* bytes of a request's body */
    /* Of all bodies that are being read or are on their way to the store, and of answers that are being sent: a quarter
     * of request_memory, within these. */
    HTTP_HELD_MIN = 2 * HTTP_BODY_MAX,
    HTTP_HELD_MAX = 64 * 1024 * 1024,
    HTTP_ANSWER_SMALL = 16 * 1024, /* such an answer is sent however short memory is: health, problems */
    HTTP_PATIENCE_MS = 60 * 1000,  /* for a request to come whole, for a reply to be read, for the next request */
    HTTP_STOP_MS = 5 * 1000,       /* how long http_stop() waits for the store and for slow readers */
};

/* --- the process's side; called from one thread --- */

/* Binds cfg->http ("none": *http is NULL, which all functions below take) and starts the thread. cfg and the worker
 * pool outlive it. Returns 0, ERR_INVALID, ERR_SYSTEM (can't be bound), ERR_NOMEM. */
int http_start(const struct config *cfg, struct worker_pool *pool, struct http **http, struct err *err);

/* The store has recovered: opens an asker and hands it over. dedup outlives http_stop(). */
int http_attach(struct http *http, const struct dedup *dedup, struct err *err);

/* "http://127.0.0.1:7980", NULL when there is none. */
const char *http_address(const struct http *http);

void http_stop(struct http *http); /* blocks; closes the asker */
void http_free(struct http *http); /* after the store was closed, so that no task is with it any more */

/* --- the handlers' side; all on the HTTP thread --- */

struct http_request;

enum http_outcome {
    HTTP_DONE,  /* the answer is in the request */
    HTTP_LATER, /* a task will answer */
};

enum {
    HTTP_NO_AUTH = 1,  /* answered without the password */
    HTTP_ANY_HOST = 4, /* whatever name it is asked for by: it tells nothing */
    HTTP_NO_STORE = 2, /* answered also while the store recovers: then rq->dedup and rq->asker may be NULL */
};

struct http_route {
    const char *method; /* GET answers HEAD too */
    const char *path;   /* "/v1/users/{}": {} stands for the last segment, whatever it holds */
    enum http_outcome (*run)(struct http_request *rq);
    unsigned flags;
};
extern const struct http_route http_routes[]; /* ends with a row of NULLs */

struct http_request {
    /* What was asked. Good until the answer is given; a task that outlives the handler keeps copies. */
    const char *method;
    struct slice path;  /* as it came, still percent-encoded; without the query */
    struct slice query; /* behind the '?', as it came; empty when there is none */
    struct slice param; /* what stands for {}, decoded: any bytes */
    struct slice body;

    /* Who answers. */
    const struct config *cfg;    /* live options are read through config_now() */
    struct worker_pool *pool;    /* counters, uptime */
    const struct dedup *dedup;   /* NULL while the store recovers */
    struct asker *asker;         /* this thread's */
    struct slice *items;         /* scratch for ITEMS_MAX, until the handler returns */
    uint64_t *hashes;            /* the same */
    uint8_t *bits;               /* ITEMS_MAX / 8 */
    struct session_set *blocked; /* a session's ids, until the handler returns */

    /* The answer. */
    unsigned status;  /* 200 unless set */
    const char *type; /* "application/json" unless set; a constant */
    struct buf out;

    struct http_part *part; /* request.c's own */
};

/* Adds a header to the answer. name is a constant; value is copied. Not for Content-Type, Content-Length, Date and
 * Connection, which are seen to. */
void http_header(struct http_request *rq, const char *name, const char *value);

/* The next argument of the query, decoded into *name and *value, which stand in the request's memory. *at begins at 0.
 * Returns 1, 0 at the end, or ERR_INVALID (a bad %xx). */
int http_argument(struct http_request *rq, size_t *at, struct slice *name, struct slice *value);

/* Makes the answer an error in the form of RFC 9457 (application/problem+json) and returns HTTP_DONE. kind names it for
 * programs ("bad-json"), the text says for people what, where and what was expected. */
enum http_outcome http_problem(struct http_request *rq, unsigned status, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same from an error of dedup or of the store. */
enum http_outcome http_fail(struct http_request *rq, const struct err *err);

/* Counts in the same counters as the workers do. */
void http_count(struct http_request *rq, enum counter counter, uint64_t n);

/* What the store is at for a request, embedded as the first member of a struct of the handler's. It is allocated
 * zeroed, handed to the store, and ends, on a thread of the store, with http_task_done(). Then, on the HTTP thread,
 * answer() puts the answer into the request, which is NULL when the server has given up waiting (so answer() also frees
 * what the task holds), and the task's memory goes. */
struct http_task {
    struct loop_message message;
    struct http *http;
    struct http_request *rq;
    size_t held;
    void (*answer)(struct http_task *task, struct http_request *rq);
};
/* `held`: how much memory it takes in all. NULL when there is none: then the answer is there already (HTTP_DONE). */
void *http_task_new(struct http_request *rq, size_t size, size_t held,
                    void (*answer)(struct http_task *task, struct http_request *rq));
void http_task_done(struct http_task *task); /* any thread */

#endif
