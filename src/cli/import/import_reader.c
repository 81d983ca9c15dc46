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

#include <stdio.h>
#include <stdlib.h>

#include "base/csv.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "cli/import/import_escapes.h"
#include "cli/import/import_json.h"
#include "dedup/dedup.h"

enum {
    CAPACITY = 256 * 1024,
    SHOWN_MAX = 40, /* bytes of a bad value that an error repeats */
    ERR_TEXT_WHAT = 80,
    FIELD_NAME = 48,
};

static const char *const ids[IMPORT_FIELDS] = {NULL, "user", "item"};

int import_reader_init(struct import_reader *r, const struct import_rules *rules)
{
    *r = (struct import_reader){.rules = *rules, .bytes = malloc(CAPACITY)};
    r->kept = rules->keep ? malloc(IMPORT_LINE_MAX) : NULL;
    if (r->bytes == NULL || (rules->keep && r->kept == NULL)) {
        import_reader_free(r);
        return ERR_NOMEM;
    }
    import_reader_restart(r);
    return 0;
}

void import_reader_free(struct import_reader *r)
{
    free(r->bytes);
    free(r->kept);
    r->bytes = r->kept = NULL;
}

void import_reader_restart(struct import_reader *r)
{
    *r = (struct import_reader){
        .rules = r->rules, .bytes = r->bytes, .kept = r->kept, .format = r->rules.format, .next_line = 1};
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
    if (r->kept != NULL) {
        size_t n = bytes > 0 && r->bytes[r->begin + bytes - 1] == '\n' ? bytes - 1 : bytes;
        r->raw = slice_of(r->kept, n <= IMPORT_LINE_MAX ? n : 0);
        memcpy(r->kept, r->bytes + r->begin, r->raw.len);
    }
    r->begin += bytes;
    r->scanned = 0;
    r->next_line += lines;
}

static enum import_answer malformed(struct import_reader *r, const char *why)
{
    err_set(&r->err, ERR_INVALID, "%s", why);
    return IMPORT_BAD;
}

static int bad_time(const struct import_rules *rules, struct slice text, const char *what, struct err *err)
{
    struct slice shown = slice_of(text.data, text.len < SHOWN_MAX ? text.len : SHOWN_MAX);
    return err_set(err, ERR_INVALID, "%s is %s, %s", import_time_name(rules->unit), log_quote(shown), what);
}

/* Only seconds have a decimal point, as extract(epoch from ...) prints them. */
static int parse_time(const struct import_rules *rules, struct slice text, int64_t *at_ms, struct err *err)
{
    char what[ERR_TEXT_WHAT];
    const char *unit = unix_unit_name(rules->unit);
    int64_t value;
    int thousandths = 0;
    if (text.len == 0) {
        return err_set(err, ERR_INVALID, "%s is empty", import_time_name(rules->unit));
    }
    bool point = memchr(text.data, '.', text.len) != NULL;
    if ((point && rules->unit != UNIX_S) || !unix_time_decimal(text, &value, &thousandths)) {
        bool whole = text.len > 1 || text.data[0] != '-';
        for (size_t i = text.data[0] == '-'; i < text.len; i++) {
            whole = whole && text.data[i] >= '0' && text.data[i] <= '9';
        }
        snprintf(what, sizeof what, "expected a %snumber of %s since 1970", rules->unit == UNIX_S ? "" : "whole ",
                 unit);
        return bad_time(rules, text, whole ? "out of range" : what, err);
    }
    const char *other = unix_time_looks_like(value, rules->unit);
    if (other != NULL) {
        snprintf(what, sizeof what, "which looks like %s, expected %s", other, unit);
        return bad_time(rules, text, what, err);
    }
    *at_ms = unix_time_ms(value, rules->unit, thousandths);
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
    if (parse_time(&r->rules, fields[0], &event->at_ms, &r->err) != 0 || check_id(ids[1], fields[1], &r->err) != 0 ||
        check_id(ids[2], fields[2], &r->err) != 0) {
        return IMPORT_BAD;
    }
    event->user = fields[1];
    event->item = fields[2];
    return IMPORT_EVENT;
}

