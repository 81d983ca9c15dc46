/* One buffer, into which the owner reads and out of which events point. A record is read only once it is complete: a
 * line for TSV and NDJSON; for CSV as many lines as its quotes span. An incomplete rest, of at most IMPORT_LINE_MAX
 * bytes, moves to the front before the next read.
 *
 * Quotes make CSV the hard one. A record without a quote in its first line (nearly all) takes the way of TSV.
 * Otherwise csv_scan() finds where the record ends and where its fields are, before anything is changed. If it
 * is well formed, quotes are undone in place; should its content be wrong, all its lines are dropped together, so that
 * a piece of a quoted field is never taken for a record. If the quoting itself is wrong, only the first line is
 * dropped: one stray quote costs one line, not the rest of the file. No file makes that slow: where a first scan
 * is inside quotes and a second one outside, the next quote ends one of them.
 *
 * Every decision depends on a record's own bytes and the limit, never on where a piece ended.
 */
#include "cli/import/import_reader.h"

#include <stdlib.h>

#include "base/csv.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "cli/import/import_json.h"
#include "dedup/dedup.h"

enum {
    CAPACITY = 256 * 1024,
    SHOWN_MAX = 40, /* bytes of a bad value that an error repeats */
};

static const char *const names[IMPORT_FIELDS] = {"unix_ms", "user", "item"};
static const char *const formats[] = {"auto", "tsv", "csv", "ndjson"};

const char *import_format_name(enum import_format format)
{
    return formats[format];
}

int import_format_parse(const char *name, enum import_format *format)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(name, formats[i]) == 0) {
            *format = (enum import_format)i;
            return 0;
        }
    }
    return ERR_NOTFOUND;
}

int import_reader_init(struct import_reader *r, enum import_format format)
{
    memset(r, 0, sizeof(*r));
    r->bytes = malloc(CAPACITY);
    if (r->bytes == NULL) {
        return ERR_NOMEM;
    }
    import_reader_restart(r, format);
    return 0;
}

void import_reader_free(struct import_reader *r)
{
    free(r->bytes);
    r->bytes = NULL;
}

void import_reader_restart(struct import_reader *r, enum import_format format)
{
    char *bytes = r->bytes;
    memset(r, 0, sizeof(*r));
    r->bytes = bytes;
    r->format = format;
    r->next_line = 1;
}

char *import_reader_room(struct import_reader *r, size_t *size)
{
    if (r->begin > 0) {
        memmove(r->bytes, r->bytes + r->begin, r->end - r->begin);
        r->end -= r->begin;
        r->begin = 0;
    }
    *size = CAPACITY - r->end;
    return r->bytes + r->end;
}

void import_reader_filled(struct import_reader *r, size_t n)
{
    r->end += n;
    r->ended = n == 0;
}

/* From here on the record is used; `lines` of them. */
static void consume(struct import_reader *r, size_t bytes, uint64_t lines)
{
    r->begin += bytes;
    r->scanned = 0;
    r->next_line += lines;
}

static enum import_answer malformed(struct import_reader *r, const char *why)
{
    err_set(&r->err, ERR_INVALID, "%s", why);
    return IMPORT_BAD;
}

