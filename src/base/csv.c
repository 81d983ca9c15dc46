#include "base/csv.h"

/* Finds the end of the quoted part that begins at i. Returns the index of the closing quote (which the next byte, if
 * it is still to come, may turn into an escape), or n when there is none. */
static size_t quoted_end(const char *at, size_t i, size_t n, bool *escapes, size_t *lines)
{
    for (;;) {
        const char *quote = memchr(at + i, '"', n - i);
        size_t stop = quote == NULL ? n : (size_t)(quote - at);
        for (const char *nl = at + i; (nl = memchr(nl, '\n', (size_t)(at + stop - nl))) != NULL; nl++) {
            (*lines)++;
        }
        if (stop == n) {
            return n;
        }
        if (stop + 1 == n || at[stop + 1] != '"') {
            return stop;
        }
        *escapes = true;
        i = stop + 2;
    }
}

enum csv_answer csv_scan(const char *at, size_t n, bool ended, struct csv_record *out)
{
    size_t i = 0;
    out->len = out->lines = out->n = 0; /* the fields are many */
    out->why = NULL;
    for (;;) {
        size_t from = i;
        size_t to;
        bool escapes = false;
        if (i < n && at[i] == '"') {
            from++;
            to = quoted_end(at, from, n, &escapes, &out->lines);
            if (to == n) {
                return CSV_MORE;
            }
            i = to + 1;
            bool end_of_line = i < n && at[i] == '\r' && (i + 1 == n || at[i + 1] == '\n');
            i += end_of_line;
            if (i < n && at[i] != ',' && at[i] != '\n') {
                out->why = "text after a closing quote";
                return CSV_WRONG;
            }
        } else {
            while (i < n && at[i] != ',' && at[i] != '\n' && at[i] != '"') {
                i++;
            }
            if (i < n && at[i] == '"') {
                out->why = "a quote inside a field that doesn't begin with one";
                return CSV_WRONG;
            }
            to = i;
            bool end_of_line = i == n || at[i] == '\n';
            if (end_of_line && to > from && at[to - 1] == '\r') {
                to--;
            }
        }
        if (i == n && !ended) {
            return CSV_MORE;
        }
        if (out->n < CSV_FIELDS) {
            out->fields[out->n].from = from;
            out->fields[out->n].to = to;
            out->fields[out->n].escapes = escapes;
        }
        out->n++;
        if (i == n || at[i] == '\n') {
            out->len = i;
            return CSV_DONE;
        }
        i++;
    }
}

struct slice csv_field(char *at, const struct csv_record *record, size_t i)
{
    char *text = at + record->fields[i].from;
    size_t len = record->fields[i].to - record->fields[i].from;
    if (!record->fields[i].escapes) {
        return slice_of(text, len);
    }
    size_t to = 0;
    for (size_t j = 0; j < len; j++) {
        j += text[j] == '"'; /* inside quotes they come in pairs */
        text[to++] = text[j];
    }
    return slice_of(text, to);
}
