/* The consumer of Kafka, its module and librdkafka, against librdkafka's mock cluster: brokers that misbehave on
 * demand. One cluster for each test; what is produced is plain JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "kafka/kafka.h"
#include "store/positions.h"
#include "tests/lib/store_fixture.h"
#include "tests/lib/world_fixture.h"

enum { PARTITIONS = 4, WAIT_S = 60, OFFSET_COMMIT = 8 };

/* The mock holds each later rebalance back until a second before a session ends; the first one of a group for three
 * seconds, whatever is set, so a session must be longer than that. So there are few tests here, with a group each: what
 * needs no librdkafka is in test_kafka.c. */
#define SESSION "session.timeout.ms=4000\nheartbeat.interval.ms=200\n"

struct fixture {
    struct world world;
    char folder[64];
    rd_kafka_t *producer;
    rd_kafka_mock_cluster_t *cluster;
    struct kafka *kafka;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", text, sizeof text), RD_KAFKA_CONF_OK);
    f->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    assert_non_null(f->producer);
    f->cluster = rd_kafka_handle_mock_cluster(f->producer);
    assert_int_equal(rd_kafka_mock_topic_create(f->cluster, "plays", PARTITIONS, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
    world_fixture_init(&f->world, "kafka", START, f->folder);
    struct config *cfg = &f->world.cfg;
    snprintf(cfg->kafka_brokers, sizeof cfg->kafka_brokers, "%s", rd_kafka_mock_cluster_bootstraps(f->cluster));
    snprintf(cfg->kafka_topics, sizeof cfg->kafka_topics, "plays");
    snprintf(cfg->kafka_properties, sizeof cfg->kafka_properties, "%s", SESSION);
    snprintf(cfg->modules, sizeof cfg->modules, "%s", BUILDDIR);
    start(&f->world);
    *state = f;
    return 0;
}

static void begin(struct fixture *f)
{
    struct err err = {0};
    if (kafka_start(&f->world.dedup, &f->kafka, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void end(struct fixture *f)
{
    kafka_stop(f->kafka);
    kafka_free(f->kafka);
    f->kafka = NULL;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    end(f);
    world_fixture_end(&f->world, f->folder);
    rd_kafka_destroy(f->producer);
    free(f);
    return 0;
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void produce(struct fixture *f, int partition, const char *text)
{
    assert_int_equal(rd_kafka_producev(f->producer, RD_KAFKA_V_TOPIC("plays"), RD_KAFKA_V_PARTITION(partition),
                                       RD_KAFKA_V_VALUE((void *)(uintptr_t)text, strlen(text)),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_TIMESTAMP(START),
                                       RD_KAFKA_V_END),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
}

static void produce_play(struct fixture *f, int partition, int user, int item)
{
    char text[128];
    snprintf(text, sizeof text, "{\"user\":\"u%d\",\"item\":\"i%d\",\"time\":%lld}", user, item, (long long)START);
    produce(f, partition, text);
}

static void produced(struct fixture *f)
{
    assert_int_equal(rd_kafka_flush(f->producer, WAIT_S * 1000), RD_KAFKA_RESP_ERR_NO_ERROR);
}

static struct kafka_state look(struct fixture *f)
{
    struct kafka_state state;
    kafka_look(f->kafka, &state, NULL, 0);
    return state;
}

/* Until the condition holds; the state is there for it as s. */
#define UNTIL(f, condition)                                                                                            \
    for (int64_t until_us_ = clock_real_us() + WAIT_S * INT64_C(1000000);;) {                                          \
        struct kafka_state s = look(f);                                                                                \
        if (condition) {                                                                                               \
            break;                                                                                                     \
        }                                                                                                              \
        if (clock_real_us() > until_us_) {                                                                             \
            fail_msg("%s: %s, %llu messages, error %s, cause %s", #condition, kafka_doing_name(s.doing),               \
                     (unsigned long long)s.messages, s.error, s.cause);                                                \
        }                                                                                                              \
        clock_test_advance(2);                                                                                         \
        usleep(2000);                                                                                                  \
    }

static bool all_seen(struct fixture *f, int from, int to)
{
    for (int i = from; i < to; i++) {
        char user[16], item[16];
        snprintf(user, sizeof user, "u%d", i);
        snprintf(item, sizeof item, "i%d", i);
        if (!is_seen(&f->world, user, item)) {
            return false;
        }
    }
    return true;
}

static void produce_plays(struct fixture *f, int from, int to)
{
    for (int i = from; i < to; i++) {
        produce_play(f, i % PARTITIONS, i, i);
    }
    produced(f);
}

/* A store that takes nothing pauses the reading; nothing is lost or left behind. */
static void check_full_disk(struct fixture *f)
{
    vfs_fault_add(&(struct vfs_rule){VFS_WRITE | VFS_SYNC, "staging", 1, true, VFS_FULL});
    produce_plays(f, 1000, 1200);
    UNTIL(f, s.doing == KAFKA_PAUSED);
    assert_true(look(f).cause[0] != '\0');
    vfs_fault_heal();
    UNTIL(f, s.plays == 1200 && s.doing == KAFKA_READING);
    assert_true(all_seen(f, 1000, 1200));
}

static void test_plays_arrive_also_after_a_full_disk(void **state)
{
    struct fixture *f = *state;
    produce_plays(f, 0, 1000);
    begin(f);
    UNTIL(f, s.plays == 1000 && s.lag == 0 && s.doing == KAFKA_READING);
    assert_true(all_seen(f, 0, 1000));
    struct kafka_partition partitions[PARTITIONS];
    struct kafka_state s;
    assert_int_equal(kafka_look(f->kafka, &s, partitions, PARTITIONS), PARTITIONS);
    for (int i = 0; i < PARTITIONS; i++) {
        assert_string_equal(partitions[i].topic, "plays");
        assert_int_equal(partitions[i].partition, i);
        assert_int_equal(partitions[i].next, 250);
        assert_int_equal(partitions[i].end, 250);
    }
    check_full_disk(f);
}

/* Of all kinds: with a key and without, null, and no play at all. */
static void produce_others(struct fixture *f, int partition)
{
    produce(f, partition, "{\"user\":\"u0\"}");
    produce(f, partition, "{\"user\":\"u0\",\"item\":\"old\",\"time\":1500000000000}");
    produce(f, partition, "{\"user\":\"u0\",\"item\":\"seconds\",\"time\":1795255200}");
    produce(f, partition, "{\"user\":\"v\",\"item\":\"d\",\"type\":\"delivery\"}");
    assert_int_equal(rd_kafka_producev(f->producer, RD_KAFKA_V_TOPIC("plays"), RD_KAFKA_V_PARTITION(partition),
                                       RD_KAFKA_V_KEY("key", 3), RD_KAFKA_V_END),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
    produced(f);
}

/* The folder has positions of two partitions: one within the log, one beyond its end. */
static void record_positions(struct fixture *f)
{
    char within[STORE_SOURCE_MAX], beyond[STORE_SOURCE_MAX];
    char *id = rd_kafka_clusterid(f->producer, 5000);
    assert_non_null(id);
    snprintf(within, sizeof within, "kafka/%s/plays/1", id);
    snprintf(beyond, sizeof beyond, "kafka/%s/plays/2", id);
    rd_kafka_mem_free(f->producer, id);
    struct store_position positions[] = {{slice_str(within), 10}, {slice_str(beyond), 5000}};
    struct store_batch batch = {.positions = positions, .n_positions = 2};
    int raised = 0;
    batch.done = batch_done;
    batch.owner = &raised;
    f->world.store->ops->record(f->world.store, &batch);
    wait_flag(&raised);
    assert_int_equal(batch.err.code, 0);
}

/* The folder's positions count, of a group that the broker has never heard of. A log that ends before ours is another
 * topic of that name, and read from its beginning. What is no play is passed over, once it is a dead letter. */
static void test_goes_on_where_the_folder_was(void **state)
{
    struct fixture *f = *state;
    produce_plays(f, 0, 100);
    produce_others(f, 0);
    record_positions(f);
    begin(f);
    UNTIL(f, s.plays >= 90 && s.messages >= 95 && s.lag == 0);
    struct kafka_state s = look(f);
    assert_int_equal(s.plays, 90);
    assert_int_equal(s.messages, 95);
    assert_int_equal(s.dead, 2);
    assert_int_equal(s.dead_letters, 2);
    assert_int_equal(s.too_old, 1);
    assert_int_equal(s.nulls, 1);
    assert_int_equal(s.deliveries, 1);
    assert_true(is_seen(&f->world, "v", "d"));
    assert_false(is_seen(&f->world, "u37", "i37"));
    assert_true(is_seen(&f->world, "u41", "i41"));
    assert_true(is_seen(&f->world, "u2", "i2"));
    struct kafka_partition p[PARTITIONS];
    kafka_look(f->kafka, &s, p, PARTITIONS);
    assert_non_null(strstr(p[2].error, "ends before our offset"));
}

/* Commits that a broker refuses change nothing here: ours are the ones that count. Then no broker answers any more, and
 * it ends in bounded time. */
static void test_a_broker_that_refuses_and_is_gone(void **state)
{
    struct fixture *f = *state;
    rd_kafka_mock_push_request_errors(f->cluster, OFFSET_COMMIT, 4, RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
                                      RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
                                      RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
    produce_plays(f, 0, 200);
    begin(f);
    UNTIL(f, s.plays == 200 && s.errors > 0);
    produce_plays(f, 200, 300);
    UNTIL(f, s.plays >= 300 && s.lag == 0);
    assert_int_equal(look(f).plays, 300);
    assert_true(all_seen(f, 0, 300));
    rd_kafka_mock_broker_set_down(f->cluster, 1);
    UNTIL(f, s.doing == KAFKA_CONNECTING && s.cause[0] != '\0');
    int64_t before_us = clock_real_us();
    end(f);
    assert_true(clock_real_us() - before_us < 20 * INT64_C(1000000));
}

/* Two members share, and what both have is all. */
static void test_two_members(void **state)
{
    struct fixture *f = *state;
    struct world other;
    char folder[64];
    produce_plays(f, 0, 400);
    begin(f);
    UNTIL(f, s.plays == 400);
    world_fixture_init(&other, "kafka", START, folder);
    memcpy(other.cfg.kafka_brokers, f->world.cfg.kafka_brokers, sizeof other.cfg.kafka_brokers);
    memcpy(other.cfg.kafka_topics, f->world.cfg.kafka_topics, sizeof other.cfg.kafka_topics);
    memcpy(other.cfg.kafka_properties, f->world.cfg.kafka_properties, sizeof other.cfg.kafka_properties);
    memcpy(other.cfg.modules, f->world.cfg.modules, sizeof other.cfg.modules);
    start(&other);
    struct kafka *second;
    struct err err = {0};
    assert_int_equal(kafka_start(&other.dedup, &second, &err), 0);
    UNTIL(f, s.n_partitions == PARTITIONS / 2);
    produce_plays(f, 400, 800);
    struct kafka_state theirs;
    UNTIL(f, (kafka_look(second, &theirs, NULL, 0), s.plays + theirs.plays >= 800));
    kafka_stop(second);
    kafka_free(second);
    UNTIL(f, s.n_partitions == PARTITIONS);
    world_fixture_end(&other, folder);
}

static void test_a_property_that_is_none(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    snprintf(f->world.cfg.kafka_properties, sizeof f->world.cfg.kafka_properties, "rdkafka.no.such=1");
    assert_int_equal(kafka_start(&f->world.dedup, &f->kafka, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "no.such"));
}

static void test_no_module(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    snprintf(f->world.cfg.modules, sizeof f->world.cfg.modules, "%s", f->folder);
    assert_int_equal(kafka_start(&f->world.dedup, &f->kafka, &err), ERR_ABSENT);
    assert_non_null(strstr(err.text, "install the package unseen-kafka"));
}

/* What is in the build as `name` becomes the module of the test's folder, with a version that is none of this
 * program's.
 */
static void copy_module(struct fixture *f, const char *name, bool other_version)
{
    static char bytes[4 << 20];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", BUILDDIR, name);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    assert_true(n > 0 && n < sizeof bytes);
    int changed = 0;
    for (char *at = bytes;
         other_version && (at = memmem(at, (size_t)(bytes + n - at), UNSEEN_VERSION, sizeof UNSEEN_VERSION)) != NULL;
         changed++) {
        *at++ = '9';
    }
    assert_true(changed > 0 || !other_version);
    snprintf(path, sizeof path, "%s/unseen_kafka.so", f->folder);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    snprintf(f->world.cfg.modules, sizeof f->world.cfg.modules, "%s", f->folder);
}

static void check_module(struct fixture *f, int code, const char *says)
{
    struct err err = {0};
    assert_int_equal(kafka_start(&f->world.dedup, &f->kafka, &err), code);
    assert_null(f->kafka);
    if (strstr(err.text, says) == NULL || strstr(err.text, "unseen_kafka.so") == NULL) {
        fail_msg("%s, expected: %s", err.text, says);
    }
}

static void test_a_module_of_another_version(void **state)
{
    copy_module(*state, "unseen_kafka.so", true);
    check_module(*state, ERR_VERSION, "install the package unseen-kafka of this version");
}

static void test_no_module_of_ours(void **state)
{
    copy_module(*state, "unseen.so", false);
    check_module(*state, ERR_VERSION, "is no module of unseen");
}

static void test_a_module_that_cannot_be_loaded(void **state)
{
    struct fixture *f = *state;
    copy_module(f, "unseen_kafka.so", false);
    char path[128];
    snprintf(path, sizeof path, "%s/unseen_kafka.so", f->folder);
    assert_int_equal(truncate(path, 10), 0);
    check_module(f, ERR_SYSTEM, "can't load a module");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
#ifdef __SANITIZE_THREAD__
    return 77; /* librdkafka's threads are C11's, which the sanitizer does not know: the mock never answers */
#endif
    const struct CMUnitTest tests[] = {
        TEST(test_plays_arrive_also_after_a_full_disk),
        TEST(test_goes_on_where_the_folder_was),
        TEST(test_a_broker_that_refuses_and_is_gone),
        TEST(test_two_members),
        TEST(test_a_property_that_is_none),
        TEST(test_no_module),
        TEST(test_a_module_of_another_version),
        TEST(test_no_module_of_ours),
        TEST(test_a_module_that_cannot_be_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
