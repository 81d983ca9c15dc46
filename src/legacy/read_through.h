/* Read-through: with legacy_read_through = yes, a question about a user who is noted and not yet migrated is also put
 * to the Redis they come from, so that nothing is repeated meanwhile; and they are migrated before others.
 *
 * No question ever waits for that Redis longer than legacy_timeout. Each worker has a port of its own: a connection on
 * its loop, and a breaker. Where a question stands is the asking side's to remember (service/ask.c):
 *
 *   read_through_wants()      first of all: is the user's note still waiting?
 *   the local answer     which candidates are unseen here
 *   read_through_ask()        about these alone
 *   done()               the answer, or what of it came in time
 *   read_through_hide()       what is seen there is unseen no more
 *
 * The order matters, since the user may be migrated at any moment. The migration only reads there, and a note is
 * marked done only when all that was read is durable and visible here. So if the note still waited before the local
 * answer was looked up, whatever that lacks stands there, whenever it is asked; and if it didn't, the local answer has
 * it all. A user who is forgotten: the note has ended, and it is not asked. Items that were un-seen here one by one are
 * not asked about (struct query, elsewhere).
 *
 * As the migration would, it passes over plays older than legacy_months, retention or the window, and over scores that
 * are no time. Of deliveries the newest 100 there count (fewer with a smaller delivered_max), beside those made here. A
 * policy hides by the one time that an item has there, which is not added to those that it has here.
 */
#ifndef UNSEEN_LEGACY_READ_THROUGH_H
#define UNSEEN_LEGACY_READ_THROUGH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "base/figure.h"
#include "base/slice.h"
#include "dedup/dedup.h"

struct read_through;      /* of the service */
struct read_through_port; /* of a worker */

/* *through is NULL when there is no Redis to come from; the functions that take one take that. dedup, with its legacy,
 * outlives it. */
int read_through_start(const struct dedup *dedup, struct read_through **read_through, struct err *err);
void read_through_free(struct read_through *t); /* after all ports */

enum read_through_doing {
    READ_THROUGH_OFF,
    READ_THROUGH_ON,
    READ_THROUGH_WAITING, /* at least one worker doesn't ask, for what `cause` says; tries again by itself */
};
const char *read_through_doing_name(enum read_through_doing doing); /* "off", "on", "waiting" */

/* Questions are counted once: as skipped, or as asked, and then as answered, late or failed. */
enum read_through_count {
    READ_THROUGH_ASKED,
    READ_THROUGH_ANSWERED,
    READ_THROUGH_LATE,
    READ_THROUGH_FAILED,  /* an error, or the connection was lost */
    READ_THROUGH_SKIPPED, /* not asked, because it is away or was late too often */
    READ_THROUGH_HIDDEN,  /* candidates */
    READ_THROUGH_COUNTS,
};
const char *read_through_count_name(enum read_through_count count); /* "read_through_asked" ... */

struct read_through_status {
    enum read_through_doing doing;
    char cause[320];
    uint64_t counts[READ_THROUGH_COUNTS];
};
void read_through_status(struct read_through *t, struct read_through_status *out); /* any thread */
void read_through_figures_each(struct read_through *t, figure_visit *visit, void *arg);

/* Any thread; *port is NULL when through is. ERR_NOMEM. */
int read_through_port_new(struct read_through *t, struct read_through_port **port, struct err *err);
void read_through_port_free(struct read_through_port *p); /* once its loop has ended */

/* The rest on the port's own thread; p NULL: wants nothing. */
void read_through_port_open(struct read_through_port *p, uv_loop_t *loop);
void read_through_port_close(
    struct read_through_port *p); /* ends questions under way (done()); then the loop may end */
void read_through_port_tick(
    struct read_through_port *p); /* each second: the option may have changed, a pause be over */

/* Whether the user is not migrated yet, and read-through is on. Costs nothing while there are no notes. */
bool read_through_wants(struct read_through_port *p, struct slice user);

enum { READ_THROUGH_DELIVERED = 100 };

/* A question. The asking side owns it, fills in the first part, and keeps it until done(). */
struct read_through_question {
    void (*done)(struct read_through_question *q); /* from the loop */
    size_t n;
    const struct exposure *exposure;            /* what hides; NULL: everything. Read until done() */
    const uint8_t *asked;                       /* which of the n candidates; most significant bit first */
    uint8_t *seen;                              /* the same, all 0: those that were played there */
    uint64_t delivered[READ_THROUGH_DELIVERED]; /* hashes, */
    int64_t delivered_ms[READ_THROUGH_DELIVERED];
    size_t n_delivered;
    bool counted; /* its hidden candidates */
};

/* False: it can't be asked now, and done() will not be called. user and items are only read during the call; items are
 * the n candidates. */
bool read_through_ask(struct read_through_port *p, struct read_through_question *q, struct slice user,
                      const struct slice *items);

/* Removes items that are seen there from a local answer about the same candidates. Returns how many, and counts them
 * once (p NULL: not at all). */
size_t read_through_hide(struct read_through_port *p, struct read_through_question *q, const uint64_t *hashes,
                         uint8_t *unseen);

#endif