static int parse_time(struct slice text, int64_t *at_ms, struct err *err)
{
    struct slice shown = slice_of(text.data, text.len < SHOWN_MAX ? text.len : SHOWN_MAX);
    bool negative = text.len > 0 && text.data[0] == '-';
    uint64_t value = 0;
    bool over = false;
    size_t i = negative;
    for (; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
        over = over || value > (INT64_MAX - 9) / 10;
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    if (text.len == 0) {
        return err_set(err, ERR_INVALID, "unix_ms is empty");
    }
    if (i < text.len || i == (size_t)negative) {
        return err_set(err, ERR_INVALID, "unix_ms is %s, expected a whole number of milliseconds since 1970",
                       log_quote(shown));
    }
    if (over) {
        return err_set(err, ERR_INVALID, "unix_ms is %s, out of range", log_quote(shown));
    }
    *at_ms = negative ? -(int64_t)value : (int64_t)value;
    const char *other = unix_time_looks_like(*at_ms, UNIX_MS);
    if (other != NULL) {
        return err_set(err, ERR_INVALID, "unix_ms is %s, which looks like %s, expected milliseconds", log_quote(shown),
                       other);
    }
    return 0;
}

static int check_id(const char *name, struct slice id, struct err *err)
{
    if (id.len == 0) {
        return err_set(err, ERR_INVALID, "%s is empty", name);
    }
    if (id.len > ID_MAX) {
        return err_set(err, ERR_INVALID, "%s is %zu bytes long, at most %d are allowed", name, id.len, ID_MAX);
    }
    return 0;
}

/* What three fields mean. */
static enum import_answer make_event(struct import_reader *r, const struct slice fields[IMPORT_FIELDS],
                                     struct import_event *event)
{
    if (parse_time(fields[0], &event->at_ms, &r->err) != 0 || check_id(names[1], fields[1], &r->err) != 0 ||
        check_id(names[2], fields[2], &r->err) != 0) {
        return IMPORT_BAD;
    }
    event->user = fields[1];
    event->item = fields[2];
    return IMPORT_EVENT;
}

/* Fields of TSV or CSV. IMPORT_MORE stands for a header, which says nothing. */
static enum import_answer make_row(struct import_reader *r, const struct slice fields[IMPORT_FIELDS], size_t n,
                                   bool first, struct import_event *event)
{
    if (n != IMPORT_FIELDS) {
        err_set(&r->err, ERR_INVALID, "expected 3 fields (unix_ms, user, item) separated by %s, found %zu",
                r->format == IMPORT_TSV ? "tabs" : "commas", n);
        return IMPORT_BAD;
    }
    if (first && slice_eq(fields[0], slice_str(names[0])) && slice_eq(fields[1], slice_str(names[1])) &&
        slice_eq(fields[2], slice_str(names[2]))) {
        return IMPORT_MORE;
    }
    return make_event(r, fields, event);
}

/* Splits a line without quotes. Returns how many fields there are; the first three are stored. */
static size_t split(struct slice line, char separator, struct slice fields[IMPORT_FIELDS])
{
    const char *at = line.data;
    const char *end = line.data + line.len;
    for (size_t n = 0;; n++) {
        const char *next = memchr(at, separator, (size_t)(end - at));
        if (n < IMPORT_FIELDS) {
            fields[n] = slice_of(at, (size_t)((next == NULL ? end : next) - at));
        }
        if (next == NULL) {
            return n + 1;
        }
        at = next + 1;
    }
}

/* A CSV record whose first line, of line_len bytes and a newline (or not, at the end), holds a quote. */
static enum import_answer quoted_row(struct import_reader *r, size_t line_len, size_t newline, bool first,
                                     struct import_event *event)
{
    char *at = r->bytes + r->begin;
    size_t n = r->end - r->begin;
    bool cut = n > IMPORT_LINE_MAX;
    struct csv_record record;
    enum csv_answer answer = csv_scan(at, cut ? IMPORT_LINE_MAX + 1 : n, !cut && r->ended, &record);
    if (answer == CSV_MORE && n <= IMPORT_LINE_MAX && !r->ended) {
        return IMPORT_MORE;
    }
    r->line = r->next_line;
    r->past_first = true;
    if (answer != CSV_DONE) {
        consume(r, line_len + newline, 1);
        if (answer == CSV_WRONG) {
            return malformed(r, record.why);
        }
        return malformed(r, n > IMPORT_LINE_MAX ? "a quote isn't closed within 65536 bytes"
                                                : "a quote isn't closed before the end of the input");
    }
    consume(r, record.len + (record.len < n), record.lines + 1);
    struct slice fields[IMPORT_FIELDS];
    for (size_t i = 0; i < IMPORT_FIELDS && i < record.n; i++) {
        fields[i] = csv_field(at, &record, i);
    }
    return make_row(r, fields, record.n, first, event);
}

/* NDJSON begins with a brace; of the others, the separator that comes first tells. */
static enum import_format detect(struct slice line)
{
    size_t i = 0;
    while (i < line.len && (line.data[i] == ' ' || line.data[i] == '\t')) {
        i++;
    }
    if (i < line.len && line.data[i] == '{') {
        return IMPORT_NDJSON;
    }
    for (i = 0; i < line.len; i++) {
        if (line.data[i] == '\t' || line.data[i] == ',') {
            return line.data[i] == '\t' ? IMPORT_TSV : IMPORT_CSV;
        }
    }
    return IMPORT_AUTO;
}

/* Passes over a line that is too long. Returns false when its end isn't there yet. */
static bool skip_line(struct import_reader *r)
{
    char *at = r->bytes + r->begin;
    char *newline = memchr(at, '\n', r->end - r->begin);
    if (newline == NULL) {
        consume(r, r->end - r->begin, 0);
        return false;
    }
    consume(r, (size_t)(newline - at) + 1, 1);
    r->skipping = false;
    return true;
}

/* Passes over a byte order mark. Returns false when it isn't known yet whether there is one. */
static bool skip_mark(struct import_reader *r)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t n = r->end - r->begin;
    if (n < 3 && !r->ended && memcmp(r->bytes + r->begin, mark, n) == 0) {
        return false;
    }
    r->started = true;
    if (n >= 3 && memcmp(r->bytes + r->begin, mark, 3) == 0) {
        consume(r, 3, 0);
    }
    return true;
}

