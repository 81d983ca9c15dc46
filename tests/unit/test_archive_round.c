/* A round of many parts that is interrupted at each of them: it goes on where it was, and nothing is sent again. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "archive/archive.h"
#include "archive/catalog.h"
#include "archive/moment.h"
#include "archive/round_end.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "tests/lib/world_fixture.h"

enum { USERS = 300, PART_BYTES = 1024, SENT_MAX = 64 };

static const int64_t begin_ms = INT64_C(1796079600000); /* 2026-11-30T23:00 */
static const int64_t day_ms = INT64_C(86400000);

/* --- what is put: an object in a folder gets its name by link() --- */

static struct sent {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int allowed; /* of a round's objects; behind these the disk fails */
    bool refused, ended;
    int n;
    char names[SENT_MAX][DEPOT_NAME_MAX];
} sent = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
size_t __wrap_archive_part_bytes(void);

size_t __wrap_archive_part_bytes(void)
{
    return PART_BYTES;
}

int __wrap_link(const char *from, const char *to)
{
    const char *base = strstr(to, "/base/");
    if (base == NULL) {
        return __real_link(from, to);
    }
    pthread_mutex_lock(&sent.mutex);
    int rc = -1;
    if (sent.n < sent.allowed) {
        rc = __real_link(from, to);
        assert_true(rc == 0 && sent.n < SENT_MAX);
        snprintf(sent.names[sent.n++], DEPOT_NAME_MAX, "%s", base);
        sent.ended = strcmp(strrchr(to, '/'), "/end") == 0;
    } else {
        sent.refused = true;
        errno = EIO;
    }
    pthread_cond_broadcast(&sent.cond);
    pthread_mutex_unlock(&sent.mutex);
    return rc;
}

/* --- a folder and its archive --- */

struct burnt {
    struct world w;
    char data[64], root[40];
};

static void make_place(struct burnt *p)
{
    memset(p, 0, sizeof *p);
    world_fixture_init(&p->w, "archive-round", begin_ms, p->data);
    snprintf(p->root, sizeof p->root, "/tmp/unseen-rounds-XXXXXX");
    assert_non_null(mkdtemp(p->root));
    snprintf(p->w.cfg.archive_url, sizeof p->w.cfg.archive_url, "file://%s/archive", p->root);
    p->w.cfg.archive_rate = 0;
}

static void play(struct burnt *p, int user, const char *item)
{
    char name[16];
    struct slice items[] = {slice_str(item)};
    snprintf(name, sizeof name, "user%d", user);
    const struct world_event e = {
        .kind = STORE_PLAY, .at_ms = clock_wall_ms(), .user = slice_str(name), .items = items, .n = 1};
    world_record(&p->w, &e, 1, NULL, NULL);
}

/* Until the round has ended, or the disk has failed behind so many of its objects. Then all of it is killed. */
static void run(struct burnt *p, int allowed)
{
    struct err err;
    struct archive *archive;
    pthread_mutex_lock(&sent.mutex);
    sent.n = 0;
    sent.allowed = allowed;
    sent.refused = sent.ended = false;
    pthread_mutex_unlock(&sent.mutex);
    assert_int_equal(archive_start(&p->w.dedup, &archive, &err), 0);
    pthread_mutex_lock(&sent.mutex);
    while (!sent.refused && !sent.ended) {
        pthread_cond_wait(&sent.cond, &sent.mutex);
    }
    pthread_mutex_unlock(&sent.mutex);
    archive_stop(archive);
    world_crash(&p->w);
    archive_free(archive);
}

static void end_place(struct burnt *p)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", p->root);
    assert_int_equal(system(command), 0);
    world_fixture_end(&p->w, p->data);
}

/* What lies there is one round, whose end names all of its parts. */
static void assert_one_round(struct burnt *p, size_t parts)
{
    const struct depot_order order = {.url = p->w.cfg.archive_url};
    struct depot *d;
    struct catalog c = {0};
    struct round_end end = {0};
    struct err err;
    assert_int_equal(depot_open(&order, &d, &err), 0);
    assert_int_equal(catalog_read(d, 0, &c, &err), 0);
    assert_int_equal(c.n_rounds, 1);
    assert_true(c.rounds[0].ended && c.rounds[0].shards == parts && c.n_shards == parts);
    assert_int_equal(moment_read_end(d, &c, &c.rounds[0], &end, &err), 0);
    assert_int_equal(end.shards.len, parts * sizeof(struct round_shard));
    round_end_free(&end);
    catalog_free(&c);
    depot_close(d);
}

