/* Events of a feed from the wire: any bytes give events that keep the rules, written again they are the same, or there
 * is an error with a text. */
#include <string.h>

#include "base/hash.h"
#include "fuzz.h"
#include "replica/event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct event_state state = {0}, written = {0}, again = {0};
    struct feed_event event, same;
    struct err err = {0};
    struct buf out = {0};
    size_t at = 0, out_at = 0;
    int result;
    while ((result = event_read(&state, slice_of((const char *)data, size), &at, &event, &err)) == 1) {
        CHECK(event.user.len > 0 && event.item.len <= HASH_ID_MAX && event.kind > 0 && event.kind < FEED_KINDS);
        CHECK(event_write(&written, &event, &out) == 0);
    }
    CHECK(result == 0 ||
          ((result == ERR_CORRUPT || result == ERR_VERSION) && err.code == result && err.text[0] != '\0'));
    while (event_read(&again, buf_slice(&out), &out_at, &same, &err) == 1) {
    }
    CHECK(out_at == out.len && again.seq == written.seq && again.at_ms == written.at_ms);
    buf_free(&out);
    return 0;
}
