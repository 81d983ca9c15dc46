/* What the files of this folder share: the worker's state, its connections, the insides of a request. */
#ifndef UNSEEN_HTTP_SERVER_H
#define UNSEEN_HTTP_SERVER_H

#include <stdatomic.h>

#include "base/log.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/parser.h"
#include "http/spans.h"
#include "http/timeline.h"
#include "service/account.h"
#include "store/memos.h"

/* Beside what its worker has; touched on that thread alone. */
struct http {
    struct worker_side side;
    const struct config *cfg;

    struct http_meter meter;
    struct timeline timeline;
    struct spans spans;
    struct {                        /* spans kept in the store, api_timeline.c */
        struct store_memo memos[2]; /* a day, a month */
        struct buf texts[2];
        _Atomic int under_way; /* memos that the store has */
        _Atomic bool failed;   /* one of the last ones */
        bool read, told;       /* what was kept is here; that reading or keeping fails was logged */
    } kept;

    /* For the request at hand. */
    struct head head;
    char head_text[HEAD_MAX + 1];
    const struct http_conn *head_of; /* whose head that is; NULL: its connection is gone */
    struct slice *items;
    struct buf last_word;
    struct log_recent warnings[LOG_RECENT];
};

/* A connection, and its one request. The request's bytes stay where the connection has them until all have come, so
 * that they are charged, waited for and given up as any others are; only a body that is not wanted goes as it comes. */
struct http_conn {
    struct conn conn;
    struct http_request rq;
    const struct http_route *route; /* NULL: there is none for it */
    size_t seen;                    /* bytes of the head, which is not whole yet */
    size_t head_len;                /* 0: it is not */
    size_t length;                  /* of the body, as it was declared, or what is left of one that is not wanted */
    struct chunks chunks;           /* instead, when it is chunked */
    size_t scanned;                 /* bytes of these */
    struct buf headers;             /* of the answer: name, NUL, value, NUL, ... */
    struct account_login login;
    size_t lent;     /* bytes that the service holds of it */
    bool login_told; /* a late one: the head is read again */
    bool chunked;
    bool gzip;     /* the body is to be inflated */
    bool is_head;  /* the answer has no body */
    bool old;      /* HTTP/1.0 */
    bool closing;  /* the connection ends with the answer */
    bool dropping; /* the answer is there, and waits for the end of the body */
    bool working;  /* the service will answer */
    bool served;   /* a request before it */
};

extern const struct conn_ops http_conn_ops;

/* request.c: a request's way. */

/* Reads the head, of so many bytes: afterwards the request is refused (its status is set), or it is to be run once its
 * body is there. False: who asks is not known yet, and it is read again once that is. */
bool request_begin(struct http_conn *s, size_t head_len);

/* Inflates a body of gzip. False: it is refused: no gzip, too large, or there is no room for it now. */
bool request_inflate(struct http_conn *s, struct slice packed, struct buf *body);

/* All of it is there. True: it is answered; false: the service will do so. */
bool request_run(struct http_conn *s, struct slice body);

/* Appends the answer. */
void request_answer(struct http_conn *s, struct buf *to);

void request_no_memory(struct http_request *rq);

/* conn.c: the answer was put into the request, later. */
void http_conn_answered(struct http_conn *s);

/* routes.c: finds the row, and sets rq->param. NULL: none; *allowed says which methods the path takes, "" none. */
const struct http_route *route_find(struct http_request *rq, char allowed[64]);

/* problem.c: "Not Found" */
const char *status_phrase(unsigned status);

/* api_timeline.c: what is counted now, of which the time line may keep a mark; and that once, for each second. */
void http_timeline_look(const struct worker *w, struct timeline_mark *out);
void http_timeline_tick(struct worker *w);

/* host.c: whether a header Host names an address, localhost, or one of the names that http_hosts lists. */
bool host_is_ours(const char *header, const char *extra);

static inline struct http *http_of(const struct worker *w)
{
    return (struct http *)w->side;
}

#endif
