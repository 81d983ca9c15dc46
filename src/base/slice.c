#include "base/slice.h"

/* Mostly ASCII: it is the first branch. */
bool slice_is_text(struct slice id)
{
    const unsigned char *p = (const unsigned char *)id.data;
    const unsigned char *end = p + id.len;
    while (p < end) {
        if (*p < 0x80) {
            if (*p == 0) {
                return false;
            }
            p++;
            continue;
        }
        int more = *p >= 0xc2 && *p <= 0xdf ? 1 : (*p & 0xf0) == 0xe0 ? 2 : *p >= 0xf0 && *p <= 0xf4 ? 3 : 0;
        if (more == 0 || end - p <= more) {
            return false;
        }
        /* Overlong forms, surrogates and what is above U+10FFFF show in the second byte. */
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
            (*p == 0xf4 && p[1] > 0x8f)) {
            return false;
        }
        for (int i = 1; i <= more; i++) {
            if ((p[i] & 0xc0) != 0x80) {
                return false;
            }
        }
        p += more + 1;
    }
    return true;
}
