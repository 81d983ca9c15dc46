/* The feed in staging.db (store/feed.h), as the stager writes it. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_FEED_H
#define UNSEEN_STORE_SQLITE_STAGING_FEED_H

#include "store/feed.h"

struct sqlite_store;

extern const struct store_feed_ops sqlite_feed_ops;

int feed_open(struct sqlite_store *s, struct err *err); /* at start, once staging is recovered, before threads */
void feed_close(struct sqlite_store *s);                /* after them */

/* Any thread: what the consumer may read, from above *after to *last; and the time of the first that it has read from
 * there. False: nothing. */
bool feed_range(struct sqlite_store *s, const char *consumer, uint64_t *after, uint64_t *last);
void feed_was_read(struct sqlite_store *s, const char *consumer, uint64_t after, int64_t recorded_ms);

/* The stager's, inside its transaction: an event whose rows have ids from `id` on, and a forget. */
int feed_add(struct sqlite_store *s, const struct store_event *event, uint64_t id, struct err *err);
/* One of the other kinds; and the positions of a batch, which take ids from *id on. */
int feed_add_other(struct sqlite_store *s, enum feed_kind kind, struct slice user, int64_t at_ms, uint64_t id,
                   struct err *err);
int feed_add_positions(struct sqlite_store *s, const struct store_batch *batch, uint64_t *id, struct err *err);
bool feed_has_remote(struct sqlite_store *s); /* any thread */
int feed_add_forget(struct sqlite_store *s, const struct store_forget *forget, uint64_t id, struct err *err);
uint64_t feed_forget_ids(struct sqlite_store *s, const struct store_forget *forget); /* how many it takes */
/* The end of the transaction's rows, before the commit: writes down who misses what, and with it, when there is enough,
 * how far the consumers are, and deletes some of what all of them have done. */
int feed_before_commit(struct sqlite_store *s, struct err *err);
void feed_committed(struct sqlite_store *s, uint64_t last_id); /* all up to last_id is durable and answered */
void feed_failed(struct sqlite_store *s);
int feed_undo(struct sqlite_store *s, uint64_t from, uint64_t to, struct err *err);
/* The stager's: a forget is durable and goes to history (ERR_NOMEM), and any thread: history has settled it. Between
 * them nobody reads it, nor what is behind it. */
int feed_forget_begins(struct sqlite_store *s, uint64_t id);
void feed_forget_ended(struct sqlite_store *s, uint64_t id);
void feed_durable(struct sqlite_store *s, uint64_t id); /* all up to it is, answered or not kept for anybody */
void feed_enlist_work(struct sqlite_store *s, struct store_message *m);
/* The folder becomes another node: inside the transaction, and once it is durable. */
int feed_lose_remote(struct sqlite_store *s, struct err *err);
void feed_remote_lost(struct sqlite_store *s);
void feed_work(struct sqlite_store *s, struct store_message *m);
/* The same in a transaction of its own: when a whole chunk is to be deleted, or, all = true, any. Whether something
 * happened. */
bool feed_sweep_step(struct sqlite_store *s, bool all);

#endif
