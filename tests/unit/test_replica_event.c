/* Events of a feed on the wire: what is written is read again, whatever is in it, and nothing else is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replica/event.h"
#include "tests/lib/random.h"

enum { EVENTS = 300 };

static char texts[EVENTS][2][256];

static struct feed_event some_event(uint64_t *random, int i, uint64_t seq)
{
    static const enum feed_kind kinds[] = {FEED_PLAY, FEED_DELIVERY, FEED_FORGET,    FEED_UNSEE,
                                           FEED_USER, FEED_OFFSET,   FEED_UNSEE_HASH};
    struct feed_event event = {.seq = seq, .kind = kinds[random_next(random) % 7]};
    bool item = event.kind != FEED_FORGET && event.kind != FEED_USER && event.kind != FEED_OFFSET;
    size_t user_len = 1 + random_next(random) % 255, item_len = 1 + random_next(random) % 255;
    memset(texts[i][0], (int)(random_next(random) % 3), user_len); /* often that of the event before */
    memset(texts[i][1], (int)(random_next(random) % 256), item_len);
    event.user = slice_of(texts[i][0], i % 2 == 0 ? user_len : 7);
    item_len = event.kind == FEED_UNSEE_HASH ? FEED_HASH_BYTES : item_len;
    event.item = item ? slice_of(texts[i][1], item_len) : slice_of("", 0);
    event.at_ms = (int64_t)random_next(random) >> (random_next(random) % 64);
    event.recorded_ms = event.at_ms + (int64_t)(random_next(random) % 1000) - 500;
    event.group = event.kind == FEED_DELIVERY && i % 3 == 0 ? random_next(random) | 1 : 0;
    return event;
}

static void write_all(struct feed_event *events, struct buf *out)
{
    uint64_t random = 7, seq = 0;
    struct event_state state = {0};
    for (int i = 0; i < EVENTS; i++) {
        seq += 1 + (i % 10 == 0 ? random_next(&random) >> 8 : 0);
        events[i] = some_event(&random, i, seq);
        assert_int_equal(event_write(&state, &events[i], out), 0);
    }
}

static void assert_same(const struct feed_event *a, const struct feed_event *b)
{
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->at_ms, b->at_ms);
    assert_int_equal(a->recorded_ms, b->recorded_ms);
    assert_true(slice_eq(a->user, b->user));
    assert_true(slice_eq(a->item, b->item));
    assert_int_equal(a->group, b->group);
}

static void there_and_back(void **arg)
{
    (void)arg;
    static struct feed_event events[EVENTS];
    struct buf out = {0};
    write_all(events, &out);
    struct event_state state = {0};
    struct feed_event event;
    struct err err;
    size_t at = 0;
    for (int i = 0; i < EVENTS; i++) {
        assert_int_equal(event_read(&state, buf_slice(&out), &at, &event, &err), 1);
        assert_same(&event, &events[i]);
    }
    assert_int_equal(event_read(&state, buf_slice(&out), &at, &event, &err), 0);
    buf_free(&out);
}

/* In memory of its own, so that a sanitizer sees a byte too many. */
static int read_prefix(const struct buf *all, size_t len, int *n)
{
    char *copy = malloc(len + 1);
    memcpy(copy, all->data, len);
    struct event_state state = {0};
    struct feed_event event;
    struct err err = {0};
    size_t at = 0;
    int result;
    for (*n = 0; (result = event_read(&state, slice_of(copy, len), &at, &event, &err)) == 1; ++*n) {
    }
    free(copy);
    return result;
}

static void cut_off(void **arg)
{
    (void)arg;
    static struct feed_event events[EVENTS];
    struct buf out = {0};
    write_all(events, &out);
    int whole = 0;
    for (size_t len = 0; len < 4000; len++) {
        int n, result = read_prefix(&out, len, &n);
        assert_true(result == 0 || result == ERR_CORRUPT);
        whole += result == 0;
        assert_true(n <= EVENTS);
    }
    assert_true(whole > 1 && whole < 100); /* only at the end of an event */
    buf_free(&out);
}

static int read_bytes(const void *bytes, size_t len)
{
    struct buf buf = {0};
    int n;
    assert_int_equal(buf_add(&buf, bytes, len), 0);
    int result = read_prefix(&buf, len, &n);
    buf_free(&buf);
    return result;
}

static void refused(void **arg)
{
    (void)arg;
    assert_int_equal(read_bytes("\x01\x07\x01\x00\x00\x01u\x01i", 9), 0);
    assert_int_equal(read_bytes("\x01\x06\x01\x00\x00\x01u\x01i", 9), ERR_CORRUPT); /* a length too small */
    assert_int_equal(read_bytes("\x01\x08\x01\x00\x00\x01u\x01i", 9), ERR_CORRUPT);
    assert_int_equal(read_bytes("\x01\x07\x00\x00\x00\x01u\x01i", 9), ERR_CORRUPT); /* a seq that doesn't rise */
    assert_int_equal(read_bytes("\x01\x06\x01\x00\x00\x01u\x00", 8), ERR_CORRUPT);  /* no item */
    assert_int_equal(read_bytes("\x07\x07\x01\x00\x00\x01u\x01i", 9), ERR_CORRUPT); /* no hash */
    assert_int_equal(read_bytes("\x09\x0f\x01\x00\x00\x01u\x01i\x00\x00\x00\x00\x00\x00\x00\x07", 17), 0);
    assert_int_equal(read_bytes("\x09\x0e\x01\x00\x00\x01u\x01i\x00\x00\x00\x00\x00\x00\x07", 16), ERR_CORRUPT);
    assert_int_equal(read_bytes("\x09\x0f\x01\x00\x00\x01u\x01i\x00\x00\x00\x00\x00\x00\x00\x00", 17), ERR_CORRUPT);
    assert_int_equal(read_bytes("\x00\x00", 2), ERR_VERSION);
    assert_int_equal(read_bytes("\x63\x03new", 5), ERR_VERSION);
    assert_int_equal(read_bytes("\x03\x04\x01\x00\x00\x00", 6), ERR_CORRUPT); /* no user, and none before */
    assert_int_equal(read_bytes("\x03\x05\x01\x00\x00\x01u", 7), 0);
    assert_int_equal(read_bytes("\x03\x05\x00\x00\x00\x01u", 7), ERR_CORRUPT); /* seq 0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
