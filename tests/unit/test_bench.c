/* The requests that the load generator makes, what it makes of the answers, and what it prints; and the engine against
 * a server that this test plays itself. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/bench/bench_engine.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_work.h"
#include "resp/parser.h"

static const struct bench_terms terms = {
    .prefix = "t",
    .users = 3,
    .skew = 0.5,
    .candidates = 20,
    .seen_percent = 50,
    .plays_per_month = 12500,
    .months = 2,
    .form = BENCH_BITMAP,
    .verify = true,
};

static struct bench_works *works_for(const struct bench_terms *t)
{
    struct bench_works *works;
    struct err err;
    assert_int_equal(bench_works_new(t, &works, &err), 0);
    return works;
}

/* Makes a request and parses it as the server would. */
static void make(const struct bench_work *work, struct bench_source *source, struct buf *bytes, struct parser *parser,
                 uint32_t *tag)
{
    struct bench_request request = {.tag = 0};
    buf_clear(bytes);
    assert_true(work->next(work, source, bytes, &request));
    buf_add(bytes, request.body.data, request.body.len);
    parser_next(parser);
    assert_int_equal(parser_feed(parser, bytes->data, bytes->len), PARSE_DONE);
    assert_int_equal(parser->used, bytes->len);
    *tag = request.tag;
}

static bool is_known(const struct buf *known, struct slice item)
{
    return known->len > 0 && memmem(known->data, known->len, item.data, item.len) != NULL;
}

/* All plays that users are prepared with, one behind the other; each user has every one of them once. */
static void take_preparation(struct bench_works *works, struct buf *known)
{
    const struct bench_work *work;
    struct err err;
    struct buf bytes = {0};
    struct bench_request request;
    struct bench_source source = {0};
    uint64_t plays = 0;
    assert_int_equal(bench_preparation(works, &work, &err), 0);
    for (;;) {
        struct parser parser;
        buf_clear(&bytes);
        if (!work->next(work, &source, &bytes, &request)) {
            break;
        }
        buf_add(&bytes, request.body.data, request.body.len);
        parser_init(&parser);
        assert_int_equal(parser_feed(&parser, bytes.data, bytes.len), PARSE_DONE);
        assert_int_equal(parser.used, bytes.len);
        assert_true(slice_eq(parser.args[0], slice_str("PLAYEDAT")));
        assert_int_equal(parser.n, request.tag + 3);
        plays += request.tag;
        for (size_t i = 3; slice_eq(parser.args[1], slice_str("t:00000000")) && i < parser.n; i++) {
            assert_int_equal(parser.args[i].len, 25);
            buf_add(known, parser.args[i].data, parser.args[i].len);
        }
        parser_free(&parser);
    }
    assert_int_equal(plays, terms.users * terms.plays_per_month * terms.months);
    assert_int_equal(known->len, 25 * terms.plays_per_month * terms.months);
    buf_free(&bytes);
}

/* The answer that an exact server gives. The first `lies` answers of a kind are turned round: of played candidates, or
 * of the others. */
static void answer(struct buf *out, const struct parser *question, const struct buf *known, int played_lies, int lies)
{
    uint8_t bits[8] = {0};
    size_t n = question->n - 5, n_unseen = 0;
    struct buf items = {0}, indexes = {0};
    for (size_t i = 0; i < n; i++) {
        struct slice item = question->args[5 + i];
        bool played = is_known(known, item);
        int *lie = played ? &played_lies : &lies;
        if (played == (*lie > 0)) {
            bits[i / 8] |= (uint8_t)(0x80 >> i % 8);
            buf_addf(&items, "$%zu\r\n%.*s\r\n", item.len, (int)item.len, item.data);
            buf_addf(&indexes, ":%zu\r\n", i);
            n_unseen++;
        }
        *lie -= *lie > 0;
    }
    buf_clear(out);
    if (slice_eq(question->args[3], slice_str("BITMAP"))) {
        buf_addf(out, "$%zu\r\n", (n + 7) / 8);
        buf_add(out, bits, (n + 7) / 8);
        buf_add(out, "\r\n", 2);
    } else {
        bool as_items = slice_eq(question->args[3], slice_str("ITEMS"));
        buf_addf(out, "*%zu\r\n", n_unseen);
        buf_add(out, as_items ? items.data : indexes.data, as_items ? items.len : indexes.len);
    }
    buf_free(&items);
    buf_free(&indexes);
}

