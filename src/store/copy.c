#include "store/copy.h"

#include <string.h>

#include "base/arena.h"
#include "store/positions.h"

enum { PAGE = 64 };

int copy_positions_each(struct store *s, struct store_reader *reader, struct slice prefix,
                        bool (*each)(void *arg, const struct store_position *position), void *arg, struct err *err)
{
    struct store_position page[PAGE];
    char last[STORE_SOURCE_MAX];
    struct arena arena = {0};
    struct slice after = prefix;
    int n = PAGE;
    bool more = s->copy != NULL;
    while (more && n == PAGE) {
        n = s->copy->positions(reader, &after, page, PAGE, &arena, err);
        for (int i = 0; i < n && more; i++) {
            struct slice source = page[i].source;
            more = source.len >= prefix.len && memcmp(source.data, prefix.data, prefix.len) == 0 && each(arg, &page[i]);
        }
        if (n == PAGE) {
            memcpy(last, page[n - 1].source.data, page[n - 1].source.len);
            after = slice_of(last, page[n - 1].source.len);
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    return n < 0 ? n : 0;
}
