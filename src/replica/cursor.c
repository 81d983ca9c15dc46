#include "replica/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "replica/change.h"
#include "replica/clone_mark.h"
#include "store/copy.h"
#include "store/positions.h"

enum { DIGITS = NODE_TEXT - 1 };

/* "feed:NODE:RUN" */
static bool read_source(struct slice source, struct feed_cursor *out)
{
    const size_t prefix = strlen(CLONE_FEED_PREFIX);
    return source.len == prefix + DIGITS + 1 + DIGITS && memcmp(source.data, CLONE_FEED_PREFIX, prefix) == 0 &&
           source.data[prefix + DIGITS] == ':' && change_read_id(slice_of(source.data + prefix, DIGITS), &out->node) &&
           change_read_id(slice_of(source.data + prefix + DIGITS + 1, DIGITS), &out->run);
}

struct found {
    struct feed_cursor *out;
    int n, max;
};

static bool note(void *arg, const struct store_position *position)
{
    struct found *f = arg;
    struct feed_cursor *last = f->n > 0 ? &f->out[f->n - 1] : NULL, c = {.seq = (uint64_t)position->next};
    if (!read_source(position->source, &c)) {
        return true;
    }
    if (last != NULL && last->node == c.node) {
        *last = c.seq >= last->seq ? c : *last;
        return true;
    }
    if (f->n == f->max) {
        return false;
    }
    f->out[f->n++] = c;
    return true;
}

int cursor_find(struct store *store, struct store_reader *reader, uint64_t node, struct feed_cursor *out,
                struct err *err)
{
    char prefix[CLONE_MARK_TEXT];
    struct found f = {out, 0, 1};
    int len = snprintf(prefix, sizeof prefix, CLONE_FEED_PREFIX "%016" PRIx64 ":", node);
    int rc = copy_positions_each(store, reader, slice_of(prefix, (size_t)len), note, &f, err);
    return rc < 0 ? rc : f.n;
}

uint64_t cursor_last(struct store *store)
{
    int64_t node = 0;
    return store->positions != NULL && store->positions->find(store, slice_str(CLONE_FOLLOWED), &node) == 1
               ? (uint64_t)node
               : 0;
}

int cursor_find_last(struct store *store, struct store_reader *reader, uint64_t leader, struct feed_cursor *out,
                     struct err *err)
{
    uint64_t last = cursor_last(store);
    return cursor_find(store, reader, last != 0 ? last : leader, out, err);
}

int cursor_list(struct store *store, struct store_reader *reader, struct feed_cursor out[CURSOR_NODES_MAX],
                struct err *err)
{
    struct found f = {out, 0, CURSOR_NODES_MAX};
    int rc = copy_positions_each(store, reader, slice_str(CLONE_FEED_PREFIX), note, &f, err);
    return rc < 0 ? rc : f.n;
}
