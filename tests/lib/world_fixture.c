#include "tests/lib/world_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/lib/load_wait.h"

void world_fixture_init(struct world *w, const char *name, int64_t now_ms, char folder[64])
{
    assert_int_equal(vfs_fault_register(), 0);
    clock_test_start(now_ms);
    snprintf(folder, 64, "/tmp/unseen-test-%s-XXXXXX", name);
    assert_non_null(mkdtemp(folder));
    world_init(w, folder, VFS_FAULT_NAME);
}

void world_fixture_end(struct world *w, const char *folder)
{
    vfs_fault_heal();
    world_stop(w);
    world_remove_folder(folder);
}

void start(struct world *w)
{
    struct err err = {0};
    if (world_start(w, &err) < 0) {
        fail_msg("start: %s", err.text);
    }
}

void wait_all(struct world *w)
{
    struct err err = {0};
    if (world_wait(w, NULL, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

void flush_world(struct world *w)
{
    world_flush(w);
    wait_all(w);
}

bool is_seen_id(struct world *w, struct slice user, struct slice item)
{
    uint64_t hash = hash_id(w->dedup.seed, item);
    uint8_t bits = 0;
    size_t unseen = 0;
    struct err err = {0};
    if (asker_filter(w->asker, user, &hash, 1, &bits, &unseen, &err) < 0) {
        fail_msg("ask: %s", err.text);
    }
    return unseen == 0;
}

bool is_seen(struct world *w, const char *user, const char *item)
{
    return is_seen_id(w, slice_str(user), slice_str(item));
}
