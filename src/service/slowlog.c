#include "service/slowlog.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct slow entries[SLOWLOG_MAX]; /* by id */
static uint64_t next_id;
static size_t n_entries;

/* A byte of length, then the bytes. */
static void add(struct buf *args, const char *text, size_t len)
{
    uint8_t len8 = (uint8_t)len;
    if (buf_reserve(args, 1 + len) == 0) {
        buf_add(args, &len8, 1);
        buf_add(args, text, len);
    }
}

bool slowlog_add_arg(struct buf *args, size_t i, size_t total, struct slice arg)
{
    char text[SLOWLOG_BYTES + 64];
    if (i == SLOWLOG_ARGS - 1 && total > SLOWLOG_ARGS) {
        add(args, text, (size_t)snprintf(text, sizeof text, "... (%zu more arguments)", total - i));
        return false;
    }
    if (arg.len <= SLOWLOG_BYTES) {
        add(args, arg.data, arg.len);
    } else {
        memcpy(text, arg.data, SLOWLOG_BYTES);
        int more = snprintf(text + SLOWLOG_BYTES, sizeof text - SLOWLOG_BYTES, "... (%zu more bytes)",
                            arg.len - SLOWLOG_BYTES);
        add(args, text, SLOWLOG_BYTES + (size_t)more);
    }
    return i + 1 < total;
}

void slowlog_note(const struct conn *c, int64_t us, struct buf *args)
{
    char address[CONN_ADDRESS];
    conn_address(c, false, address);
    pthread_mutex_lock(&mutex);
    struct slow *e = &entries[next_id % SLOWLOG_MAX];
    buf_free(&e->args);
    e->id = next_id++;
    e->at_ms = clock_wall_ms();
    e->us = us;
    e->args = *args;
    memcpy(e->address, address, sizeof address);
    snprintf(e->name, sizeof e->name, "%s", c->name != NULL ? c->name : "");
    n_entries += n_entries < SLOWLOG_MAX;
    pthread_mutex_unlock(&mutex);
    *args = (struct buf){0};
}

void slowlog_each(size_t n, void (*visit)(void *arg, size_t n, const struct slow *entry), void *arg)
{
    pthread_mutex_lock(&mutex);
    n = n < n_entries ? n : n_entries;
    visit(arg, n, NULL);
    for (size_t i = 1; i <= n; i++) {
        visit(arg, n, &entries[(next_id - i) % SLOWLOG_MAX]);
    }
    pthread_mutex_unlock(&mutex);
}

size_t slowlog_len(void)
{
    pthread_mutex_lock(&mutex);
    size_t n = n_entries;
    pthread_mutex_unlock(&mutex);
    return n;
}

void slowlog_reset(void)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < SLOWLOG_MAX; i++) {
        buf_free(&entries[i].args);
    }
    n_entries = 0; /* ids go on */
    pthread_mutex_unlock(&mutex);
}

bool slowlog_next_arg(const struct slow *entry, size_t *at, struct slice *arg)
{
    if (*at >= entry->args.len) {
        return false;
    }
    *arg = slice_of(entry->args.data + *at + 1, (uint8_t)entry->args.data[*at]);
    *at += 1 + arg->len;
    return true;
}

size_t slowlog_count_args(const struct slow *entry)
{
    struct slice arg;
    size_t n = 0, at = 0;
    while (slowlog_next_arg(entry, &at, &arg)) {
        n++;
    }
    return n;
}
