/* The feed in staging.db (store/feed.h), as the stager writes it. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_FEED_H
#define UNSEEN_STORE_SQLITE_STAGING_FEED_H

#include "store/feed.h"

struct sqlite_store;
struct staged;

extern const struct store_feed_ops sqlite_feed_ops;

int feed_open(struct sqlite_store *s, struct err *err); /* at start, once staging is recovered, before threads */
void feed_close(struct sqlite_store *s);                /* after them */

/* Any thread: what the consumer may read, from above *after to *last; and the time of the first that it has read from
 * there. False: nothing. */
bool feed_range(struct sqlite_store *s, const char *consumer, uint64_t *after, uint64_t *last);
void feed_was_read(struct sqlite_store *s, const char *consumer, uint64_t after, int64_t recorded_ms);

/* The stager's, inside its transaction: an event whose rows have ids from `id` on, and a forget. */
int feed_add(struct sqlite_store *s, const struct store_event *event, uint64_t id, struct err *err);
int feed_add_forget(struct sqlite_store *s, const struct store_forget *forget, uint64_t id, struct err *err);
void feed_forgot(struct sqlite_store *s, const struct store_forget *forget); /* it is durable, and no client was told */
uint64_t feed_forget_ids(struct sqlite_store *s, const struct store_forget *forget); /* how many it takes */
/* The end of the transaction's rows, before the commit: writes down who misses what, and with it, when there is enough,
 * how far the consumers are, and deletes some of what all of them have done. */
int feed_before_commit(struct sqlite_store *s, struct err *err);
void feed_committed(struct sqlite_store *s, uint64_t last_id); /* all up to last_id is durable and answered */
void feed_failed(struct sqlite_store *s);
/* At a start, before threads: consumers that are known and not lost take events as if they listened, since they will.
 */
void feed_await_absent(struct sqlite_store *s, bool on);
int feed_undo(struct sqlite_store *s, uint64_t from, uint64_t to, struct err *err);
void feed_work(struct sqlite_store *s, struct store_message *m);
void feed_enlist_work(struct sqlite_store *s, struct store_message *m);
void feed_forget_remotes(struct sqlite_store *s); /* their rows are gone */
/* Inside a transaction: of each a user or a source. Remote consumers alone want them; feed_takes(): whether there are
 * any, and so ids are taken. */
bool feed_takes(struct sqlite_store *s);
int feed_add_user(struct sqlite_store *s, struct slice user, uint64_t id, struct err *err);
int feed_add_offset(struct sqlite_store *s, const struct store_position *position, uint64_t id, struct err *err);
int feed_add_pool(struct sqlite_store *s, struct slice name, uint64_t id, struct err *err);
/* feed_users.c. The stager's: a transaction of its own, in which `add` appends events from *id on, and writes what
 * belongs to them. *last: the newest id that is used then. */
int feed_transaction(struct sqlite_store *s,
                     int (*add)(struct sqlite_store *s, void *arg, uint64_t *id, struct err *err), void *arg,
                     uint64_t *last, struct err *err);
/* The stager's: users that were imported or loaded, and are durable in history. */
void import_feed(struct sqlite_store *s, struct store_message *m);
void load_feed(struct sqlite_store *s, struct store_message *m);
/* The loader's thread: all users of the index, durably. Blocks. */
int feed_loaded(struct sqlite_store *s, const struct staged *index, struct err *err);
uint64_t feed_newest(struct sqlite_store *s); /* any thread: all seqs up to it are durable, or will never be */
/* The same in a transaction of its own: when a whole chunk is to be deleted, or, all = true, any. Whether something
 * happened. */
bool feed_sweep_step(struct sqlite_store *s, bool all);

#endif
