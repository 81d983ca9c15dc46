#include "legacy/lag.h"

#include <string.h>

static void drop(struct lag *r, int from, int n)
{
    r->n -= n;
    memmove(r->marks + from, r->marks + from + n, (size_t)(r->n - from) * sizeof *r->marks);
}

/* The one between the nearest neighbours; the last stays. */
static void thin_out(struct lag *r)
{
    int64_t before = r->reached_ms, least = INT64_MAX;
    int dropped = 0;
    for (int i = 0; i + 1 < r->n; i++) {
        int64_t gap = r->marks[i + 1].at_ms - before;
        if (gap < least) {
            least = gap;
            dropped = i;
        }
        before = r->marks[i].at_ms;
    }
    drop(r, dropped, 1);
}

void lag_mark(struct lag *r, int64_t now_ms, uint64_t last_id)
{
    if (r->n > 0 && r->marks[r->n - 1].id == last_id) {
        r->marks[r->n - 1].at_ms = now_ms; /* nothing has come since */
        return;
    }
    if (r->n == LAG_MARKS) {
        thin_out(r);
    }
    r->marks[r->n++] = (struct lag_mark){now_ms, last_id};
}

void lag_sent(struct lag *r, uint64_t id)
{
    int passed = 0;
    while (passed < r->n && r->marks[passed].id <= id) {
        r->reached_ms = r->marks[passed++].at_ms;
    }
    drop(r, 0, passed);
}
