/* HTTP, for health checks, metrics, the page and people without a Redis client: one more protocol on the connections
 * of src/net (conn.h), on a worker of its own (worker.h), so that reading JSON never holds up RESP.
 *
 *   http_open()      binds; the server takes the listeners and starts the worker, see resp/server.h
 *   ...
 *   server_free()
 *   http_free()
 *
 * To add a resource: a row in http/routes.c, a line in http/handlers.h, a file with its handler, and its description in
 * etc/openapi.json, which the tests hold against the table and the server. A handler reads what it needs from the
 * request and puts status, type and body into it; or makes a request of the service (http/submit.h), which answers.
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
#include "net/listener.h"
#include "net/loop_queue.h"
#include "service/service.h"

struct http;

enum {
    HTTP_CLIENTS_MAX = 256,                     /* connections; one more takes the place of one that says nothing */
    HTTP_FILES = HTTP_CLIENTS_MAX + ROOM_SPARE, /* open files it may need */
    HTTP_BODY_MAX = 4 * 1024 * 1024,            /* bytes of a request's body */
    HTTP_ANSWER_SMALL = 16 * 1024,              /* such an answer is sent however short memory is: health, problems */
    HTTP_PATIENCE_MS = 60 * 1000,               /* for the next request; see conn.h for the rest */
};

/* --- the process's side --- */

/* Binds cfg->http and adds to the listeners, for server_start(); "none": *http is NULL, which http_free() takes. cfg
 * outlives it. Returns 0, ERR_INVALID, ERR_SYSTEM (can't be bound; what was bound stays), ERR_NOMEM. */
int http_open(const struct config *cfg, struct listeners *listeners, struct http **http, struct err *err);

void http_free(struct http *http); /* after server_free() */

/* --- the handlers' side; all on the worker's thread --- */

struct http_request;

enum http_outcome {
    HTTP_DONE,  /* the answer is in the request */
    HTTP_LATER, /* the service will answer */
};

enum {
    HTTP_ANY_HOST = 1, /* whatever name it is asked for by: it tells nothing */
    HTTP_NO_STORE = 2, /* answered also while the store recovers: then rq->dedup and rq->asker are NULL */
    HTTP_BYTES = 4,    /* its body is application/octet-stream, not JSON */
};

struct http_route {
    const char *method; /* GET answers HEAD too */
    const char *path;   /* "/v1/users/{}": {} stands for the last segment, whatever it holds */
    enum http_outcome (*run)(struct http_request *rq);
    unsigned role; /* enum account_role (service/account.h): what it needs */
    unsigned flags;
};
extern const struct http_route http_routes[]; /* ends with a row of NULLs */

struct http_request {
    /* What was asked. Good until the handler returns. */
    const char *method;
    struct slice path;  /* as it came, still percent-encoded; without the query */
    struct slice query; /* behind the '?', as it came; empty when there is none */
    struct slice param; /* what stands for {}, decoded: any bytes */
    struct slice body;

    /* Who answers. */
    const struct config *cfg;  /* live options are read through config_now() */
    struct worker_pool *pool;  /* counters, uptime */
    const struct dedup *dedup; /* NULL while the store recovers */
    struct asker *asker;       /* this thread's */
    struct slice *items;       /* scratch for FIELDS_SLICES, until the handler returns */

    /* The answer. */
    unsigned status;  /* 200 unless set */
    const char *type; /* "application/json" unless set; a constant */
    struct buf out;

    struct http *http;
    const struct account *account; /* who asks; NULL: not known */
    struct http_conn *conn;        /* it came on */
    struct http_asked *asked;      /* of the service; NULL: nothing */
    struct http_batch *batch;      /* the same, about many users (batch.h) */
};

/* Adds a header to the answer. name is a constant; value is copied. Not for Content-Type, Content-Length, Date and
 * Connection, which are seen to. */
void http_header(struct http_request *rq, const char *name, const char *value);

/* The next argument of the query, decoded as those of forms (a '+' is a space) into *name and *value, which stand in
 * the request's memory. *at begins at 0. Returns 1, 0 at the end, or ERR_INVALID (a bad %xx). */
int http_argument(struct http_request *rq, size_t *at, struct slice *name, struct slice *value);

/* Makes the answer an error in the form of RFC 9457 (application/problem+json) and returns HTTP_DONE. kind names it for
 * programs ("bad-json"), the text says for people what, where and what was expected. */
enum http_outcome http_problem(struct http_request *rq, unsigned status, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same where nothing is to be found, which is no error. */
enum http_outcome http_nothing(struct http_request *rq, const char *kind, const char *text);

/* The same from an error of dedup or of the store, by service/refusal.h; write: of what was to be recorded. */
enum http_outcome http_refuse(struct http_request *rq, const struct err *err, bool write);
enum http_outcome http_fail(struct http_request *rq, const struct err *err);

/* Appends the error of a part of an answer, a question, which goes on: the same object, counted the same. */
void http_add_problem(struct http_request *rq, const struct err *err, struct buf *out);

/* Counts in the same counters as the workers do. */
void http_count(struct http_request *rq, enum counter counter, uint64_t n);

#endif
