#include "base/slice.h"

#include <stdint.h>

size_t utf8_len(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    if (len == 0 || *p < 0x80) {
        return len > 0;
    }
    size_t n = *p >= 0xc2 && *p <= 0xdf ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
    /* Overlong forms, surrogates and what is above U+10FFFF show in the second byte. */
    if (n == 0 || len < n || (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
        (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f)) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

static uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Four words at a time, then one by one, then bytes. */
size_t ascii_len(struct slice text)
{
    enum { WORD = sizeof(uint64_t) };
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t i = 0;
    for (; text.len - i >= 4 * WORD; i += 4 * WORD) {
        const char *at = text.data + i;
        uint64_t all = word_at(at) | word_at(at + WORD) | word_at(at + 2 * WORD) | word_at(at + 3 * WORD);
        if ((all & high) != 0) {
            break;
        }
    }
    while (text.len - i >= WORD && (word_at(text.data + i) & high) == 0) {
        i += WORD;
    }
    while (i < text.len && (text.data[i] & 0x80) == 0) {
        i++;
    }
    return i;
}

bool slice_is_utf8(struct slice text)
{
    for (size_t i = ascii_len(text); i < text.len; i += ascii_len(slice_of(text.data + i, text.len - i))) {
        size_t n = utf8_len(text.data + i, text.len - i);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

bool slice_is_text(struct slice id)
{
    return slice_is_utf8(id) && (id.len == 0 || memchr(id.data, '\0', id.len) == NULL);
}

static bool is_control(const char *at, size_t n)
{
    const unsigned char *s = (const unsigned char *)at;
    return (n == 1 && (s[0] < 0x20 || s[0] == 0x7f)) || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0);
}

bool slice_has_control(struct slice text)
{
    for (size_t i = 0; i < text.len;) {
        size_t n = utf8_len(text.data + i, text.len - i);
        if (is_control(text.data + i, n)) {
            return true;
        }
        i += n > 0 ? n : 1;
    }
    return false;
}

size_t slice_show_next(struct slice *text, char out[4])
{
    static const char hex[] = "0123456789abcdef";
    const char *at = text->data;
    size_t n = utf8_len(at, text->len);
    bool plain = n > 0 && !is_control(at, n);
    unsigned char c = (unsigned char)at[0];
    memcpy(out, plain ? at : (const char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, plain ? n : 4);
    text->data += plain ? n : 1;
    text->len -= plain ? n : 1;
    return plain ? n : 4;
}

const char *slice_show(struct slice text, char *out, size_t size)
{
    char next[4];
    size_t len = 0, n;
    while (text.len > 0 && len + (n = slice_show_next(&text, next)) < size) {
        memcpy(out + len, next, n);
        len += n;
    }
    out[len] = '\0';
    return out;
}

void utf8_clean(char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_len(text + i, len - i);
        if (n == 0) {
            text[i] = '?';
            n = 1;
        }
    }
}
