#include "tests/lib/pool_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "filter/filter.h"
#include "store/rados/rados_store.h"
#include "tests/lib/random.h"

struct memory_pool *one_pool;

void open_node(struct store_fixture *f)
{
    struct err err = {0};
    if (rados_store_open(&f->cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &f->store, &err) < 0 ||
        f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(call(f, f->store->ops->tick, &err), 0); /* behind what it reads at its start */
}

void close_node(struct store_fixture *f)
{
    f->store->ops->reader_close(f->reader);
    f->store->ops->close(f->store);
    f->store = NULL;
    f->reader = NULL;
}

int setup_pool(void **state)
{
    struct store_fixture *f = store_fixture_new("pool");
    struct err err = {0};
    one_pool = memory_pool_new("pool");
    snprintf(f->cfg.rados_pool, sizeof f->cfg.rados_pool, "pool");
    if (rados_store_init(&f->cfg, &memory_pool_ops, &err) != 1) {
        fail_msg("%s", err.text);
    }
    open_node(f);
    *state = f;
    return 0;
}

int teardown_pool(void **state)
{
    struct store_fixture *f = *state;
    memory_pool_hold(one_pool, 0);
    memory_pool_fault(one_pool, NULL);
    if (f->store != NULL) {
        close_node(f);
    }
    memory_pool_free(one_pool);
    store_fixture_free(f);
    return 0;
}

void walk_pool(struct store_fixture *f)
{
    struct err err = {0};
    if (rados_store_walk(f->store, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

size_t put_part(const char *object, int month, uint16_t part, uint32_t n)
{
    struct arena arena = {0};
    struct filter filter = {0};
    struct buf blob = {0}, directory = {0};
    struct layout_part parts[64];
    char key[LAYOUT_KEY], old[4096];
    uint64_t random = 77 + part;
    uint32_t *positions = calloc(n, sizeof *positions);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (uint32_t)random_next(&random);
    }
    n = filter_sort(positions, n, NULL);
    assert_int_equal(filter_add(&filter, positions, n, 0, &arena), 0);
    assert_int_equal(filter_encode(&filter, &blob), 0);
    layout_key_write(&(struct layout_key){.kind = LAYOUT_FILTER, .month = month, .part = part}, key);
    memory_pool_put(one_pool, object, key, buf_slice(&blob));

    int len = memory_pool_value(one_pool, object, "w", old, sizeof old);
    struct slice value = slice_of(old, len > 0 ? (size_t)len : 0);
    int count = layout_directory_count(value);
    for (int i = 0; i < count; i++) {
        parts[i] = layout_directory_part(value, (size_t)i);
    }
    parts[count] = layout_part_of(&filter, month, part);
    parts[count].bytes = (uint32_t)blob.len;
    assert_int_equal(layout_directory_write(parts, (size_t)count + 1, &directory), 0);
    memory_pool_put(one_pool, object, "w", buf_slice(&directory));
    size_t bytes = blob.len;
    buf_free(&blob);
    buf_free(&directory);
    arena_free(&arena);
    free(positions);
    return bytes;
}