static void answers_are_verified(void **state)
{
    (void)state;
    for (int form = BENCH_ITEMS; form <= BENCH_BITMAP; form++) {
        struct bench_terms t = terms;
        t.form = (enum bench_reply_form)form;
        struct bench_works *works = works_for(&t);
        const struct bench_work *work = bench_questions(works);
        struct bench_source source = {0};
        struct buf known = {0}, bytes = {0}, reply = {0};
        struct parser parser;
        parser_init(&parser);
        take_preparation(works, &known);
        uint64_t played = 0, all = 0;
        for (int i = 0; i < 30; i++) {
            struct bench_findings found = {0};
            uint32_t tag;
            make(work, &source, &bytes, &parser, &tag);
            assert_int_equal(parser.n, 5 + t.candidates);
            assert_true(slice_eq(parser.args[0], slice_str("FILTER")));
            assert_int_equal(parser.args[1].len, 10);

            answer(&reply, &parser, &known, 0, 0);
            assert_true(work->check(work, tag, buf_slice(&reply), &found));
            assert_int_equal(found.hidden + found.shown, 0);
            all += t.candidates;
            played += t.candidates - found.unplayed;

            found = (struct bench_findings){0};
            answer(&reply, &parser, &known, 0, 1);
            assert_true(work->check(work, tag, buf_slice(&reply), &found));
            assert_int_equal(found.hidden, found.unplayed > 0);

            found = (struct bench_findings){0};
            answer(&reply, &parser, &known, 1, 0);
            assert_false(work->check(work, tag, buf_slice(&reply), &found));
            assert_int_equal(found.shown, 1);
            assert_int_equal(found.hidden, 0);

            assert_false(work->check(work, tag, slice_str(":1\r\n"), &found));
            assert_false(work->check(work, tag, slice_str("$1\r\nx\r\n"), &found));
            assert_false(work->check(work, tag, slice_str("*21\r\n"), &found));
        }
        assert_in_range(played, all * 4 / 10, all * 6 / 10);
        assert_false(
            work->check(work, 0, slice_str("*1\r\n$25\r\nitem:00000000000000000000\r\n"), &(struct bench_findings){0}));
        assert_false(work->check(work, 0, slice_str("*2\r\n:3\r\n:3\r\n"), &(struct bench_findings){0}));
        parser_free(&parser);
        buf_free(&known);
        buf_free(&bytes);
        buf_free(&reply);
        bench_works_free(works);
    }
}

/* The server hides each never-played candidate that it is asked about a second time: as if every filter had a false
 * hit there. Nothing that is counted is one of those. */
static void a_false_hit_is_counted_once(void **state)
{
    (void)state;
    enum { FRESH = 8 }; /* each question looks for its candidates in all before it */
    for (int form = BENCH_ITEMS; form <= BENCH_BITMAP; form++) {
        struct bench_terms t = terms;
        t.form = (enum bench_reply_form)form;
        struct bench_works *works = works_for(&t);
        const struct bench_work *work = bench_questions(works);
        struct bench_source source = {0};
        struct buf hidden = {0}, bytes = {0}, reply = {0};
        struct bench_findings all = {0};
        struct parser parser;
        uint64_t counted = 0, repeated = 0;
        parser_init(&parser);
        take_preparation(works, &hidden);
        size_t played = hidden.len;
        for (source.serial = 0; source.serial < FRESH * BENCH_FRESH; source.serial++) {
            struct bench_findings found = {0};
            uint32_t tag;
            make(work, &source, &bytes, &parser, &tag);
            answer(&reply, &parser, &hidden, 0, 0);
            assert_true(work->check(work, tag, buf_slice(&reply), &found));
            for (size_t i = 5; i < parser.n; i++) {
                size_t known = hidden.len;
                if (!is_known(&hidden, parser.args[i])) {
                    buf_add(&hidden, parser.args[i].data, parser.args[i].len);
                }
                repeated += known == hidden.len && memmem(hidden.data, played, parser.args[i].data, 25) == NULL;
            }
            assert_int_equal(found.unplayed > 0, source.serial % BENCH_FRESH == 0);
            counted += found.unplayed > 0;
            all.hidden += found.hidden;
        }
        assert_int_equal(counted, FRESH);
        assert_true(repeated > 100); /* the others ask again about the same */
        assert_int_equal(all.hidden, 0);
        parser_free(&parser);
        buf_free(&hidden);
        buf_free(&bytes);
        buf_free(&reply);
        bench_works_free(works);
    }
}

