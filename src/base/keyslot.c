#include "base/keyslot.h"

#include <stdint.h>

static struct slice hashed_part(struct slice id)
{
    const char *open = memchr(id.data, '{', id.len);
    if (open == NULL) {
        return id;
    }
    const char *end = id.data + id.len;
    const char *close = memchr(open, '}', (size_t)(end - open));
    return close == NULL || close == open + 1 ? id : slice_of(open + 1, (size_t)(close - open) - 1);
}

unsigned keyslot(struct slice id)
{
    struct slice part = hashed_part(id);
    unsigned crc = 0;
    for (size_t i = 0; i < part.len; i++) {
        crc ^= (unsigned)(uint8_t)part.data[i] << 8;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc << 1 ^ ((crc & 0x8000) != 0 ? 0x1021 : 0);
        }
        crc &= 0xffff;
    }
    return crc % KEYSLOTS;
}
