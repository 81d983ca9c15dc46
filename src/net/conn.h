/* A connection: a stream of bytes in, a buffer of bytes out, and the protocol that stands between them.
 *
 * It belongs to one worker and is only touched on that worker's thread. The protocol's own state stands behind it in
 * the same piece of memory (conn_ops.size), and is entered at one place, input(): "here is what has come; take what you
 * can". What it takes it consumes; what it can't take yet stays. libuv's callbacks only record what happened and call
 * it. Replies are appended to out, and leave at the end of the loop's turn.
 *
 * Bytes are read into a buffer that all connections of the worker share, and parsed in there; only the unfinished rest
 * of a request gets memory of its own. So an idle connection holds next to nothing, and input() must expect the bytes
 * to have moved between two calls (but not during one).
 *
 * Back-pressure: while `paused` (set by the protocol), while it waits for memory, or while the peer does not read its
 * replies, nothing more is read. All that a connection holds is charged to the budget (net/budget.h), and asked for
 * before it is made: input before it is read, a reply before its request is run (conn_may_reply()). While there is no
 * room for half a request of a few KiB, its bytes stay with the kernel, where they are looked at: a small request needs
 * no memory here. Who sends or reads nothing for a while loses what it holds when others wait for it.
 *
 * On a listener with tls:// all of this is the same to the protocol (conn_tls.c). But what was decrypted can't be left
 * where it was: so records stay with the kernel until there is room for what they hold.
 *
 * Work for a connection that ends later holds it (conn_hold), so that its memory outlives a peer that
 * goes away. Output is dropped once the client is gone.
 */
#ifndef UNSEEN_NET_CONN_H
#define UNSEEN_NET_CONN_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/slice.h"
#include "net/budget.h"
#include "net/line.h"
#include "net/peer.h"

struct conn;
struct listener;
struct tls;
struct worker;

enum {
    CONN_HEAD = 16 * 1024,           /* an unfinished request up to here is kept aside, beyond it has its own buffer */
    CONN_READ = 64 * 1024,           /* the shared buffer, and what a connection may hold without asking */
    CONN_UNSENT_MAX = 1024 * 1024,   /* above it no further request is begun, */
    CONN_UNSENT_STRANGE = 16 * 1024, /* nor above this one where it has not logged in */
    CONN_PATIENCE_MS = 60 * 1000, /* for half-sent requests, for those who don't say who they are, for unread replies */
    CONN_PATIENCE_LINE_MS = 5 * 1000,   /* for half a request in memory that waits for more */
    CONN_PATIENCE_SHORT_MS = 2 * 1000,  /* for who else holds memory that others wait for, */
    CONN_RATE_LEAST = 64,               /* and a second for so many KiB that it has sent or read */
    CONN_PATIENCE_SHAKE_MS = 10 * 1000, /* for a handshake of TLS */
    CONN_PATIENCE_STRANGE_MS = 1000,    /* for who has not logged in and holds memory that others of them wait for */
    CONN_LINGER_TICKS = 2,              /* seconds for the peer to close, once all is said; and to read, at a stop */
    CONN_QUOTA = 1024,                  /* requests in a row, */
    CONN_QUOTA_SHORT = 32,              /* and while others wait for their turn */
    CONN_ADDRESS = 128,
};

/* Why a connection ends before its time. */
enum conn_end {
    CONN_END_LATE,     /* it took too long */
    CONN_END_STOPPING, /* the worker stops, and what was asked on it is not done */
};

struct conn_ops {
    size_t size;           /* of the protocol's struct, whose first member is struct conn */
    const char *edge;      /* for the log: "resp", "http", "grpc" */
    bool answers_anybody;  /* some of what it answers needs no login: who asks nothing else is a stranger, also where
                              no login is wanted */
    const char *alpn;      /* what the protocol is called in a TLS handshake, "h2"; NULL: nothing */
    int64_t idle_ms;       /* how long it may say nothing; 0: as idle_timeout has it */
    const char *full;      /* to one that is turned away: there is no room, */
    const char *full_here; /* or none for its address */
    const char *made_room; /* to a silent one that is closed for others; "": nothing */
    void (*open)(struct conn *c);
    void (*input)(struct conn *c);