/* Returns how many objects the round has. */
static int interrupted_at(const int *stops, int n_stops)
{
    struct burnt p;
    char before[SENT_MAX][DEPOT_NAME_MAX];
    int n = 0;
    make_place(&p);
    for (int i = 0; i <= n_stops; i++) {
        start(&p.w);
        if (i == 0) {
            for (int user = 0; user < USERS; user++) {
                play(&p, user, "before");
            }
        } else {
            play(&p, i * 7, "later");
        }
        wait_all(&p.w);
        run(&p, i < n_stops ? stops[i] : INT32_MAX);
        for (int k = 0; k < sent.n; k++) {
            for (int j = 0; j < n; j++) {
                assert_string_not_equal(sent.names[k], before[j]);
            }
            assert_true(n == 0 || strncmp(sent.names[k], before[0], strlen("/base/01234567/")) == 0);
        }
        memcpy(before + n, sent.names, (size_t)sent.n * DEPOT_NAME_MAX);
        n += sent.n;
    }
    assert_true(sent.ended && n > 6);
    assert_one_round(&p, (size_t)n - 1);
    end_place(&p);
    return n;
}

static void test_at_each_part(void **state)
{
    (void)state;
    int n = interrupted_at(NULL, 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(interrupted_at(&i, 1), n);
    }
}

static void test_again_and_again(void **state)
{
    (void)state;
    const int stops[] = {1, 2, 0, 1, 1};
    interrupted_at(stops, sizeof stops / sizeof *stops);
}

/* Users who are sent before and after the end of a month, which is sealed in between; some play in the new one, some
 * are forgotten, some items are un-seen. What is restored is what was recorded. */
static void test_a_months_end_in_a_round(void **state)
{
    (void)state;
    struct burnt p;
    struct err err;
    char data[80], name[16], clock[32];
    make_place(&p);
    start(&p.w);
    for (int user = 0; user < USERS; user++) {
        play(&p, user, "old");
        play(&p, user, "unseen");
    }
    wait_all(&p.w);
    run(&p, 4);
    assert_int_equal(sent.n, 4);
    start(&p.w);
    assert_int_equal(world_advance(&p.w, 2 * 3600 * 1000, &err), 0);
    assert_int_equal(world_advance(&p.w, 40 * day_ms, &err), 0);
    for (int user = 0; user < USERS; user++) {
        const struct slice item = slice_str("unseen");
        snprintf(name, sizeof name, "user%d", user);
        if (user % 3 == 0) {
            play(&p, user, "new");
        }
        if (user % 5 == 0) {
            world_forget(&p.w, slice_str(name), &item, 1, NULL, NULL);
        }
        if (user % 7 == 0) {
            world_forget(&p.w, slice_str(name), NULL, 0, NULL, NULL);
        }
    }
    wait_all(&p.w);
    run(&p, INT32_MAX);
    assert_true(sent.ended && sent.n > 4);
    snprintf(data, sizeof data, "%s/data", p.root);
    snprintf(clock, sizeof clock, "%" PRId64, clock_wall_ms());
    char *argv[] = {"restore", "--quiet", "-c",           "/dev/null", "--from", p.w.cfg.archive_url,
                    "--data",  data,      "--test-clock", clock,       NULL};
    assert_int_equal(cli_restore(sizeof argv / sizeof *argv - 1, argv), 0);
    snprintf(p.w.cfg.data, sizeof p.w.cfg.data, "%s", data);
    start(&p.w);
    for (int user = 0; user < USERS; user++) {
        snprintf(name, sizeof name, "user%d", user);
        bool gone = user % 7 == 0;
        assert_int_equal(is_seen(&p.w, name, "old"), !gone);
        assert_int_equal(is_seen(&p.w, name, "new"), !gone && user % 3 == 0);
        assert_int_equal(is_seen(&p.w, name, "unseen"), !gone && user % 5 != 0);
    }
    world_stop(&p.w);
    snprintf(p.w.cfg.data, sizeof p.w.cfg.data, "%s", p.data);
    end_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_each_part),
        cmocka_unit_test(test_again_and_again),
        cmocka_unit_test(test_a_months_end_in_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
