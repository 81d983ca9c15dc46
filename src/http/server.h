/* What the files of this folder share: the server, its connections, the insides of a request. */
#ifndef UNSEEN_HTTP_SERVER_H
#define UNSEEN_HTTP_SERVER_H

#include <microhttpd.h>
#include <pthread.h>
#include <uv.h>

#include "base/heartbeat.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/timeline.h"
#include "net/address.h"

struct http_conn;

struct http {
    const struct config *cfg;
    struct worker_pool *pool;
    char address[HTTP_ADDRESS_TEXT];
    int listener; /* -1: libmicrohttpd's, or closed */

    pthread_t thread;
    struct heartbeat heartbeat;
    bool has_thread, has_loop, has_queue;
    uv_loop_t loop;
    struct loop_queue queue;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;  /* libmicrohttpd's epoll */
    uv_timer_t soon; /* when it has more to do than the sockets say */
    uv_timer_t tick; /* each second: who was too slow? */
    uv_timer_t deadline;

    const struct dedup *dedup; /* NULL while the store recovers */
    struct asker *asker;
    struct slice *items;
    uint64_t *hashes;
    uint8_t *bits;
    struct session_set blocked;

    struct http_meter meter;
    struct timeline timeline;
    struct http_conn *conns;
    struct http_linger *lingerers;
    size_t n_lingerers;
    size_t held;      /* bytes of bodies and tasks */
    size_t n_active;  /* requests between their last byte and that of the answer */
    size_t n_conns;   /* open, but for those that are leaving */
    bool is_loopback; /* it listens where only this machine reaches it */
    bool stopping, stopped;
};

/* What a connection waits for, and since when. */
enum http_phase { PHASE_READING, PHASE_WORKING, PHASE_SENDING };

struct http_conn {
    char address[ADDRESS_TEXT]; /* of the client */
    struct http *http;
    struct http_conn *next, *prev;
    int fd;        /* libmicrohttpd's */
    int linger_fd; /* a copy of it, to read on behind a refusal; -1: none */
    enum http_phase phase;
    int64_t since_ms; /* monotonic */
    bool silent;      /* between two requests: there is nobody to tell */
    bool leaving;     /* we have shut it, and libmicrohttpd has still to see it */
    uint64_t peer;
    int64_t wake_ms; /* suspended until its turn to give a password; 0: it is not */
    struct http_request *rq;
};

struct http_part {
    struct http *http;
    struct http_conn *conn;
    struct MHD_Connection *mhd;
    const struct http_route *route;
    char *uri;          /* the request's line's, owned; query and param are decoded within */
    struct buf body;    /* body points into it, once it is whole */
    size_t held;        /* told to http->held */
    size_t dropped;     /* bytes of a body that was refused */
    struct buf headers; /* of the answer: name, NUL, value, NUL, ... */
    struct http_task *task;
    int64_t arrived_us; /* when it was whole, or refused, by the stopwatch */
    bool begun;         /* the headers were seen */
    bool waited;        /* for its turn to give a password */
    bool admitted;      /* and the password was right, where one is needed; or it is refused */
    bool answered;      /* the answer is in out */
    bool closing;       /* the connection ends with the answer */
    bool active;        /* counted in n_active */
};

/* request.c: libmicrohttpd's callbacks, and what becomes of a request. */
void *request_new(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result request_go_on(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_len, void **state);
void request_end(void *cls, struct MHD_Connection *mhd, void **state, enum MHD_RequestTerminationCode code);
void request_drop_body(struct http_request *rq); /* its connection is leaving */
void request_resume(struct http_request *rq);    /* it was answered while it was suspended */
size_t request_keep_encoded(void *cls, struct MHD_Connection *mhd, char *text);

/* conn.c: connections. */
void http_conn_notify(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code);
void http_conn_phase(struct http_conn *c, enum http_phase phase);
void http_conn_linger(struct http_conn *c); /* once it is closed, what still comes is thrown away for a moment */
void http_conn_refuse(struct http_conn *c, struct http_request *rq); /* sends rq's answer past libmicrohttpd */
void http_conn_tick(struct http *h);
void http_conn_wait(struct http_conn *c, int64_t ms); /* suspends it, and goes on with its request then */
void http_conn_wake_all(struct http *h);              /* at once */

/* Room for so many bytes more of bodies, tasks and answers: ends what is stalled where it must. False: there is none.
 */
bool http_room(struct http *h, size_t more);
void http_lingerers_close(struct http *h);

/* server.c */
void http_run(struct http *h);      /* lets libmicrohttpd work now; not from within its callbacks */
void http_run_soon(struct http *h); /* at the next turn of the loop */

/* routes.c: finds the row, and sets rq->param. NULL: none; *allowed says which methods the path takes, "" none. */
const struct http_route *route_find(struct http_request *rq, char allowed[64]);

/* api_timeline.c: what is counted now, of which the time line may keep a mark; and that once, for each second. */
void http_timeline_look(struct http *h, struct timeline_mark *out);
void http_timeline_tick(struct http *h);
/* host.c: whether a header Host names an address, localhost, or one of the names that http_hosts lists. */
bool host_is_ours(const char *header, const char *extra);

/* auth.c: whether the header Authorization holds the password. */
bool auth_right(const char *password, const char *header);

#endif
