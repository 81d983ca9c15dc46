/* What GET /metrics prints: each figure once, described, with its value. promtool reads it too, in the end-to-end
 * tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "http/metrics.h"
#include "store/admin.h"
#include "store/ring.h"

static struct metrics *new_metrics(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->version = "1.2.3";
    m->sqlite = "3.40.1";
    m->libuv = "1.44.2";
    m->now_ms = 1795255200000;
    m->has_ring = true;
    m->ring.next_turn_ms = m->now_ms + 1000;
    return m;
}

static char *print(struct metrics *m)
{
    struct buf out = {0};
    metrics_write(&out, m);
    buf_add(&out, "", 1);
    assert_false(out.failed);
    free(m);
    return out.data;
}

static void expect_line(const char *text, const char *line)
{
    size_t len = strlen(line);
    for (const char *at = strstr(text, line); at != NULL; at = strstr(at + 1, line)) {
        if ((at == text || at[-1] == '\n') && at[len] == '\n') {
            return;
        }
    }
    fail_msg("no line \"%s\"", line);
}

static void each_is_described_once(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->has_store = true;
    m->ring.n_slots = 2;
    m->n_months = 1;
    char *text = print(m), *rest = text;
    char name[128] = "", seen[16384] = "\n";
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            size_t len = strcspn(line + 7, " ");
            snprintf(name, sizeof name, "\n%.*s\n", (int)len, line + 7);
            assert_null(strstr(seen, name));
            assert_true(strlen(seen) + len + 2 < sizeof seen);
            strcat(seen, name + 1);
            snprintf(name, sizeof name, "%.*s", (int)len, line + 7);
            assert_true(strlen(line + 7 + len) > 10 && line[strlen(line) - 1] == '.');
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(strncmp(line + 7, name, strlen(name)), 0);
        } else if (strncmp(line, name, strlen(name)) != 0) {
            fail_msg("\"%s\" stands below %s", line, name);
        }
    }
    free(text);
}

static void a_histogram_is_cumulative(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    struct bucket_sums *played = &m->ops[OP_PLAYED];
    played->counts[2] = 3; /* up to 50 us */
    played->counts[6] = 4; /* up to 1 ms */
    played->counts[buckets_us.n] = 5;
    played->sum = 61000250;
    char *text = print(m);
    expect_line(text, "# TYPE unseen_command_duration_seconds histogram");
    expect_line(text, "unseen_command_duration_seconds_bucket{command=\"played\",le=\"2.5e-05\"} 0");
    expect_line(text, "unseen_command_duration_seconds_bucket{command=\"played\",le=\"5e-05\"} 3");
    expect_line(text, "unseen_command_duration_seconds_bucket{command=\"played\",le=\"0.0005\"} 3");
    expect_line(text, "unseen_command_duration_seconds_bucket{command=\"played\",le=\"0.001\"} 7");
    expect_line(text, "unseen_command_duration_seconds_bucket{command=\"played\",le=\"10\"} 7");
    expect_line(text, "unseen_command_duration_seconds_bucket{command=\"played\",le=\"+Inf\"} 12");
    expect_line(text, "unseen_command_duration_seconds_sum{command=\"played\"} 61.000250");
    expect_line(text, "unseen_command_duration_seconds_count{command=\"played\"} 12");
    expect_line(text, "unseen_command_duration_seconds_count{command=\"unseen\"} 0");
    free(text);
}

static void units_are_seconds(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->has_store = true;
    m->started_ms = 1795255199007;
    m->counts[COUNT_FALSE_HITS] = 2500001;
    m->stats.recovery_us = 1000002;
    m->stats.flushed_ms = 1795255199123;
    m->stats.commit_us.counts[1] = 1;
    m->stats.commit_us.sum = 77;
    m->stats.commit_rows.counts[2] = 1;
    m->stats.commit_rows.sum = 4;
    m->error_rate = 0.0001;
    char *text = print(m);
    expect_line(text, "process_start_time_seconds 1795255199.007");
    expect_line(text, "unseen_expected_false_hits_total 2.500001");
    expect_line(text, "unseen_recovery_duration_seconds 1.000002");
    expect_line(text, "unseen_flush_last_success_timestamp_seconds 1795255199.123");
    expect_line(text, "unseen_commit_duration_seconds_bucket{le=\"0.0001\"} 1");
    expect_line(text, "unseen_commit_duration_seconds_sum 0.000077");
    expect_line(text, "unseen_commit_rows_bucket{le=\"2\"} 0");
    expect_line(text, "unseen_commit_rows_bucket{le=\"5\"} 1");
    expect_line(text, "unseen_commit_rows_sum 4");
    expect_line(text, "unseen_commit_rows_count 1");
    expect_line(text, "unseen_error_rate_limit_ratio 0.0001");
    free(text);
}

