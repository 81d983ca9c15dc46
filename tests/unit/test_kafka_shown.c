/* What is shown of Kafka, with a reader of the test: every edge says the same, and no reply is longer than what was
 * reserved for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "http/http.h"
#include "http/metrics.h"
#include "kafka/kafka.h"
#include "resp/client.h"
#include "tests/lib/server_fixture.h"

static struct {
    struct kafka_state state;
    struct kafka_partition partitions[KAFKA_PARTITIONS_SHOWN];
    size_t n;
} told;

/* Takes the place of the reader's. */
size_t kafka_look(struct kafka *k, struct kafka_state *state, struct kafka_partition *partitions, size_t max)
{
    if (k == NULL) {
        *state = (struct kafka_state){.doing = KAFKA_OFF};
        return 0;
    }
    *state = told.state;
    size_t n = told.n < max ? told.n : max;
    if (n > 0) {
        memcpy(partitions, told.partitions, n * sizeof *partitions);
    }
    return n;
}

static void tell_two(void)
{
    memset(&told, 0, sizeof told);
    told.state = (struct kafka_state){.doing = KAFKA_PAUSED,
                                      .cause = "staging is full",
                                      .group = "unseen",
                                      .n_partitions = 2,
                                      .lag = 7,
                                      .lag_ms = 61500,
                                      .rate = 12.5,
                                      .messages = 5,
                                      .plays = 4,
                                      .deliveries = 3,
                                      .nulls = 2,
                                      .too_old = 1,
                                      .dead = 6,
                                      .rebalances = 8,
                                      .errors = 9,
                                      .error = "broker down",
                                      .error_ms = 1000,
                                      .dead_letters = 10,
                                      .dead_letter_bytes = 11};
    told.partitions[0] = (struct kafka_partition){"deliveries", 3, -1, -1, -1, 0, 0, 0, 0, ""};
    told.partitions[1] = (struct kafka_partition){"plays", 0, 100, 107, 7, 61500, 12.5, 5, 6, "no topic"};
    told.n = 2;
}

/* Every text, number and list as long as it gets. */
static void tell_most(void)
{
    tell_two();
    struct kafka_state *s = &told.state;
    memset(s->cause, 'c', sizeof s->cause - 1);
    memset(s->group, 'g', sizeof s->group - 1);
    memset(s->error, 'e', sizeof s->error - 1);
    s->lag = s->lag_ms = s->error_ms = INT64_MIN;
    s->rate = -1.2345678901234567e-100;
    s->messages = s->plays = s->deliveries = s->nulls = s->too_old = s->dead = UINT64_MAX;
    s->rebalances = s->errors = s->dead_letters = s->dead_letter_bytes = s->n_partitions = UINT64_MAX;
    told.n = KAFKA_PARTITIONS_SHOWN;
    for (size_t i = 0; i < told.n; i++) {
        struct kafka_partition *p = &told.partitions[i];
        *p = (struct kafka_partition){.partition = INT32_MIN, .rate = s->rate};
        p->next = p->end = p->lag = p->lag_ms = INT64_MIN;
        p->messages = p->dead = UINT64_MAX;
        memset(p->topic, 't', sizeof p->topic - 1);
        memset(p->error, 'e', sizeof p->error - 1);
    }
}

static void begin(struct fixture *f, bool configured)
{
    fixture_init(f);
    f->cfg.request_memory = 256 * 1024 * 1024;
    fixture_start(f);
    fixture_attach(f);
    f->dedup.kafka = configured ? (struct kafka *)&told : NULL; /* before anybody asks */
}

static void end(struct fixture *f)
{
    fixture_stop(f);
    fixture_end(f);
}

static void expect(const struct fixture *f, const char *text, const char *want)
{
    struct buf got = {0};
    client_ask(f, text, &got);
    assert_true(text_is(want, &got, text));
    buf_free(&got);
}

#define ANY "\1"

