#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool count_read(const char *text, uint64_t most, uint64_t *n)
{
    uint64_t value = 0;
    bool good = *text != '\0';
    for (; good && *text != '\0'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        good = *text >= '0' && *text <= '9' && digit <= most && value <= (most - digit) / 10;
        value = 10 * value + digit;
    }
    *n = good ? value : 0;
    return good;
}

bool hex_read(const char *at, size_t digits, uint64_t *n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = at[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return false;
        }
        value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *n = value;
    return true;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_add(struct buf *out, struct slice bytes)
{
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

bool base64_read(struct slice text, char *out, size_t *len)
{
    *len = 0;
    for (size_t i = 0; i < text.len; i += 4) {
        uint32_t group = 0;
        size_t n = 0; /* digits of the four that are not padding */
        for (; n < 4 && i + n < text.len && text.data[i + n] != '='; n++) {
            const char *digit = text.data[i + n] != '\0' ? strchr(digits, text.data[i + n]) : NULL;
            if (digit == NULL) {
                return false;
            }
            group |= (uint32_t)(digit - digits) << (18 - 6 * n);
        }
        bool last = i + 4 == text.len;
        bool padded = n == 4 || (last && n >= 2 && text.data[i + 3] == '=' && text.data[i + 2 + (n == 3)] == '=');
        if (!padded || i + 4 > text.len || (n < 4 && (group >> (n == 2 ? 16 : 8) << (n == 2 ? 16 : 8)) != group)) {
            return false;
        }
        for (size_t k = 0; k + 1 < n; k++) {
            out[(*len)++] = (char)(group >> (16 - 8 * k));
        }
    }
    return true;
}