static void the_ring(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->has_store = true;
    m->ring.n_slots = 3;
    m->ring.slots[0] = (struct store_slot){.slot = 0, .state = SLOT_OPEN, .rows = 7, .since_ms = m->now_ms - 500};
    m->ring.slots[1] = (struct store_slot){.slot = 1, .state = SLOT_FAILED, .closed_ms = m->now_ms - 90250};
    m->ring.slots[2] = (struct store_slot){.slot = 9, .state = SLOT_CLOSED, .closed_ms = m->now_ms - 1000};
    m->ring.next_turn_ms = m->now_ms - 61000;
    m->refused = true;
    char *text = print(m);
    expect_line(text, "unseen_flush_behind_seconds 90.250");
    expect_line(text, "unseen_ring_overdue_seconds 61.000");
    expect_line(text, "unseen_writes_refused 1");
    expect_line(text, "unseen_clock_doubted 0");
    expect_line(text, "unseen_slot_rows{slot=\"0\"} 7");
    expect_line(text, "unseen_slot_state{slot=\"1\",state=\"failed\"} 1");
    expect_line(text, "unseen_slot_state{slot=\"1\",state=\"open\"} 0");
    expect_line(text, "unseen_slot_state{slot=\"9\",state=\"closed\"} 1");
    expect_line(text, "unseen_slot_state_since_timestamp_seconds{slot=\"0\"} 1795255199.500");
    free(text);
}

static void nothing_is_behind(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->has_store = true;
    m->ring.n_slots = 1;
    char *text = print(m);
    expect_line(text, "unseen_flush_behind_seconds 0.000");
    expect_line(text, "unseen_ring_overdue_seconds 0.000");
    expect_line(text, "unseen_loading 0");
    free(text);
}

static void months(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->has_store = true;
    m->n_months = 2;
    m->months[0] = (struct store_month_info){
        .month = month_of_ms(m->now_ms), .state = STORE_MONTH_LIVE, .users = 1, .plays = 2, .bytes = 3};
    m->months[1] = (struct store_month_info){
        .month = month_of_ms(m->now_ms) - 7, .state = STORE_MONTH_EXPIRING, .progress = 0.25, .plays = 1ULL << 40};
    char *text = print(m);
    expect_line(text, "unseen_month_users{month=\"2026-11\",state=\"live\"} 1");
    expect_line(text, "unseen_month_plays{month=\"2026-11\",state=\"live\"} 2");
    expect_line(text, "unseen_month_filter_bytes{month=\"2026-11\",state=\"live\"} 3");
    expect_line(text, "unseen_month_plays{month=\"2026-04\",state=\"expiring\"} 1099511627776");
    expect_line(text, "unseen_month_progress_ratio{month=\"2026-04\",state=\"expiring\"} 0.25");
    free(text);
}

static void health(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->ready = true;
    m->n_heartbeats = 2;
    m->heartbeats[0] = (struct heartbeat_age){"stager", 61007};
    m->heartbeats[1] = (struct heartbeat_age){"worker-0", 0};
    char *text = print(m);
    expect_line(text, "unseen_ready 1");
    expect_line(text, "unseen_thread_silent_seconds{thread=\"stager\"} 61.007");
    expect_line(text, "unseen_thread_silent_seconds{thread=\"worker-0\"} 0.000");
    free(text);
}

static void while_it_recovers(void **state)
{
    (void)state;
    struct metrics *m = new_metrics();
    m->errors[0] = 3;
    char *text = print(m);
    expect_line(text, "unseen_loading 1");
    expect_line(text, "unseen_build_info{version=\"1.2.3\",sqlite=\"3.40.1\",libuv=\"1.44.2\"} 1");
    expect_line(text, "unseen_command_errors_total{kind=\"ERR\"} 3");
    expect_line(text, "unseen_ready 0");
    assert_null(strstr(text, "unseen_commit"));
    assert_null(strstr(text, "unseen_writes_refused"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_described_once),
        cmocka_unit_test(a_histogram_is_cumulative),
        cmocka_unit_test(units_are_seconds),
        cmocka_unit_test(the_ring),
        cmocka_unit_test(nothing_is_behind),
        cmocka_unit_test(months),
        cmocka_unit_test(health),
        cmocka_unit_test(while_it_recovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