static void none_is_configured(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, false);
    expect(&f, "KAFKA\r\nPING\r\n", "-ERR no Kafka is configured: set brokers in the section [kafka]\r\n+PONG\r\n");
    expect(&f, "INFO kafka\r\n",
           "$" ANY "# Kafka\r\nkafka_state:off\r\nkafka_cause:\r\nkafka_group:\r\nkafka_lag:0\r\n" ANY);
    end(&f);
}

static void what_was_received_includes_it(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, true);
    tell_two();
    expect(&f, "INFO stats\r\n", "$" ANY "\r\nplays_received:4\r\ndeliveries_received:3\r\n" ANY);
    end(&f);
}

static void info_and_the_command_say_all(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, true);
    tell_two();
    expect(
        &f, "KAFKA\r\nPING\r\n",
        "*40\r\n$5\r\nstate\r\n$6\r\npaused\r\n$5\r\ncause\r\n$15\r\nstaging is full\r\n$5\r\ngroup\r\n$6\r\nunseen\r\n"
        "$8\r\nassigned\r\n:2\r\n$3\r\nlag\r\n:7\r\n$6\r\nlag_ms\r\n:61500\r\n$8\r\nmessages\r\n:5\r\n"
        "$5\r\nplays\r\n:4\r\n$10\r\ndeliveries\r\n:3\r\n$5\r\nnulls\r\n:2\r\n$7\r\ntoo_old\r\n:1\r\n"
        "$4\r\ndead\r\n:6\r\n$12\r\ndead_letters\r\n:10\r\n$17\r\ndead_letter_bytes\r\n:11\r\n"
        "$10\r\nrebalances\r\n:8\r\n$6\r\nerrors\r\n:9\r\n$8\r\nerror_at\r\n:1000\r\n$4\r\nrate\r\n$4\r\n12.5\r\n"
        "$5\r\nerror\r\n$11\r\nbroker down\r\n$10\r\npartitions\r\n*2\r\n"
        "*20\r\n$5\r\ntopic\r\n$10\r\ndeliveries\r\n$9\r\npartition\r\n:3\r\n$4\r\nnext\r\n:-1\r\n$3\r\nend\r\n:-1\r\n"
        "$3\r\nlag\r\n:-1\r\n$6\r\nlag_ms\r\n:0\r\n$8\r\nmessages\r\n:0\r\n$4\r\ndead\r\n:0\r\n$4\r\nrate\r\n$"
        "1\r\n0\r\n"
        "$5\r\nerror\r\n$0\r\n\r\n"
        "*20\r\n$5\r\ntopic\r\n$5\r\nplays\r\n$9\r\npartition\r\n:0\r\n$4\r\nnext\r\n:100\r\n$3\r\nend\r\n:107\r\n"
        "$3\r\nlag\r\n:7\r\n$6\r\nlag_ms\r\n:61500\r\n$8\r\nmessages\r\n:5\r\n$4\r\ndead\r\n:6\r\n"
        "$4\r\nrate\r\n$4\r\n12.5\r\n$5\r\nerror\r\n$8\r\nno topic\r\n+PONG\r\n");
    expect(&f, "INFO kafka\r\n",
           "$" ANY
           "# Kafka\r\nkafka_state:paused\r\nkafka_cause:staging is full\r\nkafka_group:unseen\r\nkafka_lag:7\r\n"
           "kafka_lag_ms:61500\r\nkafka_rate:12.5\r\nkafka_partitions:2\r\nkafka_messages:5\r\nkafka_plays:4\r\n"
           "kafka_deliveries:3\r\nkafka_nulls:2\r\nkafka_too_old:1\r\nkafka_dead:6\r\nkafka_dead_letters:10\r\n"
           "kafka_dead_letter_bytes:11\r\nkafka_rebalances:8\r\nkafka_errors:9\r\nkafka_error_time:1000\r\n"
           "kafka_error:broker down\r\n"
           "kafka_partition0:topic=deliveries,partition=3,next=-1,end=-1,lag=-1,lag_ms=0,rate=0.0,messages=0,dead=0,"
           "error=\r\n"
           "kafka_partition1:topic=plays,partition=0,next=100,end=107,lag=7,lag_ms=61500,rate=12.5,messages=5,dead=6,"
           "error=no topic\r\n\r\n");
    end(&f);
}

