/* A client's side of the RESP protocol: one connection, its requests in order, its replies in the same order.
 *
 * Requests are run one after the other as they are parsed. Writes (CMD_RECORD) are handed to the recorder and answered
 * later, after their commit; they may follow each other without waiting, since answers come in the order of handing in.
 * Anything else, error replies too, first waits until those are answered: the request stays where it is, parsed, and
 * is run again (OUTCOME_AGAIN). A command that is answered later by something else than the recorder (OUTCOME_LATER)
 * blocks its connection until resp_client_answered().
 *
 * A request that is late (service/request.h) blocks its connection as well, and stays where it is, parsed; once it may
 * go on, it is resumed and its reply is written.
 *
 * MULTI gathers requests as bytes; EXEC writes the array's head and then runs them as if they just came in, and so the
 * array's elements are simply their replies.
 */
#ifndef UNSEEN_RESP_CLIENT_H
#define UNSEEN_RESP_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "net/conn.h"
#include "net/worker.h"
#include "resp/parser.h"
#include "resp/writer.h"
#include "service/account.h"
#include "service/fields.h"
#include "service/request.h"
#include "service/service.h"

enum {
    CLIENT_PENDING_MAX = 1024 * 1024, /* bytes of a connection's unanswered writes; above, no further one is taken */
    CLIENT_NAME_MAX = 128,
    REPLY_LEAST = 4096,     /* bytes that any reply may take */
    CLIENT_LINE_MAX = 1024, /* of CLIENT LIST, a client */
};

enum outcome {
    OUTCOME_ANSWERED, /* the reply is in out */
    OUTCOME_RECORDED, /* the recorder has it */
    OUTCOME_LATER,
    OUTCOME_LATE,  /* its request is late */
    OUTCOME_AGAIN, /* nothing was done yet */
};

struct command;
struct resp_client;

/* Writes the outcome of a request that was not refused. */
typedef void write_fn(const struct resp_client *s, struct writer *w, const struct request *rq);

struct resp_client {
    struct conn conn;
    struct parser parser;
    struct writer writer;
    const struct command *last;
    bool rejected; /* the request at hand, before its command was run */

    bool ready;           /* the parser holds a request that could not be run yet */
    bool waiting;         /* for resp_client_answered() */
    size_t lent;          /* bytes of the reply that it waits for */
    size_t reply_most;    /* of the request at hand */
    int64_t slow_us;      /* when what the slow log has of it had come */
    bool too_deep;        /* ready, because too much is pending; not for the sake of order */
    struct request *late; /* the command's; */
    write_fn *late_write; /* what writes its outcome, */
    size_t late_items;    /* and where its items begin and its texts are, among the arguments; 0: there are none */
    size_t late_texts[FIELDS_TEXTS];
    int64_t replica_protocol; /* of REPLICA HELLO; 0: none was said */
    uint64_t ask_to;          /* of REPLICA ASK: the primary's event that this node has, as of before the question */
    unsigned pending;
    size_t pending_bytes;

    bool delivering;  /* the one pending write is FILTER ... DELIVER's, */
    struct buf reply; /* which answers with this */

    bool in_multi, multi_failed;
    bool replaying; /* EXEC is at it: requests come from the queue */
    bool from_queue;
    size_t queued;
    struct buf queue;
    size_t queue_at;

    struct identity who;
    struct account_login login;
    bool login_told; /* a late one: its command runs again */

    char name[CLIENT_NAME_MAX], lib_name[CLIENT_NAME_MAX], lib_ver[CLIENT_NAME_MAX];
};

extern const struct conn_ops resp_client_ops;

/* The one in force; a command asks once. */
static inline const struct config *resp_client_config(const struct resp_client *s)
{
    return config_now(s->conn.worker->pool->cfg);
}

/* The reply of a command was written, from out.data[before] on: counts it, and returns how many us it took. */
int64_t resp_client_measure(struct resp_client *s, size_t before);

/* Replies that were longer than what was reserved for them: there must be none. */
extern atomic_size_t resp_client_overruns;

/* The arguments of the command at hand, as the slow log has them. */
void resp_client_keep_args(const struct resp_client *s, struct buf *args);

/* Who the client is; NULL: it may only say so. A client that was let in as `default` stays so when requirepass changes,
 * as in Redis. */
const struct account *resp_client_account(struct resp_client *s);

/* A LATER command has written its reply: goes on with the next. Not from within the command. */
void resp_client_answered(struct resp_client *s);

/* Submits the command's request, whose user is args[1], and writes what came of it. write NULL: its count, as a number.
 * The request's items and session are among the arguments. */
enum outcome resp_client_submit(struct resp_client *s, struct request *rq, write_fn *write);

/* Writes an error, unless writes are pending: then it is too early (OUTCOME_AGAIN). */
enum outcome resp_client_refuse(struct resp_client *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum outcome resp_client_refuse_err(struct resp_client *s, const struct err *err); /* by service/refusal.h */
enum outcome resp_client_lacks(struct resp_client *s, const char *what);           /* store_lacks() */

/* An error in the words of service/refusal.h; write: of what was to be recorded. */
void resp_client_write_err(struct resp_client *s, const struct err *err);
void resp_client_write_unread(struct resp_client *s, const struct err *err);

/* Whether the command's reply may be made now (conn_may_reply()); else OUTCOME_AGAIN. */
bool resp_client_may_reply(struct resp_client *s, const struct command *cmd, enum outcome *refused);

/* Forgets MULTI's queue. */
void resp_client_end_multi(struct resp_client *s);

#endif
