/* Small tables for staged rows (store/sqlite/staging/slot_parts.h): so a slot has many of them after a few plays.
 * Programs of tests are linked so that parts_rows() comes here. */
#ifndef UNSEEN_TESTS_PART_ROWS_H
#define UNSEEN_TESTS_PART_ROWS_H

#include <stdatomic.h>
#include <stdint.h>

/* So many ids a table. 0: as the program has it, or as UNSEEN_TEST_PART_ROWS says, with which a whole suite can be run
 * with small ones. */
extern _Atomic uint64_t part_rows;

#endif
