/* Of a test: one node on a pool in memory (memory_pool.h), with the calls of store_calls.h. */
#ifndef UNSEEN_TESTS_POOL_FIXTURE_H
#define UNSEEN_TESTS_POOL_FIXTURE_H

#include "store/rados/layout.h"
#include "tests/lib/memory_pool.h"
#include "tests/lib/store_calls.h"

extern struct memory_pool *one_pool;

int setup_pool(void **state); /* struct store_fixture */
int teardown_pool(void **state);
#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup_pool, teardown_pool)

void open_node(struct store_fixture *f); /* a store of its own, and a reader of it */
void close_node(struct store_fixture *f);
void walk_pool(struct store_fixture *f); /* all users are merged */

/* Puts a part of a month there that holds n drawn items, and names it in the user's directory. Returns its bytes. */
size_t put_part(const char *object, int month, uint16_t part, uint32_t n);

#endif
