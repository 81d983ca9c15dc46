/* The module that knows librados, on a librados of this file: what it hands over, and what it makes of answers that no
 * cluster of a test gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "store/rados/module/librados_impl.h"

static int code_next; /* of the next call; a negative errno */

static int take_code(void)
{
    int code = code_next;
    code_next = 0;
    return code;
}

/* --- a pool that is listed --- */

enum { OBJECTS = 3 };
static struct slice names[OBJECTS];
static size_t cursors[OBJECTS + 1]; /* one is the address of its place */

static size_t place_of(rados_object_list_cursor cursor)
{
    return (size_t)((size_t *)cursor - cursors);
}

rados_object_list_cursor rados_object_list_begin(rados_ioctx_t io)
{
    (void)io;
    return &cursors[0];
}

rados_object_list_cursor rados_object_list_end(rados_ioctx_t io)
{
    (void)io;
    return &cursors[OBJECTS];
}

int rados_object_list_is_end(rados_ioctx_t io, rados_object_list_cursor cursor)
{
    (void)io;
    return place_of(cursor) == OBJECTS;
}

void rados_object_list_cursor_free(rados_ioctx_t io, rados_object_list_cursor cursor)
{
    (void)io, (void)cursor;
}

int rados_object_list_cursor_cmp(rados_ioctx_t io, rados_object_list_cursor a, rados_object_list_cursor b)
{
    (void)io;
    return (place_of(a) > place_of(b)) - (place_of(a) < place_of(b));
}

void rados_object_list_slice(rados_ioctx_t io, const rados_object_list_cursor start,
                             const rados_object_list_cursor finish, const size_t n, const size_t m,
                             rados_object_list_cursor *split_start, rados_object_list_cursor *split_finish)
{
    (void)io, (void)n, (void)m;
    *split_start = start;
    *split_finish = finish;
}

int rados_object_list(rados_ioctx_t io, const rados_object_list_cursor start, const rados_object_list_cursor finish,
                      const size_t result_size, const char *filter_buf, const size_t filter_buf_len,
                      rados_object_list_item *results, rados_object_list_cursor *next)
{
    size_t n = 0, at = place_of(start);
    int code = take_code();
    (void)io, (void)filter_buf, (void)filter_buf_len;
    if (code < 0) {
        return code;
    }
    for (; n < result_size && at < place_of(finish); n++, at++) {
        results[n] = (rados_object_list_item){.oid_length = names[at].len, .oid = (char *)(uintptr_t)names[at].data};
    }
    *next = &cursors[at];
    return (int)n;
}

void rados_object_list_free(const size_t result_size, rados_object_list_item *results)
{
    (void)result_size, (void)results;
}

/* --- locks and the monitors --- */

static const char *answer_next, *status_next;
static size_t longer_next; /* by how much the answer says to be */

static char *text_of(const char *text, size_t *len)
{
    *len = text != NULL ? strlen(text) : 0;
    return text != NULL ? strdup(text) : NULL;
}

int rados_lock_exclusive(rados_ioctx_t io, const char *object, const char *name, const char *cookie, const char *desc,
                         struct timeval *duration, uint8_t flags)
{
    (void)io, (void)object, (void)name, (void)cookie, (void)desc, (void)duration, (void)flags;
    return take_code();
}

int rados_unlock(rados_ioctx_t io, const char *object, const char *name, const char *cookie)
{
    (void)io, (void)object, (void)name, (void)cookie;
    return take_code();
}

int rados_mon_command(rados_t cluster, const char **cmd, size_t cmdlen, const char *inbuf, size_t inbuflen,
                      char **outbuf, size_t *outbuflen, char **outs, size_t *outslen)
{
    (void)cluster, (void)cmd, (void)cmdlen, (void)inbuf, (void)inbuflen;
    *outbuf = text_of(answer_next, outbuflen);
    *outbuflen += longer_next;
    *outs = text_of(status_next, outslen);
    return take_code();
}

void rados_buffer_free(char *buf)
{
    free(buf);
}

/* --- tests --- */

static void on_name(void *arg, const char *object)
{
    struct buf *told = arg;
    assert_int_equal(buf_add(told, object, strlen(object) + 1), 0);
}

/* Also one that is as long as an OSD takes it: it is for who asks to say that it is no name of ours. */
static void each_object_is_told(void **state)
{
    char longest[2048];
    struct cluster cluster = {0};
    struct cluster_listing *listing;
    struct buf told = {0}, expected = {0};
    struct err err = {0};
    (void)state;
    memset(longest, 'n', sizeof longest);
    names[0] = slice_str("meta");
    names[1] = slice_of(longest, sizeof longest);
    names[2] = slice_str("u.u");
    for (size_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(buf_add(&expected, names[i].data, names[i].len), 0);
        assert_int_equal(buf_add(&expected, "", 1), 0);
    }
    assert_int_equal(librados_list(&cluster, 0, 1, &listing, &err), 0);
    assert_int_equal(librados_list_next(listing, 2, on_name, &told, &err), 1);
    assert_int_equal(librados_list_next(listing, 2, on_name, &told, &err), 0);
    librados_list_end(listing);
    assert_int_equal(told.len, expected.len);
    assert_memory_equal(told.data, expected.data, told.len);
    buf_free(&told);
    buf_free(&expected);
}

