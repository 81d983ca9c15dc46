#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

const char *double_text(double value, char out[DOUBLE_TEXT])
{
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(out, DOUBLE_TEXT, "%.*g", precision, value);
        if (strtod(out, NULL) == value) {
            break;
        }
    }
    return out;
}

void base64_add(struct buf *out, struct slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t group = 0;
        for (size_t k = 0; k < 3; k++) {
            group = group << 8 | (k < n ? (unsigned char)bytes.data[i + k] : 0);
        }
        char four[4];
        for (size_t k = 0; k < 4; k++) {
            four[k] = k <= n ? digits[group >> (18 - 6 * k) & 63] : '=';
        }
        buf_add(out, four, sizeof four);
    }
}
