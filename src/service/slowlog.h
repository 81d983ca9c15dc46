/* The slow log: the last commands that took slowlog_slower_than or longer, as Redis has it. Time is that of the meter:
 * from the arrival of a command's last byte until its reply, with the commit of what it writes. Any thread. */
#ifndef UNSEEN_SERVICE_SLOWLOG_H
#define UNSEEN_SERVICE_SLOWLOG_H

#include "base/buf.h"
#include "config/config.h"
#include "net/conn.h"
#include "net/worker.h"

enum {
    SLOWLOG_MAX = 128,   /* entries; an older one goes */
    SLOWLOG_ARGS = 32,   /* of a command are kept; more are counted in the last one's place ... */
    SLOWLOG_BYTES = 128, /* ... and so many bytes of each */
    SLOWLOG_NAME = 128,
};

/* Arguments as they are kept. Appends one; total: how many the command had in all. Call it for each, or until it says
 * false: no more are wanted. */
bool slowlog_add_arg(struct buf *args, size_t i, size_t total, struct slice arg);

/* Whether a command of the connection that took so long is noted. */
static inline bool slowlog_wants(const struct conn *c, int64_t us)
{
    return us >= config_now(c->worker->pool->cfg)->slowlog_ms * 1000;
}

/* Takes args over, and leaves them empty. */
void slowlog_note(const struct conn *c, int64_t us, struct buf *args);

struct slow {
    uint64_t id;
    int64_t at_ms; /* wall: when it was answered */
    int64_t us;
    struct buf args;
    char address[CONN_ADDRESS], name[SLOWLOG_NAME];
};

/* Visits the newest n, newest first, under a lock: the visitor must be quick. Before the first it is called with
 * i == 0 and entry NULL: n is how many follow. */
void slowlog_each(size_t n, void (*visit)(void *arg, size_t n, const struct slow *entry), void *arg);
size_t slowlog_len(void);
void slowlog_reset(void);

/* The next argument of an entry; *at begins at 0. False: there is none. */
bool slowlog_next_arg(const struct slow *entry, size_t *at, struct slice *arg);
size_t slowlog_count_args(const struct slow *entry);

#endif