static void plays_are_new_ones(void **state)
{
    (void)state;
    struct bench_works *works = works_for(&terms);
    const struct bench_work *work = bench_plays(works);
    struct bench_source source = {.random = {9}};
    struct buf bytes = {0}, known = {0};
    struct parser parser;
    uint32_t tag;
    parser_init(&parser);
    for (int i = 0; i < 1000; i++) {
        make(work, &source, &bytes, &parser, &tag);
        assert_int_equal(parser.n, 3);
        assert_true(slice_eq(parser.args[0], slice_str("PLAYED")));
        assert_memory_equal(parser.args[1].data, "t:0000000", 9);
        assert_in_range(parser.args[1].data[9], '0', '2');
        assert_int_equal(parser.args[2].len, 25);
        assert_false(is_known(&known, parser.args[2]));
        buf_add(&known, parser.args[2].data, parser.args[2].len);
    }
    assert_true(work->check(work, tag, slice_str(":1\r\n"), NULL));
    assert_false(work->check(work, tag, slice_str(":2\r\n"), NULL));
    assert_false(work->check(work, tag, slice_str("+OK\r\n"), NULL));
    parser_free(&parser);
    buf_free(&bytes);
    buf_free(&known);
    bench_works_free(works);
}

/* --- a server of our own --- */

struct fake {
    int listener;
    char address[64];
    int errors_every; /* n: each n-th command gets an error; 0: none */
    int close_after;  /* commands; 0: never */
};

struct fake_conn {
    struct fake *fake;
    int fd;
};

static void *serve_conn(void *arg)
{
    struct fake_conn *c = arg;
    struct buf in = {0}, out = {0};
    struct parser parser;
    int commands = 0;
    parser_init(&parser);
    for (bool open = true; open;) {
        char piece[4096];
        ssize_t n = read(c->fd, piece, sizeof piece);
        if (n <= 0) {
            break;
        }
        buf_add(&in, piece, (size_t)n);
        size_t used = 0;
        while (open && parser_feed(&parser, in.data + used, in.len - used) == PARSE_DONE) {
            bool hello = slice_eq(parser.args[0], slice_str("HELLO"));
            commands += !hello;
            if (c->fake->close_after > 0 && commands >= c->fake->close_after) {
                open = false;
            } else if (!hello && c->fake->errors_every > 0 && commands % c->fake->errors_every == 0) {
                buf_addf(&out, commands % 2 == 0 ? "-BUSY %d are waiting\r\n" : "-ERR number %d\r\n", commands);
            } else {
                buf_addf(&out, hello ? "%%0\r\n" : "+PONG\r\n");
            }
            used += parser.used;
            parser_next(&parser);
        }
        memmove(in.data, in.data + used, in.len - used);
        in.len -= used;
        if (out.len > 0 && write(c->fd, out.data, out.len) < 0) {
            break;
        }
        buf_clear(&out);
    }
    parser_free(&parser);
    buf_free(&in);
    buf_free(&out);
    close(c->fd);
    free(c);
    return NULL;
}

