#include "resp/writer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"

enum { ERROR_MAX = 1024 };

size_t write_digits(char *out, uint64_t n)
{
    char digits[20];
    size_t len = 0;
    do {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    for (size_t i = 0; i < len; i++) {
        out[i] = digits[len - 1 - i];
    }
    return len;
}

/* A type byte, a number, CR LF. */
static size_t head_line(char line[24], char type, uint64_t n)
{
    line[0] = type;
    size_t len = 1 + write_digits(line + 1, n);
    line[len++] = '\r';
    line[len++] = '\n';
    return len;
}

static void head(struct writer *w, char type, uint64_t n)
{
    char line[24];
    buf_add(w->out, line, head_line(line, type, n));
}

void write_simple(struct writer *w, const char *text)
{
    size_t len = strlen(text);
    if (buf_reserve(w->out, len + 3) < 0) {
        return;
    }
    buf_add(w->out, "+", 1);
    buf_add(w->out, text, len);
    buf_add(w->out, "\r\n", 2);
}

void write_error(struct writer *w, const char *text)
{
    size_t len = strnlen(text, ERROR_MAX);
    if (buf_reserve(w->out, len + 3) < 0) {
        return;
    }
    buf_add(w->out, "-", 1);
    char *at = w->out->data + w->out->len;
    buf_add(w->out, text, len);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)at[i] < ' ' || at[i] == 0x7f) {
            at[i] = ' ';
        }
    }
    buf_add(w->out, "\r\n", 2);
}

void write_errorf(struct writer *w, const char *format, ...)
{
    char text[ERROR_MAX + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_error(w, text);
}

void write_int(struct writer *w, int64_t value)
{
    if (value >= 0) {
        head(w, ':', (uint64_t)value);
        return;
    }
    buf_addf(w->out, ":%lld\r\n", (long long)value);
}

/* The shortest of the usual precisions that reads back as the same number. */
void write_double(struct writer *w, double value)
{
    char text[DOUBLE_TEXT];
    double_text(value, text);
    if (w->proto >= 3) {
        buf_addf(w->out, ",%s\r\n", text);
    } else {
        write_str(w, text);
    }
}

void write_null(struct writer *w)
{
    if (w->proto >= 3) {
        buf_add(w->out, "_\r\n", 3);
    } else {
        buf_add(w->out, "$-1\r\n", 5);
    }
}

void write_bulk(struct writer *w, struct slice text)
{
    if (buf_reserve(w->out, text.len + 26) < 0) {
        return;
    }
    head(w, '$', text.len);
    buf_add(w->out, text.data, text.len);
    buf_add(w->out, "\r\n", 2);
}

void write_str(struct writer *w, const char *text)
{
    write_bulk(w, slice_str(text));
}

void write_text(struct writer *w, struct slice text)
{
    if (w->proto < 3) {
        write_bulk(w, text);
        return;
    }
    if (buf_reserve(w->out, text.len + 30) < 0) {
        return;
    }
    head(w, '=', text.len + 4);
    buf_add(w->out, "txt:", 4);
    buf_add(w->out, text.data, text.len);
    buf_add(w->out, "\r\n", 2);
}

void write_text_whole(struct writer *w, struct buf *text)
{
    char line[24 + 4];
    bool verbatim = w->proto >= 3;
    size_t len = head_line(line, verbatim ? '=' : '$', text->len + (verbatim ? 4 : 0));
    if (verbatim) {
        memcpy(line + len, "txt:", 4);
        len += 4;
    }
    if (w->out->len > 0 || buf_reserve(text, len + 2) < 0) {
        write_text(w, buf_slice(text));
        return;
    }
    memmove(text->data + len, text->data, text->len);
    memcpy(text->data, line, len);
    text->len += len;
    buf_add(text, "\r\n", 2);
    buf_free(w->out);
    *w->out = *text;
    *text = (struct buf){0};
}

void write_array(struct writer *w, size_t n)
{
    head(w, '*', n);
}

void write_map(struct writer *w, size_t n)
{
    if (w->proto >= 3) {
        head(w, '%', n);
    } else {
        head(w, '*', 2 * n);
    }
}

void write_set(struct writer *w, size_t n)
{
    head(w, w->proto >= 3 ? '~' : '*', n);
}

void write_hex(struct writer *w, uint64_t id)
{
    char text[2 * sizeof id + 1];
    snprintf(text, sizeof text, "%016" PRIx64, id);
    write_str(w, id != 0 ? text : "");
}

void write_pair_int(struct writer *w, const char *name, int64_t value)
{
    write_str(w, name);
    write_int(w, value);
}

void write_pair_double(struct writer *w, const char *name, double value)
{
    write_str(w, name);
    write_double(w, value);
}

void write_pair_str(struct writer *w, const char *name, const char *text)
{
    write_str(w, name);
    write_str(w, text);
}

void write_pair_bulk(struct writer *w, const char *name, struct slice text)
{
    write_str(w, name);
    write_bulk(w, text);
}

void write_pair_hex(struct writer *w, const char *name, uint64_t id)
{
    write_str(w, name);
    write_hex(w, id);
}

void write_pair_ints(struct writer *w, const struct writer_number *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        write_pair_int(w, list[i].name, list[i].value);
    }
}
