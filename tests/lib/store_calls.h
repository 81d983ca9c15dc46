/* What the tests of the embedded store do over and over: one call each through its seam, waiting for the answer, and a
 * look into the files. A call that should be answered well, and isn't, ends the test. */
#ifndef UNSEEN_TESTS_STORE_CALLS_H
#define UNSEEN_TESTS_STORE_CALLS_H

#include <sqlite3.h>

#include "store/pools.h"
#include "store/ring.h"
#include "store/stats.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/store_fixture.h"
#include "tests/lib/vfs_fault.h"

enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

/* Of a test: an open store in a folder of its own. */
int setup_store(void **state);
int teardown_store(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_store, teardown_store)

/* At the head of main(). The argument: one test, or some: test_forget_*. */
void begin_tests(int argc, char **argv);

int64_t key_of(const char *user);
void add(struct store_batch *batch, enum store_kind kind, int64_t at, const char *user, const char *item);
int record_at(struct store_fixture *f, enum store_kind kind, int64_t at, const char *user, const char *item);
void play(struct store_fixture *f, const char *user, const char *item);
void deliver(struct store_fixture *f, const char *user, const char *item);
void fill(struct store_fixture *f, int batches); /* each a thousand users of one play */

int call(struct store_fixture *f, void (*op)(struct store *, struct store_call *), struct err *err);
int flush(struct store_fixture *f);
void advance(struct store_fixture *f, int64_t ms);

/* FORGET user [item]: the answer, or an error. */
int64_t forget(struct store_fixture *f, const char *user, const char *item);

/* MERGE from into [FORGET]: the answer, or an error; err may be NULL. */
int64_t merge_into(struct store_fixture *f, const char *from, const char *into, bool forgets, struct err *err);

int load(struct store_fixture *f, struct store_reader *reader, const char *user, struct store_view *view,
         struct err *err);
/* What a question would say: staged, or in a filter and no exception, or delivered. */
bool in_view(const struct store_view *view, const char *item);
bool seen(struct store_fixture *f, const char *user, const char *item);
bool known(struct store_fixture *f, const char *user);
struct store_stats stats(struct store_fixture *f);
enum store_slot_state slot_state(struct store_fixture *f, int slot);

/* Pools whose items are of one character each: "abc" holds three. to: of RENAME; before: what it holds, of ADD and
 * RENAME; items: of SET and ADD. 0 or its error. */
int change_pool(struct store_fixture *f, enum store_pool_kind kind, const char *name, const char *to,
                const char *before, const char *items, struct err *err);
/* All of them, as "cold=x hot=abc"; a damaged one as "hot=?". 0 or its error. */
enum { POOLS_TEXT = 512 };
int list_pools(struct store_fixture *f, char out[POOLS_TEXT], struct err *err);

void rule(unsigned ops, const char *file, uint64_t nth, bool sticky, enum vfs_action action);

/* The files, by another connection; the store is open or closed. */
sqlite3 *open_file(struct store_fixture *f, const char *name);
int64_t ask(struct store_fixture *f, const char *name, const char *sql);
void damage(struct store_fixture *f, const char *name, const char *sql); /* of a closed store */

/* Checks the closed folder; the words must be in some problem. NULL: there is none. */
void expect_problem(struct store_fixture *f, const char *words);
void found(void *arg, const char *problem);

#endif
