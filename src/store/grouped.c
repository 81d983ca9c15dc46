#include "store/grouped.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct slice grouped_write(uint64_t group, struct slice item, char out[GROUPED_MAX])
{
    char number[GROUPED_TEXT + 1];
    snprintf(number, sizeof number, "%+020" PRId64, (int64_t)group);
    memcpy(out, number, GROUPED_TEXT);
    memcpy(out + GROUPED_TEXT, item.data, item.len);
    return slice_of(out, GROUPED_TEXT + item.len);
}

bool grouped_read(struct slice text, struct slice *item, uint64_t *group)
{
    const bool minus = text.len > GROUPED_TEXT && text.data[0] == '-';
    if (text.len <= GROUPED_TEXT || text.len > GROUPED_MAX || (!minus && text.data[0] != '+')) {
        return false;
    }
    const uint64_t most = (uint64_t)INT64_MAX + minus;
    uint64_t n = 0;
    for (int i = 1; i < GROUPED_TEXT; i++) {
        const char digit = text.data[i];
        if (digit < '0' || digit > '9') {
            return false;
        }
        n = n * 10 + (uint64_t)(digit - '0'); /* 19 digits fit */
    }
    *group = minus ? 0 - n : n;
    *item = slice_of(text.data + GROUPED_TEXT, text.len - GROUPED_TEXT);
    return n > 0 && n <= most;
}
