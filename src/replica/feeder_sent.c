#include "replica/feeder_sent.h"

#include <string.h>

void feeder_sent_add(struct feeder_sent *s, const struct feeder_stretch *stretch)
{
    if (s->n > 0 && s->list[s->n - 1].to != stretch->from) {
        s->n = 0;
    }
    if (s->n < FEEDER_SENT_MAX) {
        s->list[s->n++] = *stretch;
    }
}

bool feeder_sent_pass(struct feeder_sent *s, uint64_t cursor, uint64_t durable, uint64_t *n, uint64_t *bytes)
{
    uint64_t at = cursor;
    size_t gone = 0;
    *n = *bytes = 0;
    for (; gone < s->n && s->list[gone].to <= durable; gone++) {
        if (s->list[gone].from == at) {
            *n += s->list[gone].n;
            *bytes += s->list[gone].bytes;
            at = s->list[gone].to;
        }
    }
    memmove(s->list, s->list + gone, (s->n - gone) * sizeof *s->list);
    s->n -= gone;
    return at >= durable;
}