/* "item (column 3)" */
static const char *field_name(const struct import_reader *r, int which, char out[FIELD_NAME])
{
    size_t column = 0;
    while (r->rules.columns.place[column] != which) {
        column++;
    }
    snprintf(out, FIELD_NAME, "%s (column %zu)", which == 0 ? import_time_name(r->rules.unit) : ids[which], column + 1);
    return out;
}

static bool has_digit(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] >= '0' && text.data[i] <= '9') {
            return true;
        }
    }
    return false;
}

static bool is_header(const struct import_rules *rules, const struct slice fields[IMPORT_FIELDS])
{
    return rules->columns.given || rules->escapes >= IMPORT_ESCAPES_PSQL
               ? fields[0].len > 0 && fields[0].data[0] != '\\' && !has_digit(fields[0])
               : slice_eq(fields[0], slice_str(import_time_name(rules->unit))) &&
                     slice_eq(fields[1], slice_str(ids[1])) && slice_eq(fields[2], slice_str(ids[2]));
}

/* The escapes of TSV: undone, or refused where nothing says what they are. */
static int undo_escapes(struct import_reader *r, struct slice fields[IMPORT_FIELDS])
{
    enum import_escapes escapes = r->rules.escapes;
    char name[FIELD_NAME];
    for (int i = 0; i < IMPORT_FIELDS && escapes != IMPORT_ESCAPES_NONE; i++) {
        bool told = escapes != IMPORT_ESCAPES_UNTOLD, backslash = memchr(fields[i].data, '\\', fields[i].len) != NULL;
        /* mysql's NULL is a word, so where nothing is told it is one of the doubtful fields. */
        bool null = import_escapes_null(told ? escapes : IMPORT_ESCAPES_MYSQL, fields[i]);
        if (null && (told || backslash)) {
            return err_set(&r->err, ERR_INVALID, "%s is NULL", field_name(r, i, name));
        }
        if (!told && (null || backslash)) {
            r->untold = true;
            return err_set(
                &r->err, ERR_INVALID,
                "%s %s: say with --escapes psql, mysql or clickhouse who wrote it, or with --escapes none that "
                "it stands for itself",
                field_name(r, i, name), null ? "is the word NULL" : "holds a backslash");
        }
        if (backslash && import_escapes_undo(escapes, &fields[i]) != 0) {
            return err_set(&r->err, ERR_INVALID, "%s has an escape that is cut off", field_name(r, i, name));
        }
    }
    return 0;
}

/* Fields of TSV or CSV. IMPORT_MORE stands for a header, which says nothing. */
static enum import_answer make_row(struct import_reader *r, struct slice fields[IMPORT_FIELDS], size_t n, bool first,
                                   struct import_event *event)
{
    const struct import_columns *columns = &r->rules.columns;
    if (n != columns->n) {
        err_set(&r->err, ERR_INVALID, "expected %zu fields (%s) separated by %s, found %zu", columns->n, columns->text,
                r->format == IMPORT_TSV ? "tabs" : "commas", n);
        return IMPORT_BAD;
    }
    if (first && is_header(&r->rules, fields)) {
        return IMPORT_MORE;
    }
    if (r->format == IMPORT_TSV && undo_escapes(r, fields) != 0) {
        return IMPORT_BAD;
    }
    return make_event(r, fields, event);
}

/* CSV without quotes has a NULL, too: ClickHouse's. */
static enum import_answer refuse_null(struct import_reader *r, int which)
{
    char name[FIELD_NAME];
    err_set(&r->err, ERR_INVALID, "%s is NULL", field_name(r, which, name));
    return IMPORT_BAD;
}

/* Splits a line without quotes. Returns how many fields there are; those of an event are stored. */
static size_t split(const struct import_reader *r, struct slice line, char separator,
                    struct slice fields[IMPORT_FIELDS])
{
    const struct import_columns *columns = &r->rules.columns;
    bool escapes = separator == '\t' && r->rules.escapes >= IMPORT_ESCAPES_PSQL;
    const char *at = line.data;
    const char *end = line.data + line.len;
    for (size_t n = 0;; n++) {
        const char *next = memchr(at, separator, (size_t)(end - at));
        while (escapes && next != NULL && import_escapes_before(at, next)) {
            next = memchr(next + 1, separator, (size_t)(end - next - 1));
        }
        if (n < columns->n && columns->place[n] >= 0) {
            fields[columns->place[n]] = slice_of(at, (size_t)((next == NULL ? end : next) - at));
        }
        if (next == NULL) {
            return n + 1;
        }
        at = next + 1;
    }
}