/* The next try is a whole one: a list goes on where it was. */
static void what_fails_is_told_once(void **state)
{
    static const struct {
        int code, result;
    } ways[] = {{-ETIMEDOUT, ERR_LATE}, {-EIO, ERR_IO}, {-ESHUTDOWN, ERR_IO}};
    struct cluster cluster = {0};
    struct cluster_listing *listing;
    struct buf told = {0};
    struct err err = {0};
    (void)state;
    for (size_t i = 0; i < OBJECTS; i++) {
        names[i] = slice_str("u.u");
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        buf_clear(&told);
        code_next = ways[i].code;
        assert_int_equal(librados_lock(&cluster, "night.1", "we", 300, &err), ways[i].result);
        assert_non_null(strstr(err.text, "can't take a lock"));
        assert_int_equal(librados_lock(&cluster, "night.1", "we", 300, &err), 1);
        code_next = ways[i].code;
        assert_int_equal(librados_unlock(&cluster, "night.1", "we", &err), ways[i].result);
        assert_non_null(strstr(err.text, "can't release a lock"));
        assert_int_equal(librados_unlock(&cluster, "night.1", "we", &err), 0);
        assert_int_equal(librados_list(&cluster, 0, 1, &listing, &err), 0);
        assert_int_equal(librados_list_next(listing, 2, on_name, &told, &err), 1);
        code_next = ways[i].code;
        assert_int_equal(librados_list_next(listing, 2, on_name, &told, &err), ways[i].result);
        assert_non_null(strstr(err.text, "can't list objects"));
        assert_int_equal(librados_list_next(listing, 2, on_name, &told, &err), 0);
        librados_list_end(listing);
        assert_int_equal(told.len, OBJECTS * sizeof "u.u");
    }
    code_next = -EBUSY;
    assert_int_equal(librados_lock(&cluster, "night.1", "we", 300, &err), 0);
    code_next = -ENOENT;
    assert_int_equal(librados_unlock(&cluster, "night.1", "we", &err), 0);
    buf_free(&told);
}

static void a_monitor_that_fails(void **state)
{
    static const struct {
        int code;
        const char *status;
        int result;
        const char *words;
    } ways[] = {
        {-ETIMEDOUT, NULL, ERR_LATE, "can't ask the monitors"},
        {-EPERM, "access denied", ERR_NOPERM, "don't let this user ask that"},
        {-EACCES, NULL, ERR_NOPERM, "don't let this user ask that"},
        {-EINVAL, "command not known", ERR_IO, "command not known"},
        {-EIO, NULL, ERR_IO, "can't ask the monitors"},
    };
    struct cluster cluster = {0};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *text = NULL;
        size_t len = 0;
        struct err err = {0};
        code_next = ways[i].code;
        status_next = ways[i].status;
        answer_next = NULL;
        assert_int_equal(librados_command(&cluster, "{}", &text, &len, &err), ways[i].result);
        assert_non_null(strstr(err.text, ways[i].words));
        assert_null(text);
        status_next = NULL;
        answer_next = "{\"pools\": []}";
        assert_int_equal(librados_command(&cluster, "{}", &text, &len, &err), 0);
        assert_string_equal(text, answer_next);
        assert_int_equal(len, strlen(answer_next));
        free(text);
    }
}

static void an_answer_that_is_too_long(void **state)
{
    struct cluster cluster = {0};
    struct err err = {0};
    char *text = NULL, words[100];
    size_t len = 0;
    (void)state;
    answer_next = "x";
    status_next = NULL;
    longer_next = CLUSTER_ANSWER;
    assert_int_equal(librados_command(&cluster, "{}", &text, &len, &err), ERR_LARGE);
    snprintf(words, sizeof words, "%d bytes: %d are taken at most", CLUSTER_ANSWER + 1, CLUSTER_ANSWER);
    assert_non_null(strstr(err.text, words));
    assert_null(text);
    longer_next = 0;
    assert_int_equal(librados_command(&cluster, "{}", &text, &len, &err), 0);
    assert_string_equal(text, "x");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_object_is_told),
        cmocka_unit_test(what_fails_is_told_once),
        cmocka_unit_test(a_monitor_that_fails),
        cmocka_unit_test(an_answer_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