    /* One thing that this connection had recorded was answered: it was of n items, and is durable if err->code is 0. */
    void (*recorded)(struct conn *c, uint32_t n, size_t bytes, const struct err *err);

    /* The peer is gone, and something still holds the connection: its answers are not wanted any more. NULL:
     * nothing. */
    void (*gone)(struct conn *c);

    /* A last word, if there is one to say; good until the next call. NULL: there never is. */
    struct slice (*last_word)(struct conn *c, enum conn_end why);

    void (*close)(struct conn *c); /* the last call: frees what the protocol holds */

    /* NULL where the protocol puts all it has to say into out at once. Else asked before out is sent, and again while
     * the peer takes it: appends a bounded piece more. False: that was all. */
    bool (*output)(struct conn *c);

    /* NULL: not wanted. Each second while it is open; and at each turn of the loop once the worker stops, where it says
     * so to the peer and sets owed. */
    void (*tick)(struct conn *c, int64_t now_ms);
    void (*drain)(struct conn *c);
};

enum conn_state {
    CONN_OPEN,
    CONN_FINISHING, /* sends what is in out, and ends */
    CONN_CLOSING,   /* no peer any more */
};

struct conn {
    /* The protocol reads and sets these. */
    struct worker *worker;
    const struct listener *from;
    uint64_t id;
    struct slice input; /* what has come and was not consumed */
    size_t need;        /* input: so many bytes are needed before another call makes sense, as far as is known */
    struct buf out;
    size_t extra;                 /* bytes held by the protocol, for the budget */
    bool looking;                 /* input is still the kernel's, and what is left over of it comes again */
    bool paused;                  /* nothing is wanted for now; conn_kick() ends it */
    bool owed;                    /* a request is half done: it is still answered when the worker stops */
    bool midway;                  /* what has come of a request was consumed: the rest is waited for all the same */
    bool trusted;                 /* said who it is, or asked as one who need not */
    int64_t opened_ms, active_ms; /* monotonic */
    int64_t arrived_us;           /* when the request at hand had come, by the figures clock */
    int op;                       /* what it asks for, in the protocol's terms */
    const char *name;             /* how the client calls itself; NULL: it can't */

    /* conn.c's own. */
    const struct conn_ops *ops;
    enum conn_state state;
    unsigned refs;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct buf in;      /* the rest of an unfinished request; input stands in it */
    struct buf sending; /* with libuv */
    size_t held;        /* told to the budget, */
    bool strange;       /* as a stranger's: then it stands in the worker's list of those that hold something, */
    int64_t strange_ms; /* and has done so since then */
    struct conn *next_strange, *prev_strange;
    size_t granted; /* out may grow to this without asking, until input() returns */
    unsigned quota; /* so many requests may still be begun before others have a turn */
    uint64_t peer;
    struct sockaddr_in6 peer_address; /* or of IPv4 */
    size_t in_kernel; /* bytes of input that were looked at and left there; over TLS: that are still encrypted */
    int low_water;    /* so many bytes must have come before the kernel says so */
    bool is_unix, reading, eof, dirty, shut;
    bool secure;         /* over TLS: */
    bool resting;        /* not read until the next tick */
    bool hungry;         /* waits for room, or its turn, to go on reading */
    struct tls *tls;     /* NULL: the client has not said anything yet */
    size_t tls_held;     /* by it, for the budget: TLS_BUSY_BYTES until it has shaken hands */
    struct buf tls_in;   /* half a record; in_kernel says how much, */
    size_t tls_missing;  /* and so many bytes of it are still to come */
    size_t sealed;       /* bytes of out that are encrypted, and sent or with libuv */
    struct buf tls_owed; /* of the handshake's own, to be sent before anything else */
    bool silent;         /* room.h */
    bool choked;         /* stopped because replies were not read */
    bool overdraft;      /* see budget.h */
    int linger;
    int deaf_ticks;     /* that the peer has neither sent nor read anything while the worker stops, since it had */
    size_t deaf_left;   /* so much to read, */
    int64_t deaf_ms;    /* and last sent something then */
    int64_t partial_ms; /* since when a request is half-sent; 0: none */
    int64_t unread_ms;  /* since when replies are with libuv, */
    size_t unread;      /* and how many bytes those were */
    int64_t stuck_ms;   /* since when they have not moved */
    size_t stuck_bytes;
    struct conn *next, *prev; /* of the worker */
    struct conn *next_dirty;
    struct conn *next_silent, *prev_silent;
    struct line *line; /* of those that wait for memory, for their next turn, or for the rest; NULL: none */
    struct conn *ahead, *behind;
    size_t wants;
};