/* Which field of a CSV record is \N without quotes, before they are undone; -1: none. */
static int csv_null(const struct import_reader *r, const char *at, const struct csv_record *record)
{
    for (size_t i = 0; i < record->n && i < r->rules.columns.n; i++) {
        struct slice field = slice_of(at + record->fields[i].from, record->fields[i].to - record->fields[i].from);
        bool quoted = record->fields[i].from > 0 && at[record->fields[i].from - 1] == '"';
        if (r->rules.columns.place[i] >= 0 && !quoted && import_escapes_null(IMPORT_ESCAPES_UNTOLD, field)) {
            return r->rules.columns.place[i];
        }
    }
    return -1;
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
    int null = record.n == r->rules.columns.n ? csv_null(r, at, &record) : -1;
    if (null >= 0) {
        return refuse_null(r, null);
    }
    for (size_t i = 0; i < r->rules.columns.n && i < record.n; i++) {
        if (r->rules.columns.place[i] >= 0) {
            fields[r->rules.columns.place[i]] = csv_field(at, &record, i);
        }
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

/* The newline that ends the record of n bytes at `at`: where a writer escapes, one behind a backslash does not. */
static char *find_end(const struct import_reader *r, char *at, size_t n)
{
    char *newline = memchr(at + r->scanned, '\n', n - r->scanned);
    while (newline != NULL && r->rules.escapes >= IMPORT_ESCAPES_PSQL && import_escapes_before(at, newline)) {
        newline = memchr(newline + 1, '\n', (size_t)(at + n - newline - 1));
    }
    return newline;
}

static uint64_t count_lines(struct slice record)
{
    uint64_t n = 1;
    for (const char *at = record.data; (at = memchr(at, '\n', (size_t)(record.data + record.len - at))) != NULL; at++) {
        n++;
    }
    return n;
}

/* One record. IMPORT_MORE if more bytes are needed, or if an empty line or a header was passed over. */
static enum import_answer next_record(struct import_reader *r, struct import_event *event)
{
    char *at = r->bytes + r->begin;
    size_t n = r->end - r->begin;
    char *newline = find_end(r, at, n);
    size_t len = newline == NULL ? n : (size_t)(newline - at);
    r->untold = false;
    if (len > IMPORT_LINE_MAX) {
        r->raw.len = 0;
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
    /* pg_dump ends its data with a line \. */
    if (line.len == 0 || (r->rules.escapes == IMPORT_ESCAPES_PSQL && slice_eq(line, slice_str("\\.")))) {
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
    consume(r, len + (newline != NULL), r->rules.escapes >= IMPORT_ESCAPES_PSQL ? count_lines(line) : 1);
    struct slice fields[IMPORT_FIELDS];
    switch (r->format) {
    case IMPORT_NDJSON:
        if (r->rules.columns.given) {
            return malformed(r, "a line of NDJSON, which names its fields, and --columns is for TSV and CSV");
        }
        if (import_json_parse(at, line.len, import_time_name(r->rules.unit), fields, &r->err) != 0) {
            return IMPORT_BAD;
        }
        return make_event(r, fields, event);
    case IMPORT_TSV:
    case IMPORT_CSV: {
        size_t count = split(r, line, r->format == IMPORT_TSV ? '\t' : ',', fields);
        for (int i = 0; i < IMPORT_FIELDS && r->format == IMPORT_CSV && count == r->rules.columns.n; i++) {
            if (import_escapes_null(IMPORT_ESCAPES_UNTOLD, fields[i])) {
                return refuse_null(r, i);
            }
        }
        return make_row(r, fields, count, first, event);
    }
    default:
        err_set(&r->err, ERR_INVALID, "neither TSV nor CSV nor NDJSON: expected %s", r->rules.columns.text);
        return IMPORT_BAD;
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
