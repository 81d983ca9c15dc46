/* The store in memory, with hooks for tests of what stands above the seam: it holds writes back until the test says so,
 * and fails on demand. Ring, months and backups are made up. */
#ifndef UNSEEN_TESTS_FAKE_STORE_H
#define UNSEEN_TESTS_FAKE_STORE_H

#include "store/ring.h"
#include "store/store.h"

enum { FAKE_SEED = 42 };

struct store *fake_store_new(void);
void fake_store_free(struct store *s);

/* From here on writes wait. fake_store_wait() returns when n messages (batches, forgets, calls) wait. */
void fake_store_hold(struct store *s);
void fake_store_wait(struct store *s, size_t n);
void fake_store_release(struct store *s); /* answers all that wait, in order, and holds no more */

/* It says that no write is answered; that no forget is. */
void fake_store_stall(struct store *s, bool stalled);
void fake_store_stall_forgets(struct store *s, bool stalled);

/* Writes fail with that; 0 ends it. */
void fake_store_fail(struct store *s, int code, const char *text);

/* Loads of this user fail: a damaged month. */
void fake_store_damage(struct store *s, const char *user);

/* Loads of this user lack all months, as damaged ones (on_damage = answer). */
void fake_store_leave_out(struct store *s, const char *user);

/* Loads of this user fail: the disk. */
void fake_store_unreadable(struct store *s, const char *user);

/* The user (NULL: everybody) is large from now on: load() says so, and only scan() reads him. */
void fake_store_enlarge(struct store *s, const char *user);

/* The user is on the disk only, and that is frozen: readers that leave what is cold say so, any other waits for the
 * thaw, after which nobody is cold. fake_store_wait_frozen() returns when n readers wait. */
void fake_store_freeze(struct store *s, const char *user);
void fake_store_wait_frozen(struct store *s, int n);
void fake_store_thaw(struct store *s);

/* The same of the list of months: readers that leave what is cold say so. */
void fake_store_cool_months(struct store *s);

/* The n-th reader that is opened from here on, from 1, can't be. */
void fake_store_fail_reader(struct store *s, int nth);
int fake_store_readers(struct store *s); /* that are open */

/* From here on scans wait; fake_store_wait_scan() returns when one does. */
void fake_store_hold_scans(struct store *s);
void fake_store_wait_scan(struct store *s);
bool fake_store_scan_waits(struct store *s);
void fake_store_release_scans(struct store *s);

/* From here on loads are answered later: when they are released, or when their reader is closed (ERR_CLOSED).
 * fake_store_wait_loads() returns when n of them wait. */
void fake_store_hold_loads(struct store *s);
void fake_store_wait_loads(struct store *s, size_t n);
void fake_store_release_loads(struct store *s); /* all that wait, in the calling thread, and holds no more */

/* What it says that it has in memory: all later than that, whether its forgets are covered, and one play of everybody's
 * (NULL: none). */
void fake_store_left(struct store *s, uint64_t left, bool covered, const char *recent);

/* Puts an item into a user's filter of a month, as a flush would. */
void fake_store_add_month(struct store *s, const char *user, int month, const char *item);

void fake_store_set_ring(struct store *s, const struct store_ring *ring);
uint64_t fake_store_ticks(struct store *s);

#endif
