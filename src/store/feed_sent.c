#include "store/feed_sent.h"

#include <string.h>

#include "base/arena.h"

enum { COUNTED = 128 };

void feed_sent_add(struct feed_sent *s, const struct feed_stretch *stretch)
{
    if (s->n > 0 && s->list[s->n - 1].to != stretch->from) {
        s->n = 0;
    }
    if (s->n < FEED_SENT_MAX) {
        s->list[s->n++] = *stretch;
    }
}

bool feed_sent_pass(struct feed_sent *s, uint64_t cursor, uint64_t done, uint64_t *n, uint64_t *bytes)
{
    uint64_t at = cursor;
    size_t gone = 0;
    *n = *bytes = 0;
    for (; gone < s->n && s->list[gone].to <= done; gone++) {
        if (s->list[gone].from == at) {
            *n += s->list[gone].n;
            *bytes += s->list[gone].bytes;
            at = s->list[gone].to;
        }
    }
    memmove(s->list, s->list + gone, (s->n - gone) * sizeof *s->list);
    s->n -= gone;
    return at >= done;
}

/* Those behind the cursor, up to `done`. */
static int count_events(struct store *store, struct store_reader *reader, const char *consumer, uint64_t cursor,
                        uint64_t done, uint64_t *n, uint64_t *bytes, struct heartbeat *heartbeat, struct err *err)
{
    struct feed_event list[COUNTED];
    struct arena arena = {0};
    int got;
    *n = *bytes = 0;
    do {
        arena_reset(&arena);
        got = store->feed->read(reader, consumer, cursor, list, COUNTED, &arena, err);
        for (int i = 0; i < got && list[i].seq <= done; i++) {
            *n += 1;
            *bytes += feed_event_bytes(list[i].user, list[i].item, list[i].group);
        }
        cursor = got > 0 ? list[got - 1].seq : done;
        heartbeat_now(heartbeat);
    } while (got == COUNTED && cursor < done);
    arena_free(&arena);
    return got < 0 ? got : 0;
}

int feed_sent_done(struct feed_sent *s, struct store *store, struct store_reader *reader, const char *consumer,
                   uint64_t done, struct heartbeat *heartbeat, struct err *err)
{
    struct feed_state queue;
    uint64_t n, bytes;
    int rc = 0;
    feed_state_of(store, consumer, &queue);
    if (!feed_sent_pass(s, queue.cursor, done, &n, &bytes)) {
        rc = count_events(store, reader, consumer, queue.cursor, done, &n, &bytes, heartbeat, err);
    }
    if (rc == 0 && done > queue.cursor) {
        store->feed->done(store, consumer, done, n, bytes);
    }
    return rc;
}
