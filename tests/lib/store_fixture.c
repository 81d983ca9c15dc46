#include "tests/lib/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "tests/lib/alloc.h"

/* --- large allocations that fail --- */

_Atomic bool no_large;
_Atomic int large_left;
_Atomic size_t largest_malloc;

static bool fails_if_large(enum alloc_by by, size_t n, size_t size)
{
    if (by != ALLOC_MALLOC) {
        return false;
    }
    size_t largest = atomic_load(&largest_malloc);
    while (n * size > largest && !atomic_compare_exchange_weak(&largest_malloc, &largest, n * size)) {
    }
    return n * size >= 32768 && (atomic_load(&no_large) || atomic_fetch_sub(&large_left, 1) == 1);
}

/* --- waiting for answers --- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void raise_flag(void *owner)
{
    pthread_mutex_lock(&mutex);
    ++*(int *)owner;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&mutex);
}

void wait_flag(int *flag)
{
    pthread_mutex_lock(&mutex);
    while (*flag == 0) {
        pthread_cond_wait(&wake, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

bool is_raised(int *flag)
{
    pthread_mutex_lock(&mutex);
    bool raised = *flag > 0;
    pthread_mutex_unlock(&mutex);
    return raised;
}

void batch_done(struct store_batch *batch)
{
    raise_flag(batch->owner);
}

void merge_done(struct store_merge *merge)
{
    raise_flag(merge->owner);
}

void forget_done(struct store_forget *forget)
{
    raise_flag(forget->owner);
}

void call_done(struct store_call *call)
{
    raise_flag(call->owner);
}

/* --- the store --- */

static uint64_t mirror_limit(const struct config *live)
{
    return (uint64_t)live->legacy_mirror_max;
}

/* With the mirror on, its events are kept. */
int try_open(struct store_fixture *f, struct err *err)
{
    int rc = sqlite_store_open(&f->cfg, &(struct sqlite_store_options){.vfs = VFS_FAULT_NAME}, &f->store, err);
    if (rc == 0 && f->cfg.legacy_mirror) {
        rc = f->store->feed->listen(f->store, &(struct feed_consumer){"mirror", mirror_limit, NULL, NULL}, err);
    }
    return rc;
}

void open_store(struct store_fixture *f)
{
    struct err err = {0};
    if (try_open(f, &err) < 0 || f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        fail_msg("open: %s", err.text);
    }
}

void close_store(struct store_fixture *f)
{
    f->store->ops->reader_close(f->reader);
    f->store->ops->close(f->store);
    f->store = NULL;
}

void kill_store(struct store_fixture *f)
{
    vfs_fault_freeze(true);
    close_store(f);
    vfs_fault_heal();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

void remove_folder(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

bool copy_file(const char *from, const char *name, const char *to, const char *new_name)
{
    char path[PATH_MAX];
    char bytes[65536];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *in = fopen(path, "rb");
    if (in == NULL) {
        return false;
    }
    snprintf(path, sizeof path, "%s/%s", to, new_name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;) {
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
    return true;
}

struct store_fixture *store_fixture_new(const char *name)
{
    struct store_fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(vfs_fault_register(), 0);
    atomic_store(&alloc_fails, fails_if_large);
    clock_test_start(START);
    calendar_set_zone("UTC");
    config_defaults(&f->cfg);
    snprintf(f->cfg.data, sizeof f->cfg.data, "/tmp/unseen-test-%s.XXXXXX", name);
    assert_non_null(mkdtemp(f->cfg.data));
    f->cfg.min_free = 0;
    f->cfg.slot_length_ms = INT64_C(3600) * 1000; /* the tests advance by hours */
    f->cfg.hash_seed_given = true;
    f->cfg.hash_seed = SEED;
    return f;
}

void store_fixture_free(struct store_fixture *f)
{
    vfs_fault_heal();
    if (f->store != NULL) {
        close_store(f);
    }
    remove_folder(f->cfg.data);
    free(f);
}
