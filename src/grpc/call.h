/* A call: one stream of HTTP/2, its messages, and what comes of them.
 *
 * A unary call's one message is run once its end has come; a stream's are run as they come, each handed to the service
 * before the one before it is durable, and answered in their order. An error is told behind the answers before it.
 *
 * A call that its peer gave up, or whose deadline has passed, is ended at once; what the service still does of it goes
 * on, and its outcome is dropped: so a write may have become durable. */
#ifndef UNSEEN_GRPC_CALL_H
#define UNSEEN_GRPC_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "grpc/message.h"
#include "service/account.h"
#include "service/refusal.h"

enum {
    GRPC_PREFIX = 5,                     /* bytes before a message: a flag, and its length */
    GRPC_MESSAGE_MAX = 16 * 1024 * 1024, /* bytes, as sent and inflated */
    GRPC_MESSAGE_NAME_MAX = 16 * 1024,   /* the same of health and reflection, who are asked about names */
    GRPC_AUTHORIZATION_MAX = 1024,       /* of that header */
    GRPC_PENDING_MAX = 1024 * 1024,      /* bytes of a stream's unanswered writes; above, none is taken */
    GRPC_UNREAD_MAX = 64 * 1024,         /* of replies that a stream's client does not read; above, the same */
};

struct call;
struct grpc_conn;
struct grpc_loop;

enum call_state {
    CALL_RECEIVING, /* its next message is not there, or waits */
    CALL_LATE,      /* the service will go on with it */
    CALL_PENDING,   /* what it recorded is not durable yet */
    CALL_WATCHING,  /* it is told what changes */
    CALL_ENDED,     /* its status is set */
};

enum call_step {
    STEP_ON,   /* goes on with the next message */
    STEP_DONE, /* nothing is left to do for now */
    STEP_WAIT, /* nothing was done: the connection waits */
};

struct call {
    struct grpc_conn *conn;
    struct call *next, *prev; /* of the connection */
    struct call *behind;      /* at work */
    bool at_work;
    int32_t stream; /* 0: the peer knows it no more */
    enum call_state state;

    /* What its headers say. */
    size_t header_bytes;
    unsigned refused; /* an HTTP status, for what is no call of ours; 0: it is one */
    bool is_post, is_grpc, gzip, unknown_encoding, has_timeout, bad_timeout;
    bool bad_version; /* of Connect's protocol */
    bool is_authorized, authorized_twice;
    bool is_plain; /* a message without prefix, see unary.h */
    int64_t timeout_us;
    size_t length;                                                /* of its body, as far as its headers say */
    enum call_step (*run)(struct call *call, struct slice bytes); /* its next message; NULL: there is no such method */
    const struct method *method;                                  /* NULL: of another service */
    bool is_stream;                                               /* of messages */
    struct buf authorization;
    struct account_login login;

    /* What came. */
    struct buf in;
    size_t at;         /* where its next message begins, */
    size_t prefix;     /* so many bytes stand before it, */
    size_t size;       /* and so many it has behind these */
    size_t unconsumed; /* bytes that the peer's windows are still to be opened for */
    size_t coming;     /* that have a place, and did not come yet */
    bool whole;        /* nothing more comes */
    int64_t arrived_us, deadline_us;

    /* What came of it. */
    struct request *late;
    struct batch *many; /* of FilterMany, once it has begun; NULL: no */
    size_t each;        /* bytes that each of its replies may take */
    bool binary;        /* its items are answered as bytes */
    bool arrived;       /* and it may go on */
    size_t lent;        /* bytes that the service holds of it, and those of the reply to come */
    size_t n_pending, pending_bytes;
    bool blocked;     /* a stream that takes no message for now: too much of it is not durable, or not read */
    int watched;      /* what was told last, */
    int watched_role; /* and of which enum health_role */
    struct buf reply;
    size_t sent;
    int64_t since_ms; /* when the message at hand or the reply began, or some of that went */
    bool headers_sent;
    bool deferred; /* nghttp2 asks for no more of it until told */
    enum grpc_status status;
    struct buf text;

    size_t held, owed; /* told to the connection */
};

/* One that was handed to the recorder. */
struct pending {
    struct call *call;
    uint64_t tag;
    int64_t count;
};

/* From h2.c: */
struct call *call_new(struct grpc_conn *s, int32_t stream); /* NULL: no memory */
void call_header(struct call *call, struct slice name, struct slice value);
void call_begin(struct call *call); /* its headers are there */
void call_data(struct call *call, struct slice bytes);
void call_whole(struct call *call);
void call_gone(struct call *call);      /* its stream is closed */
void call_drop_late(struct call *call); /* no client waits for what the service does of it */

/* From conn.c: goes on with it. False: the connection must wait. */
bool call_work(struct call *call);
void call_recorded(struct call *call, const struct pending *p, size_t bytes, const struct err *err);
void call_tick(struct call *call, int64_t now_ms);
void call_drain(struct call *call);  /* the server stops */
void call_settle(struct call *call); /* tells what it holds, or frees it if nothing needs it any more */
void call_free(struct call *call);
void call_drop_spare(struct grpc_loop *l);

/* Of each other. */
void call_end(struct call *call, enum grpc_status status, const char *text);              /* text: UTF-8, or NULL */
enum call_step call_refuse(struct call *call, enum grpc_status status, const char *text); /* counts it as an error */
void call_refuse_err(struct call *call, const struct err *err, bool write);
void call_count_error(struct call *call, const char *word, const char *text);
void call_count(struct call *call);    /* a message was answered */
bool call_may_read(struct call *call); /* there is memory to read a request into; false: there is none */
bool call_is_full(const struct call *call, unsigned share); /* its answers pile up: it takes no more */
void call_set_coming(struct call *call, size_t bytes);
enum call_step call_ran(struct call *call); /* the message at hand, where it was no request */
size_t call_begin_reply(struct call *call); /* what is appended to call->reply from here on is a message, */
void call_end_reply(struct call *call, size_t from);

/* The messages' kinds. */
enum call_step call_run_request(struct call *call, struct slice bytes);    /* call_run.c */
enum call_step call_run_many(struct call *call, struct slice bytes);       /* call_many.c */
enum call_step call_go_on_many(struct call *call);                         /* the same, once it has begun */
enum call_step call_run_pool_list(struct call *call, struct slice bytes);  /* call_pools.c */
enum call_step call_run_pool_get(struct call *call, struct slice bytes);   /* the same */
enum call_step call_run_check(struct call *call, struct slice bytes);      /* services.c */
enum call_step call_run_watch(struct call *call, struct slice bytes);      /* the same */
enum call_step call_run_reflection(struct call *call, struct slice bytes); /* the same */
void call_look(struct call *call);                                         /* one that watches */

#endif
