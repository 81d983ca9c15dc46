/* Nodes on a pool in memory: what the tests of the engine on RADOS share. */
#ifndef UNSEEN_TESTS_RADOS_FIXTURE_H
#define UNSEEN_TESTS_RADOS_FIXTURE_H

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/pool_fixture.h"

enum { NODES = 3 };

struct cluster_of_nodes {
    struct memory_pool *pool;
    struct store_fixture *first; /* whose folder and clock it is */
    struct store_fixture nodes[NODES];
};

int rados_setup(void **state);
int rados_teardown(void **state);
#define RADOS_TEST(name) cmocka_unit_test_setup_teardown(name, rados_setup, rados_teardown)

/* The next operation of these kinds on objects whose names begin so ends that way. */
void fault(struct cluster_of_nodes *c, unsigned kinds, const char *object, enum cluster_result result);

/* Records one play, and says how that was answered. */
int record_code(struct store_fixture *f, const char *user, const char *item, char *text, size_t size);

/* Whether a warning or an error with these words was logged since. Both are written from the first of these calls on.
 */
void log_from_here(void);
bool logged(const char *words);

/* Until the condition holds, while the clock stands; and while a tenth of a second passes with each look. */
#define RADOS_UNTIL(condition) RADOS_LOOK(condition, 0)
#define RADOS_IN_TIME(condition) RADOS_LOOK(condition, 100)
#define RADOS_LOOK(condition, ms)                                                                                      \
    for (time_t until_ = time(NULL) + 120; !(condition); usleep(1000)) {                                               \
        clock_test_advance(ms);                                                                                        \
        if (time(NULL) > until_) {                                                                                     \
            fail_msg("not so: %s", #condition);                                                                        \
        }                                                                                                              \
    }

#endif
