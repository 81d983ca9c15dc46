/* The embedded store through its seam, for unit tests: a real store in a folder of its own, with the test's clock and a
 * file system that fails on demand; and what waits for its answers. */
#ifndef UNSEEN_TESTS_STORE_FIXTURE_H
#define UNSEEN_TESTS_STORE_FIXTURE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "store/feed.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/lib/vfs_fault.h"

enum { SEED = 7 };
#define START INT64_C(1795255200000) /* 2026-11-21T10:00:00Z, where the clock begins */

struct store_fixture {
    struct config cfg;
    struct store *store; /* NULL: closed */
    struct store_reader *reader;
};

/* The folder and the configuration; the store is not opened. name: of the test, for the folder's. */
struct store_fixture *store_fixture_new(const char *name);
void store_fixture_free(struct store_fixture *f); /* closes what is open, removes the folder */

int try_open(struct store_fixture *f, struct err *err); /* no reader */
void open_store(struct store_fixture *f);
void close_store(struct store_fixture *f);
void kill_store(struct store_fixture *f); /* as by kill -9: nothing of what a close writes reaches the disk */

void remove_folder(const char *path);
bool copy_file(const char *from, const char *name, const char *to, const char *new_name); /* false: there is none */

/* Answers raise a flag: the int that their owner points to. */
void wait_flag(int *flag);
bool is_raised(int *flag);
void batch_done(struct store_batch *batch);
void forget_done(struct store_forget *forget);
void merge_done(struct store_merge *merge);
void call_done(struct store_call *call);

extern _Atomic bool no_large;         /* allocations of 32 KiB and more fail */
extern _Atomic int large_left;        /* counts them down: the one that takes it to 0 fails */
extern _Atomic size_t largest_malloc; /* of all so far, by the code under test; a test sets it to 0 */

#endif