/* What the subcommand prints, to the folder's file of that name. */
static char *run_cli(const struct fixture *f, const char *option, int *exit_code)
{
    char to[sizeof f->cfg.unix_socket + 8], path[128];
    snprintf(to, sizeof to, "unix:%s", f->cfg.unix_socket);
    snprintf(path, sizeof path, "%s/printed", f->folder);
    char *argv[] = {"kafka", "--status", "--to", to, "--data", (char *)f->folder, (char *)option, NULL};
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
    *exit_code = cli_kafka(option != NULL ? 7 : 6, argv);
    fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    char *text = calloc(1, 4096);
    assert_non_null(text);
    assert_true(pread(fd, text, 4095, 0) > 0);
    close(fd);
    close(saved);
    unlink(path);
    return text;
}

static void the_subcommand_prints_a_table(void **state)
{
    (void)state;
    struct fixture f;
    int exit_code;
    begin(&f, true);
    tell_two();
    char *text = run_cli(&f, NULL, &exit_code);
    assert_int_equal(exit_code, EXIT_FAILED); /* it is paused */
    assert_string_equal(text, "paused: staging is full\n"
                              "group unseen, 2 partitions, lag 7, 61.5 s behind, 12 a second\n"
                              "               5  messages read since the server's start\n"
                              "               4  plays\n"
                              "               3  deliveries\n"
                              "               2  messages without a value, passed over\n"
                              "               1  events past retention, passed over\n"
                              "               6  messages that could not be read\n"
                              "              10  dead letters in the data folder\n"
                              "               8  rebalances of the group\n"
                              "last error 1970-01-01T00:00:01.000Z: broker down\n"
                              "\n"
                              "topic       partition  next  end  lag  behind  rate  dead\n"
                              "deliveries          3     -    -    -   0.0 s   0/s     0\n"
                              "plays               0   100  107    7  61.5 s  12/s     6\n"
                              "plays 0: no topic\n");
    free(text);
    text = run_cli(&f, "--json", &exit_code);
    assert_non_null(strstr(text, "\"state\": \"paused\""));
    assert_non_null(strstr(text, "\"partitions\": ["));
    assert_non_null(strstr(text, "\"next\": 100"));
    free(text);
    told.state.doing = KAFKA_READING;
    told.state.n_partitions = 3;
    text = run_cli(&f, NULL, &exit_code);
    assert_int_equal(exit_code, EXIT_GOOD);
    assert_non_null(strstr(text, "The others are less far behind.\n"));
    free(text);
    end(&f);
}

static void replies_fit_what_was_reserved(void **state)
{
    (void)state;
    static const char *const asked[] = {"KAFKA\r\n", "HELLO 3\r\nKAFKA\r\n", "INFO\r\n", "INFO kafka\r\n",
                                        "HELLO 3\r\nINFO everything\r\n"};
    struct fixture f;
    begin(&f, true);
    tell_most();
    size_t before = atomic_load(&resp_client_overruns);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct buf got = {0};
        client_ask(&f, asked[i], &got);
        assert_true(got.len > 10000);
        buf_free(&got);
        if (atomic_load(&resp_client_overruns) != before) {
            fail_msg("%.30s: the reply is longer than what was reserved", asked[i]);
        }
    }
    end(&f);
}