static void *serve(void *arg)
{
    struct fake *fake = arg;
    pthread_t threads[64];
    int n = 0;
    for (int fd; n < 64 && (fd = accept(fake->listener, NULL, NULL)) >= 0; n++) {
        struct fake_conn *c = malloc(sizeof *c);
        if (c == NULL) {
            abort();
        }
        *c = (struct fake_conn){fake, fd};
        if (pthread_create(&threads[n], NULL, serve_conn, c) != 0) {
            abort();
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    return NULL;
}

static pthread_t start_fake(struct fake *fake)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    pthread_t thread;
    fake->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fake->listener >= 0);
    assert_int_equal(bind(fake->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fake->listener, 64), 0);
    assert_int_equal(getsockname(fake->listener, (struct sockaddr *)&a, &len), 0);
    snprintf(fake->address, sizeof fake->address, "127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, serve, fake), 0);
    return thread;
}

static void stop_fake(struct fake *fake, pthread_t thread)
{
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(fake->listener);
}

/* A hundred pings a connection, then no more. */
static bool next_of_hundred(const struct bench_work *work, struct bench_source *source, struct buf *out,
                            struct bench_request *request)
{
    (void)work;
    (void)request;
    if (source->serial == 100) {
        return false;
    }
    buf_addf(out, "PING\r\n");
    return true;
}

static bool is_pong(const struct bench_work *work, uint32_t tag, struct slice reply, struct bench_findings *findings)
{
    (void)work;
    (void)tag;
    (void)findings;
    return slice_eq(reply, slice_str("+PONG\r\n"));
}

static const struct bench_work hundred = {.name = "pings", .replies = 1, .next = next_of_hundred, .check = is_pong};
static const struct bench_work fifty_pairs = {.name = "pairs", .replies = 2, .next = next_of_hundred, .check = is_pong};

static struct bench_result *run_plan(struct fake *fake, const struct bench_load *loads, int n_loads, double seconds,
                                     int expected, struct err *err)
{
    struct bench_result *results = calloc((size_t)n_loads, sizeof *results);
    assert_non_null(results);
    struct bench_plan plan = {
        .address = fake->address, .loads = loads, .n_loads = n_loads, .threads = 2, .seconds = seconds, .seed = 3};
    pthread_t thread = start_fake(fake);
    int rc = bench_run(&plan, results, err);
    stop_fake(fake, thread);
    if (rc != expected) {
        fail_msg("%d instead of %d: %s", rc, expected, err->text);
    }
    return results;
}

static void everything_is_sent_and_counted(void **state)
{
    (void)state;
    struct fake fake = {0};
    struct err err = {0};
    struct bench_load load = {.work = &hundred, .connections = 5, .pipeline = 7};
    struct bench_result *r = run_plan(&fake, &load, 1, 0, 0, &err);
    assert_int_equal(r->answered, 500);
    assert_int_equal(r->done, 500);
    assert_int_equal(r->latency.count, 500);
    assert_int_equal(r->errors + r->wrong + r->unsent + r->unanswered, 0);
    free(r);
}

static void errors_are_named(void **state)
{
    (void)state;
    struct fake fake = {.errors_every = 10};
    struct err err = {0};
    struct bench_load load = {.work = &hundred, .connections = 3, .pipeline = 1};
    struct bench_result *r = run_plan(&fake, &load, 1, 0, 0, &err);
    assert_int_equal(r->errors, 30);
    assert_int_equal(r->wrong, 0);
    assert_int_equal(r->n_named, 1);
    assert_int_equal(r->named[0].count, 30);
    assert_string_equal(r->named[0].text, "BUSY 10 are waiting");
    free(r);

    fake = (struct fake){.errors_every = 5};
    r = run_plan(&fake, &load, 1, 0, 0, &err);
    assert_int_equal(r->errors, 60);
    assert_int_equal(r->n_named, 2);
    assert_int_equal(r->named[0].count + r->named[1].count, 60);
    free(r);
}

/* The fake answers one of two replies that are expected to each request, so half of the requests stay open; a lost
 * connection ends the run before the engine's patience does. */
static void a_lost_connection_ends_the_run(void **state)
{
    (void)state;
    struct fake fake = {.close_after = 50};
    struct err err = {0};
    struct bench_load load = {.work = &fifty_pairs, .connections = 2, .pipeline = 64};
    struct bench_result *r = run_plan(&fake, &load, 1, 0, ERR_CLOSED, &err);
    assert_non_null(strstr(err.text, "closed a connection"));
    free(r);
}

/* An open loop sends what is due, however long it takes: at 1000 a second and 100 requests a connection, 300 of them
 * are due 0.1 s after the start, and none is left out. */
static void an_open_loop_sends_what_is_due(void **state)
{
    (void)state;
    struct fake fake = {0};
    struct err err = {0};
    struct bench_load loads[] = {{.work = &hundred, .connections = 2, .pipeline = 1, .rate = 2000},
                                 {.work = &hundred, .connections = 1, .pipeline = 4, .rate = 1000}};
    struct bench_result *r = run_plan(&fake, loads, 2, 0, 0, &err);
    assert_int_equal(r[0].answered, 200);
    assert_int_equal(r[1].answered, 100);
    assert_int_equal(r[0].latency.count, 200);
    assert_true(r[0].seconds > 0.09);
    free(r);
}

/* A server that is there and answers no more: of 100 requests with two replies each, 50 replies are missing at last. */
static void a_silent_server_ends_a_run_without_end(void **state)
{
    (void)state;
    struct fake fake = {0};
    struct err err = {0};
    const struct bench_load load = {.work = &fifty_pairs, .connections = 1, .pipeline = 64};
    struct bench_result result = {.done = 0};
    const struct bench_plan plan = {
        .loads = &load, .n_loads = 1, .threads = 1, .silence = 0.2, .address = fake.address};
    pthread_t thread = start_fake(&fake);
    int rc = bench_run(&plan, &result, &err);
    stop_fake(&fake, thread);
    assert_int_equal(rc, ERR_SYSTEM);
    assert_non_null(strstr(err.text, "no answer for 0.2 s"));
}

/* The second ping is due a microsecond before the end, and nobody is too slow for that. */
static void due_at_the_last_moment(void **state)
{
    (void)state;
    struct fake fake = {0};
    struct err err = {0};
    struct bench_load load = {.work = &hundred, .connections = 1, .pipeline = 1, .rate = 1.000001};
    struct bench_result *r = run_plan(&fake, &load, 1, 1, 0, &err);
    assert_in_range(r->answered, 1, 2);
    assert_int_equal(r->unsent, 0);
    free(r);
}

static bool next_always(const struct bench_work *work, struct bench_source *source, struct buf *out,
                        struct bench_request *request)
{
    (void)work;
    (void)source;
    (void)request;
    buf_addf(out, "PING\r\n");
    return true;
}

/* Far more is due than can be sent: what is answered after the warm-up was due in it, and has waited since. */
static void what_piled_up_in_the_warm_up_counts(void **state)
{
    (void)state;
    static const struct bench_work always = {.name = "pings", .replies = 1, .next = next_always, .check = is_pong};
    struct fake fake = {0};
    struct err err = {0};
    const struct bench_load load = {.work = &always, .connections = 1, .pipeline = 1, .rate = 1e8};
    struct bench_result result = {.done = 0};
    const struct bench_plan plan = {
        .loads = &load, .n_loads = 1, .threads = 1, .warm_up = 0.1, .seconds = 0.1, .address = fake.address};
    pthread_t thread = start_fake(&fake);
    int rc = bench_run(&plan, &result, &err);
    stop_fake(&fake, thread);
    assert_int_equal(rc, 0);
    assert_true(result.done > 0 && result.unsent > 0);
    assert_true(result.latency.count >= result.done);
    assert_true(histogram_quantile(&result.latency, 0) > 50 * 1000 * 1000);
}

/* --- what is printed --- */

static void latencies_are_short(void **state)
{
    (void)state;
    static const struct {
        double ns;
        const char *text;
    } cases[] = {
        {0, "0.00 us"},      {1234, "1.23 us"},    {87400, "87.4 us"}, {999400, "999 us"},
        {999600, "1.00 ms"}, {1610000, "1.61 ms"}, {2.3e9, "2.30 s"},  {4e12, "4000 s"},
    };
    char text[OUTPUT_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(latency_text(cases[i].ns, text), cases[i].text);
    }
}

static void the_drawing_fits_the_terminal(void **state)
{
    (void)state;
    struct histogram *h = calloc(1, sizeof *h);
    assert_non_null(h);
    for (uint64_t i = 0; i < 1000; i++) {
        histogram_note(h, 100000 + i * 100);
    }
    histogram_note(h, 3000000000);
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    bench_draw(out, h, BENCH_WIDTH);
    fclose(out);
    int rows = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), rows++) {
        assert_in_range(strlen(line), 20, BENCH_WIDTH);
    }
    assert_in_range(rows, 2, BENCH_ROWS);
    free(text);

    memset(h, 0, sizeof *h);
    histogram_note(h, 5);
    out = open_memstream(&text, &len);
    assert_non_null(out);
    bench_draw(out, h, BENCH_WIDTH);
    fclose(out);
    assert_non_null(strstr(text, "100.00 %"));
    assert_non_null(strstr(text, "p99.9"));
    free(text);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_verified),
        cmocka_unit_test(a_false_hit_is_counted_once),
        cmocka_unit_test(plays_are_new_ones),
        cmocka_unit_test(everything_is_sent_and_counted),
        cmocka_unit_test(errors_are_named),
        cmocka_unit_test(a_lost_connection_ends_the_run),
        cmocka_unit_test(an_open_loop_sends_what_is_due),
        cmocka_unit_test(due_at_the_last_moment),
        cmocka_unit_test(a_silent_server_ends_a_run_without_end),
        cmocka_unit_test(what_piled_up_in_the_warm_up_counts),
        cmocka_unit_test(latencies_are_short),
        cmocka_unit_test(the_drawing_fits_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
