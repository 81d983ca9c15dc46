/* The store and the domain above it (tests/lib/world.h) in a folder of its own, for unit tests. What must go well
 * fails the test if it doesn't. */
#ifndef UNSEEN_TESTS_WORLD_FIXTURE_H
#define UNSEEN_TESTS_WORLD_FIXTURE_H

#include "tests/lib/vfs_fault.h"
#include "tests/lib/world.h"

/* Makes the folder "/tmp/unseen-test-NAME-XXXXXX" and a world in it, which is not started; the clock begins there. */
void world_fixture_init(struct world *w, const char *name, int64_t now_ms, char folder[64]);
void world_fixture_end(struct world *w, const char *folder);

void start(struct world *w);
void wait_all(struct world *w);
void flush_world(struct world *w);
bool is_seen(struct world *w, const char *user, const char *item);
bool is_seen_id(struct world *w, struct slice user, struct slice item);

#endif
