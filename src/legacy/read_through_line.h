/* Inside a port of read-through. read_through_line.c sends and takes replies; read_through_port.c asks, and answers
 * what takes too long.
 *
 * A port asks over lines: one for each node of the cluster that it has asked, by the map's numbers. Line 0 leads to the
 * addresses of the configuration: it is all there is to a single Redis, and with a cluster it asks where the slots are.
 *
 * A question has up to two parts, each about a key and so for one node. A line lists parts in the order in which they
 * were sent, which is that of the replies. A question whose time is over leaves its parts in their lists: they stay,
 * without a question, until their replies have arrived, which are discarded. A part that a node sends elsewhere (MOVED,
 * ASK) is sent there as a whole, for as long as its question has time.
 *
 * A failure is counted, and the question is answered with the replies so far. A reply that refuses one key (WRONGTYPE)
 * fails only its question. Any other error concerns all questions of its line: the connection is dropped.
 */
#ifndef UNSEEN_LEGACY_READ_THROUGH_LINE_H
#define UNSEEN_LEGACY_READ_THROUGH_LINE_H

#include "legacy/asking.h"
#include "legacy/breaker.h"
#include "legacy/cluster.h"
#include "legacy/read_through.h"
#include "legacy/read_through_impl.h"
#include "legacy/redis_connection.h"

enum { READ_THROUGH_HOME = 0 };

struct read_through_line;

/* Of a question; sent to one line. */
struct read_through_part {
    struct read_through_part *next; /* of the line */
    struct read_through_entry *entry;
    struct read_through_line *line; /* NULL: its replies have come, or it was not sent */
    enum asking_part which;
    size_t due; /* replies */
    unsigned hops;
    bool once;                    /* every other reply is that of ASKING, */
    bool skip;                    /* as is the next */
    enum cluster_verdict verdict; /* not CLUSTER_STAYS: it is to be asked elsewhere, */
    size_t other;                 /* there */
    bool late;                    /* counted in the line's given_up */
};

/* A question on its way. */
struct read_through_entry {
    struct read_through_entry *next, **link; /* of the port, in the order of their deadlines */
    int64_t deadline_us;
    struct asking asking;
    struct read_through_part parts[ASKING_PARTS];
    size_t n_parts; /* not ended */
    /* To send a part again; NULL: it can't be. */
    struct slice user, *items;
    size_t kept;
};

struct read_through_line {
    struct read_through_port *p;
    size_t node;
    struct redis_connection *connection;
    struct breaker breaker;
    struct read_through_part *first, **end;
    size_t given_up; /* of the list */
    bool waits;      /* counted in t->waiting */
};

struct read_through_port {
    struct read_through *t;
    uv_timer_t deadline;
    uv_loop_t *loop; /* NULL: not open */
    bool closed;
    bool single; /* it is no cluster, as far as the connection knows */
    struct cluster cluster;
    struct read_through_line *lines[CLUSTER_NODES_MAX]; /* NULL: not needed yet */
    struct read_through_part map;                       /* CLUSTER SLOTS, sent to line 0 */
    bool asks_map;
    struct read_through_entry *first, **end;
    size_t kept; /* bytes of all entries */
};

/* Line 0, when the port is made; it isn't opened. */
int read_through_line_new(struct read_through_port *p, size_t node, struct err *err);

/* The node's, which connects unless it is connected. NULL: out of memory. */
struct read_through_line *read_through_line_of(struct read_through_port *p, size_t node);

/* Whether the line's connection may be bothered with a question. */
bool read_through_line_is_free(const struct read_through_line *line);
void read_through_line_shut(struct read_through_line *line); /* has no parts */

/* Sends parts of a question at once; false: none of them is sent. */
bool read_through_send(struct read_through_line *line, struct read_through_part **parts, size_t n, struct slice user,
                       const struct slice *items);

/* No reply will come any more. */
void read_through_end_all(struct read_through_line *line);

/* Shuts lines to nodes that serve nothing any more, once they are empty. */
void read_through_sweep(struct read_through_port *p);

/* Asks where the slots are, when a slot or a node has moved: at most once a second. */
void read_through_ask_map(struct read_through_port *p);

/* The asking side goes on, and may ask again, here and now: the port is in order before. */
void read_through_answer(struct read_through_port *p, struct read_through_entry *e, enum read_through_count how);
void read_through_entry_free(struct read_through_port *p, struct read_through_entry *e);

/* read_through_port.c: after each change of the list. */
void read_through_set_deadline(struct read_through_port *p);

#endif
