/* What the files of this folder share: the server, its connections, their calls.
 *
 *   conn.c       a connection: bytes to HTTP/2 and back, what it may hold, when it ends
 *   h2.c         nghttp2's side: streams, headers, data, trailers, and what a peer may not do too often
 *   h2_memory.c  what nghttp2 holds
 *   call.h       a call: its messages, one after the other, become requests of the service, and their outcomes replies
 *   call_many.c  a call about many users, whose requests are a batch of the service's
 *   call_pools.c what pools there are
 *   message.h    a message's bytes
 *
 * A connection takes in bytes as long as the calls they belong to can be gone on with. What has come of a message is
 * kept by its call, charged to the connection, and asked for before the peer is allowed to send the rest: windows are
 * opened for what has a place. Replies wait in their calls, and leave as the peer's windows and its socket take them.
 */
#ifndef UNSEEN_GRPC_SERVER_H
#define UNSEEN_GRPC_SERVER_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "grpc/call.h"
#include "grpc/grpc.h"
#include "net/conn.h"
#include "net/listener.h"
#include "net/worker.h"
#include "service/service.h"

enum {
    GRPC_STREAMS_MAX = 256,             /* open calls of a connection */
    GRPC_WINDOW = 1024 * 1024,          /* of a connection, before it has said what for it needs more. Dubbo 3.2 breaks
                                           one that has none left while a call on it has */
    GRPC_WINDOW_MAX = 16 * 1024 * 1024, /* of a connection, */
    GRPC_WINDOW_STREAM = 1024 * 1024,   /* and of a call */
    GRPC_HEADERS_MAX = 16 * 1024,       /* bytes of a call's headers */
    GRPC_PING_MS = 10 * 1000,           /* between two pings: ours, and a client's that sends nothing else */
    GRPC_PING_STRIKES = 2,              /* unanswered, or too early */
    GRPC_CALM_BURST = 1000,             /* frames that do nothing, and */
    GRPC_CALM_RATE = 100,               /* so many more a second */
};

/* A worker's. */
struct grpc_loop {
    struct slice *items; /* of the message at hand: FIELDS_SLICES */
    struct call *spare;  /* calls for next time */
    size_t n_spare;
    char *frame; /* of all sessions: h2_memory.c */
    size_t frame_size;
};

struct grpc {
    struct conn_ops ops; /* the first: a connection finds its server by it */
    const struct config *cfg;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct grpc_loop *loops; /* by the worker's index */
    int n_loops;
};

struct grpc_conn {
    struct conn conn;
    nghttp2_session *session;
    struct call *calls;                  /* all, also those that are cancelled and whose request is late */
    struct call *work_first, *work_last; /* that can be gone on with */
    struct pending *pending;             /* a ring */
    size_t pending_at, n_pending, pending_cap;
    size_t session_bytes, session_least; /* held by nghttp2; when nothing goes on */
    bool frame_shared;
    size_t held;   /* by calls, */
    size_t owed;   /* of these for replies, there or to come */
    bool full;     /* calls are blocked because of it */
    size_t coming; /* bytes of begun messages that have a place, and did not come yet */
    int32_t window;
    int64_t called_ms; /* when its last call came, or it did */
    int64_t ping_ms;   /* when ours was sent that is not answered; 0: there is none */
    int pings;         /* unanswered */
    int64_t pinged_ms;
    int strikes;   /* pings of the client that came too early */
    bool has_sent; /* headers or data, since its last one */
    int64_t calm_ms;
    int calm; /* frames that do nothing, and may still come */
    bool draining;
    bool broken; /* what came is not to be understood */
};

static inline struct grpc_conn *grpc_conn_of(struct conn *c)
{
    return (struct grpc_conn *)c;
}
static inline struct grpc *grpc_of(const struct conn *c)
{
    return (struct grpc *)c->ops;
}
static inline struct grpc_loop *grpc_loop_of(const struct conn *c)
{
    return &grpc_of(c)->loops[c->worker->index];
}

/* conn.c */
extern const struct conn_ops grpc_conn_ops;
void grpc_charge(struct grpc_conn *s);       /* what it holds has changed */
bool grpc_is_full(const struct call *call);  /* replies of other calls pile up: this one is not begun */
void grpc_work_add(struct call *call);       /* its input() goes on with it, which its caller sees to */
void grpc_work_first(struct call *call);     /* the same, before what waits */
bool grpc_pending_room(struct grpc_conn *s); /* for one more; false: no memory */
void grpc_pending_add(struct call *call, uint64_t tag, int64_t count); /* there was room */

/* h2.c: HTTP/2, on nghttp2. Returns 0, or ERR_NOMEM. */
int h2_init(struct grpc *g);
void h2_end(struct grpc *g);
nghttp2_mem h2_memory(struct grpc_conn *s); /* h2_memory.c */
int h2_open(struct grpc_conn *s);
void h2_close(struct grpc_conn *s);

/* Takes in so many bytes. Those of an ended connection are taken too. */
void h2_feed(struct grpc_conn *s, struct slice bytes);

/* Appends to out what there is to send, about so many bytes at most. Returns whether there may be more. */
bool h2_pull(struct grpc_conn *s, size_t most);

void h2_credit(struct call *call, size_t bytes);  /* the peer may send so many more */
void h2_window(struct grpc_conn *s, size_t size); /* what it may send over all calls */
void h2_reply(struct call *call);                 /* something was appended to its reply, or its status was set */
void h2_cancel(struct call *call);                /* no answer is left to be given */
void h2_ping(struct grpc_conn *s);
void h2_goaway(struct grpc_conn *s);
void h2_calm(struct grpc_conn *s, const char *what); /* the peer overdoes it: ends */

#endif
