#include "cli/lib/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/calendar.h"
#include "base/text.h"

enum { JSON_KEY = 64 };

void escape_id(struct buf *out, struct slice id)
{
    char next[4];
    while (id.len > 0) {
        size_t n = slice_show_next(&id, next);
        buf_add(out, next, n);
    }
}

void json_escape(struct buf *out, struct slice text)
{
    const unsigned char *s = (const unsigned char *)text.data;
    buf_add(out, "\"", 1);
    for (size_t i = 0; i < text.len;) {
        size_t n = utf8_len(text.data + i, text.len - i);
        if (n == 0) {
            buf_addf(out, "\\udc%02x", s[i]);
            i++;
            continue;
        }
        if (s[i] == '"' || s[i] == '\\') {
            buf_addf(out, "\\%c", s[i]);
        } else if (slice_has_control(slice_of(text.data + i, n))) {
            buf_addf(out, "\\u%04x", n == 1 ? s[i] : s[i + 1]); /* C1 is c2 80 to c2 9f */
        } else {
            buf_add(out, s + i, n);
        }
        i += n;
    }
    buf_add(out, "\"", 1);
}

/* Columns that a text takes on a terminal: characters, not bytes. */
static int text_width(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void add_cell(struct table *t, const char *text, size_t len)
{
    buf_add(&t->cells, text, len);
    buf_add(&t->cells, "", 1);
}

void table_begin(struct table *t, const char *headings)
{
    *t = (struct table){0};
    while (t->columns < TABLE_COLUMNS) {
        size_t len = strcspn(headings, "|");
        bool right = len > 0 && headings[len - 1] == '>';
        add_cell(t, headings, len - right);
        t->width[t->columns] = (int)(len - right);
        t->right[t->columns++] = right;
        if (headings[len] == '\0') {
            break;
        }
        headings += len + 1;
    }
}

void table_cell(struct table *t, const char *format, ...)
{
    char given[512], text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(given, sizeof given, format, args);
    va_end(args);
    slice_show(slice_str(given), text, sizeof text);
    add_cell(t, text, strlen(text));
    int width = text_width(text);
    if (width > t->width[t->at]) {
        t->width[t->at] = width;
    }
    t->at = (t->at + 1) % t->columns;
}

void table_end(struct table *t, FILE *out)
{
    const char *cell = t->cells.data;
    const char *end = cell + t->cells.len;
    int owed = 0; /* spaces, printed only when something follows on the line */
    for (int column = 0; cell != NULL && cell < end && !t->cells.failed; column = (column + 1) % t->columns) {
        int pad = t->width[column] - text_width(cell);
        owed += t->right[column] ? pad : 0;
        if (cell[0] != '\0') {
            fprintf(out, "%*s%s", owed, "", cell);
            owed = 0;
        }
        owed += t->right[column] ? 0 : pad;
        owed += 2;
        if (column + 1 == t->columns) {
            fputc('\n', out);
            owed = 0;
        }
        cell += strlen(cell) + 1;
    }
    if (t->cells.failed) {
        fputs("out of memory\n", out);
    }
    buf_free(&t->cells);
}

static void json_next(struct json *j, const char *key)
{
    if (j->depth > 0) {
        fprintf(j->out, "%s\n%*s", j->filled ? "," : "", 2 * j->depth, "");
    }
    if (key != NULL) {
        fprintf(j->out, "\"%s\": ", key);
    }
    j->filled = true;
}

void json_open(struct json *j, const char *key, char bracket)
{
    json_next(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->filled = false;
}

void json_close(struct json *j, char bracket)
{
    j->depth--;
    if (j->filled) {
        fprintf(j->out, "\n%*s", 2 * j->depth, "");
    }
    fputc(bracket, j->out);
    j->filled = true;
    if (j->depth == 0) {
        fputc('\n', j->out);
    }
}

static void put_string(struct json *j, const char *key, struct slice text)
{
    struct buf escaped = {0};
    json_escape(&escaped, text);
    json_next(j, key);
    if (escaped.failed || fwrite(escaped.data, 1, escaped.len, j->out) != escaped.len) {
        fputs("null", j->out);
    }
    buf_free(&escaped);
}

void json_id(struct json *j, const char *key, struct slice id)
{
    if (slice_is_utf8(id)) {
        put_string(j, key, id);
        return;
    }
    struct buf base64 = {0};
    char name[JSON_KEY];
    snprintf(name, sizeof name, "%s%sbase64", key != NULL ? key : "", key != NULL ? "_" : "");
    base64_add(&base64, id);
    if (key == NULL) {
        json_open(j, NULL, '{');
    }
    put_string(j, name, buf_slice(&base64));
    if (key == NULL) {
        json_close(j, '}');
    }
    buf_free(&base64);
}

void json_text(struct json *j, const char *key, const char *text)
{
    put_string(j, key, slice_str(text));
}

void json_number(struct json *j, const char *key, int64_t value)
{
    json_next(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_double(struct json *j, const char *key, double value)
{
    char text[DOUBLE_TEXT];
    json_next(j, key);
    fputs(isfinite(value) ? double_text(value, text) : "null", j->out); /* JSON has no other word for it */
}

void json_bool(struct json *j, const char *key, bool value)
{
    json_next(j, key);
    fputs(value ? "true" : "false", j->out);
}

const char *count_text(uint64_t n, char out[OUTPUT_TEXT])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n);
    int at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            out[at++] = ',';
        }
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

const char *size_text(uint64_t bytes, char out[OUTPUT_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(out, OUTPUT_TEXT, "%" PRIu64 " B", bytes);
        return out;
    }
    double size = (double)bytes / 1024;
    size_t unit = 0;
    while (size >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        size /= 1024;
        unit++;
    }
    snprintf(out, OUTPUT_TEXT, "%.1f %s", size, units[unit]);
    return out;
}

const char *chance_text(double p, char out[OUTPUT_TEXT])
{
    char count[OUTPUT_TEXT];
    if (!(p > 0)) {
        return strcpy(out, "0");
    }
    double one_in = 1 / p;
    if (one_in < 10) {
        snprintf(out, OUTPUT_TEXT, "1 in %.1f", one_in);
    } else if (one_in < 1e18) {
        snprintf(out, OUTPUT_TEXT, "1 in %.*s", OUTPUT_TEXT - 6, count_text((uint64_t)(one_in + 0.5), count));
    } else {
        return strcpy(out, "0");
    }
    return out;
}

const char *date_text(int64_t unix_ms, char out[OUTPUT_TEXT])
{
    char text[TIME_TEXT];
    snprintf(out, OUTPUT_TEXT, "%.10s", time_text(unix_ms, text));
    return out;
}
