/* The module that knows librados, on a librados of this file: what it hands over, and what it makes of answers that no
 * cluster of a test gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "store/rados/module/librados_impl.h"

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
    (void)io, (void)filter_buf, (void)filter_buf_len;
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

/* --- the rest of it --- */

int rados_lock_exclusive(rados_ioctx_t io, const char *object, const char *name, const char *cookie, const char *desc,
                         struct timeval *duration, uint8_t flags)
{
    (void)io, (void)object, (void)name, (void)cookie, (void)desc, (void)duration, (void)flags;
    return 0;
}

int rados_unlock(rados_ioctx_t io, const char *object, const char *name, const char *cookie)
{
    (void)io, (void)object, (void)name, (void)cookie;
    return 0;
}

int rados_mon_command(rados_t cluster, const char **cmd, size_t cmdlen, const char *inbuf, size_t inbuflen,
                      char **outbuf, size_t *outbuflen, char **outs, size_t *outslen)
{
    (void)cluster, (void)cmd, (void)cmdlen, (void)inbuf, (void)inbuflen;
    *outbuf = *outs = NULL;
    *outbuflen = *outslen = 0;
    return 0;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_object_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