/* One record. IMPORT_MORE if more bytes are needed, or if an empty line or a header was passed over. */
static enum import_answer next_record(struct import_reader *r, struct import_event *event)
{
    char *at = r->bytes + r->begin;
    size_t n = r->end - r->begin;
    char *newline = memchr(at + r->scanned, '\n', n - r->scanned);
    size_t len = newline == NULL ? n : (size_t)(newline - at);
    if (len > IMPORT_LINE_MAX) {
        r->line = r->next_line;
        r->past_first = true;
        r->skipping = true;
        return malformed(r, "the line is longer than 65536 bytes");
    }
    if (newline == NULL && (!r->ended || n == 0)) {
        r->scanned = n;
        return IMPORT_MORE;
    }
    struct slice line = slice_of(at, len > 0 && at[len - 1] == '\r' ? len - 1 : len);
    bool first = !r->past_first;
    if (line.len == 0) {
        consume(r, len + (newline != NULL), 1);
        return IMPORT_MORE;
    }
    if (r->format == IMPORT_AUTO) {
        r->format = detect(line);
    }
    if (r->format == IMPORT_CSV && memchr(line.data, '"', line.len) != NULL) {
        return quoted_row(r, len, newline != NULL, first, event);
    }
    r->line = r->next_line;
    r->past_first = true;
    consume(r, len + (newline != NULL), 1);
    struct slice fields[IMPORT_FIELDS];
    switch (r->format) {
    case IMPORT_NDJSON:
        if (import_json_parse(at, line.len, fields, &r->err) != 0) {
            return IMPORT_BAD;
        }
        return make_event(r, fields, event);
    case IMPORT_TSV:
    case IMPORT_CSV: {
        size_t count = split(line, r->format == IMPORT_TSV ? '\t' : ',', fields);
        return make_row(r, fields, count, first, event);
    }
    default:
        return malformed(r, "neither TSV nor CSV nor NDJSON: expected unix_ms, user, item");
    }
}

enum import_answer import_reader_next(struct import_reader *r, struct import_event *event)
{
    if (!r->started && !skip_mark(r)) {
        return IMPORT_MORE;
    }
    for (;;) {
        if (r->skipping && !skip_line(r)) {
            return IMPORT_MORE;
        }
        size_t begin = r->begin;
        enum import_answer answer = next_record(r, event);
        if (answer != IMPORT_MORE || r->begin == begin) {
            return answer;
        }
    }
}