/* Of a server with an HTTP edge. */
static void get(const struct listeners *listeners, const char *path, struct buf *out)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct buf request = {0};
    a.sin_port = htons((uint16_t)atoi(strrchr(listeners->list[0].address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    buf_addf(&request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    client_send(fd, request.data, request.len);
    client_read_all(fd, out);
    buf_add(out, "", 1);
    close(fd);
    buf_free(&request);
}

static void http_shows_it(void **state)
{
    (void)state;
    struct fixture f;
    struct listeners listeners = {0};
    struct http *http;
    struct buf got = {0};
    struct err err;
    fixture_init(&f);
    snprintf(f.cfg.http, sizeof f.cfg.http, "127.0.0.1:0");
    if (http_open(&f.cfg, &listeners, &http, &err) < 0 || server_start(&f.cfg, &listeners, &f.server, &err) < 0) {
        fail_msg("%s", err.text);
    }
    fixture_attach(&f);
    get(&listeners, "/v1/status", &got);
    assert_non_null(strstr(got.data, "\"kafka\":null"));
    buf_free(&got);
    f.dedup.kafka = (struct kafka *)&told;
    tell_two();
    get(&listeners, "/v1/status", &got);
    assert_non_null(strstr(got.data,
                           "\"kafka\":{\"state\":\"paused\",\"cause\":\"staging is full\",\"group\":\"unseen\","
                           "\"assigned\":2,\"lag\":7,\"lag_ms\":61500,\"rate\":12.5,\"dead_letters\":10,"
                           "\"rebalances\":8,\"error\":\"broker down\",\"error_at\":1000,\"partitions\":"
                           "[{\"topic\":\"deliveries\",\"partition\":3,\"next\":null,\"end\":null,\"lag\":null,"
                           "\"lag_ms\":0,\"rate\":0.0,\"messages\":0,\"dead\":0,\"error\":\"\"},"
                           "{\"topic\":\"plays\",\"partition\":0,\"next\":100,\"end\":107,\"lag\":7,\"lag_ms\":61500,"
                           "\"rate\":12.5,\"messages\":5,\"dead\":6,\"error\":\"no topic\"}]}"));
    assert_non_null(strstr(got.data, "\"kafka_nulls\":2"));
    buf_free(&got);
    tell_most();
    get(&listeners, "/metrics", &got);
    assert_non_null(strstr(got.data, "unseen_kafka_partition_dead_total{topic=\"ttt"));
    assert_true(got.len > 512 * 1024);
    buf_free(&got);
    end(&f);
    http_free(http);
}

static void expect_line(const struct buf *text, const char *line, bool there)
{
    char whole[256];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if ((strstr(text->data, whole) != NULL) != there) {
        fail_msg("%s line \"%s\"", there ? "no" : "a", line);
    }
}

static void metrics_name_partitions(void **state)
{
    (void)state;
    struct buf out = {0};
    struct metrics *m = calloc(1, sizeof *m);
    assert_non_null(m);
    tell_two();
    m->has_store = true;
    m->partitions = told.partitions;
    m->n_partitions = told.n;
    m->kafka = told.state;
    metrics_write(&out, m);
    buf_add(&out, "", 1);
    expect_line(&out, "unseen_kafka_state{state=\"paused\"} 1", true);
    expect_line(&out, "unseen_kafka_state{state=\"off\"} 0", true);
    expect_line(&out, "unseen_kafka_partitions 2", true);
    expect_line(&out, "unseen_kafka_error_timestamp_seconds 1.000", true);
    expect_line(&out, "unseen_kafka_next_offset{topic=\"plays\",partition=\"0\"} 100", true);
    expect_line(&out, "unseen_kafka_end_offset{topic=\"plays\",partition=\"0\"} 107", true);
    expect_line(&out, "unseen_kafka_lag_messages{topic=\"plays\",partition=\"0\"} 7", true);
    expect_line(&out, "unseen_kafka_lag_seconds{topic=\"plays\",partition=\"0\"} 61.500", true);
    expect_line(&out, "unseen_kafka_lag_seconds{topic=\"deliveries\",partition=\"3\"} 0.000", true);
    expect_line(&out, "unseen_kafka_partition_messages_total{topic=\"plays\",partition=\"0\"} 5", true);
    expect_line(&out, "unseen_kafka_partition_dead_total{topic=\"plays\",partition=\"0\"} 6", true);
    assert_null(strstr(out.data, "lag_messages{topic=\"deliveries\"")); /* not known */
    assert_null(strstr(out.data, "} -1\n"));
    buf_free(&out);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_is_configured),
        cmocka_unit_test(what_was_received_includes_it),
        cmocka_unit_test(info_and_the_command_say_all),
        cmocka_unit_test(the_subcommand_prints_a_table),
        cmocka_unit_test(replies_fit_what_was_reserved),
        cmocka_unit_test(http_shows_it),
        cmocka_unit_test(metrics_name_partitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