/* Takes over a socket that the listener has accepted, which stays while there are workers. On failure it is closed.
 * address: of the peer, of IPv6 or IPv4; the kernel does not tell it once the peer is gone. */
void conn_open(struct worker *w, const struct listener *from, int fd, uint64_t peer, const struct sockaddr_in6 *address,
               uint64_t id);

static inline void conn_consume(struct conn *c, size_t n)
{
    c->input.data += n;
    c->input.len -= n;
}

/* Whether another request may be begun: there is a peer, it reads its replies, and it was not at it for too long. To be
 * asked once a request. */
bool conn_may_run(struct conn *c);

/* What input() waited for has happened: calls it again, and reads on unless it paused. Not from within input(). */
void conn_kick(struct conn *c);

/* The same where it may wait for memory meanwhile: what has happened needs none that it does not hold. */
void conn_wake(struct conn *c);

/* Something was appended to out outside of input(). */
void conn_touch(struct conn *c);

/* Takes no more input, sends what is in out, closes. */
void conn_finish(struct conn *c);

/* Closes at once. */
void conn_abort(struct conn *c);

/* The same, with a last word if it can be sent at once. */
void conn_dismiss(struct conn *c, struct slice last_word);
void conn_end(struct conn *c, enum conn_end why); /* with the protocol's */

/* A reply that is larger than any may be is none to wait for: 0, or ERR_RANGE. what: "the page"; instead: what to ask
 * for, "ask for fewer items". */
int conn_check_reply(const struct conn *c, size_t most, const char *what, const char *instead, struct err *err);

/* Whether a reply of at most so many bytes may be made now. Else the connection waits, for memory or for its peer, and
 * is kicked when there is room. */
bool conn_get_grant(struct conn *c, size_t most);
static inline bool conn_may_reply(struct conn *c, size_t most)
{
    return c->out.len + most <= c->granted || conn_get_grant(c, most);
}

/* Whether so much more may be held for the connection: of what strangers share, where it is one. The one that has the
 * overdraft comes before all others. */
bool conn_has_room(const struct conn *c, enum budget_use use, size_t more);

/* Where there is none: whether it is lent for a piece of an ordinary request, which is likely to be its end and so to
 * free it all. `holds`: bytes of such pieces that it has. */
bool conn_is_lent(const struct conn *c, size_t holds, size_t more);

/* Whether it has neither logged in nor, where there is no login, asked for anything that would need one; nor ended the
 * handshake of TLS. It holds no more than a stranger may (net/budget.h). */
bool conn_is_stranger(const struct conn *c);

/* The protocol holds so many bytes: sets c->extra, and tells the budget now rather than when input() returns. */
void conn_charge(struct conn *c, size_t extra);

/* Memory is short: the worker kicks it when so much more may be held. */
void conn_starve(struct conn *c, enum budget_use use, size_t more);

void conn_hold(struct conn *c);
void conn_release(struct conn *c);

/* "127.0.0.1:53012", "[::1]:53012", "/run/unseen.sock:0", as Redis shows them. */
void conn_address(const struct conn *c, bool local, char out[CONN_ADDRESS]);
bool conn_is_local(const struct conn *c); /* as peer_is_local() */
int conn_fd(const struct conn *c);
const char *conn_tls_version(const struct conn *c); /* "TLSv1.3"; "": none, or none yet */

/* A line of the log that names the connection by id and address; cause: NULL, or why. */
void conn_log(const struct conn *c, enum log_level level, const char *message, const char *cause);

/* A place among a worker's connections that stays good while they come and go. */
struct conn_cursor {
    struct conn *at; /* NULL: all have been visited */
    struct conn_cursor *next;
};

/* Whether anything has come behind what was left with the kernel. */
bool conn_has_more(const struct conn *c);

/* For the worker: at the end of a turn; each second; and when it stops. */
void conn_flush(struct conn *c);
void conn_tick(struct conn *c, int64_t now_ms);
void conn_drain(struct conn *c);

#endif
