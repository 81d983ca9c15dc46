/* Reads all keys of one object of a pool, again and again, as the bare minimum of a question: rados_peer CONF POOL
 * OBJECT SECONDS. Prints p50 and p99 in microseconds, and how many keys there are. */
#include <rados/librados.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 1024, MOST = 1000000 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int fail(const char *what, int code)
{
    fprintf(stderr, "rados_peer: %s: %s\n", what, strerror(-code));
    return 1;
}

/* How many keys there are, or a negative errno. */
static long read_all(rados_ioctx_t io, const char *object)
{
    char after[256] = "";
    long keys = 0;
    unsigned char more = 1;
    while (more != 0) {
        rados_omap_iter_t page = NULL;
        int result = 0;
        rados_read_op_t op = rados_create_read_op();
        rados_read_op_omap_get_vals2(op, after, "", PAGE, &page, &more, &result);
        int code = rados_read_op_operate(op, io, object, 0);
        rados_release_read_op(op);
        if (code < 0 || result < 0) {
            return code < 0 ? code : result;
        }
        char *key, *value;
        size_t key_len, value_len;
        while (rados_omap_get_next2(page, &key, &value, &key_len, &value_len) == 0 && key != NULL) {
            snprintf(after, sizeof after, "%.*s", (int)key_len, key);
            keys++;
        }
        rados_omap_get_end(page);
    }
    return keys;
}

static int by_time(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    rados_t rados;
    rados_ioctx_t io;
    if (argc != 5) {
        fprintf(stderr, "usage: rados_peer CONF POOL OBJECT SECONDS\n");
        return 2;
    }
    int code = rados_create(&rados, NULL);
    if (code < 0 || (code = rados_conf_read_file(rados, argv[1])) < 0 || (code = rados_connect(rados)) < 0) {
        return fail(argv[1], code);
    }
    if ((code = rados_ioctx_create(rados, argv[2], &io)) < 0) {
        return fail(argv[2], code);
    }
    float *times = malloc(MOST * sizeof *times);
    size_t n = 0;
    long keys = 0;
    double end = now_us() + atof(argv[4]) * 1e6;
    for (double before = now_us(); times != NULL && n < MOST && before < end; before = now_us()) {
        keys = read_all(io, argv[3]);
        if (keys < 0) {
            return fail(argv[3], (int)keys);
        }
        times[n++] = (float)(now_us() - before);
    }
    if (n == 0) {
        fprintf(stderr, "rados_peer: nothing was read\n");
        return 1;
    }
    qsort(times, n, sizeof *times, by_time);
    printf("%.1f %.1f %ld\n", times[n / 2], times[n * 99 / 100], keys);
    free(times);
    rados_ioctx_destroy(io);
    rados_shutdown(rados);
    return 0;
}
