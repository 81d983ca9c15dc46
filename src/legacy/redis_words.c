#include "legacy/redis_words.h"

enum { NUMBER_TEXT = 24 };

void redis_words_count(struct buf *out, size_t n)
{
    buf_addf(out, "*%zu\r\n", n);
}

void redis_words_add(struct buf *out, struct slice word)
{
    char head[NUMBER_TEXT];
    size_t at = sizeof head, len = word.len;
    head[--at] = '\n';
    head[--at] = '\r';
    do {
        head[--at] = (char)('0' + len % 10);
        len /= 10;
    } while (len > 0);
    head[--at] = '$';
    if (buf_reserve(out, sizeof head - at + word.len + 2) == 0) {
        buf_add(out, head + at, sizeof head - at);
        buf_add(out, word.data, word.len);
        buf_add(out, "\r\n", 2);
    }
}

void redis_words_all(struct buf *out, const struct slice *words, size_t n)
{
    redis_words_count(out, n);
    for (size_t i = 0; i < n; i++) {
        redis_words_add(out, words[i]);
    }
}
