#include "cli/import/import_rules.h"

#include <string.h>

static const char *const formats[] = {"auto", "tsv", "csv", "ndjson"};
static const char *const escapes_names[] = {NULL, "none", "psql", "mysql", "clickhouse"};
static const char *const units[] = {"s", "ms", "us", "ns"};
static const char *const times[] = {"unix_s", "unix_ms", "unix_us", "unix_ns"};

enum { COUNT_FORMATS = sizeof formats / sizeof *formats, COUNT_ESCAPES = sizeof escapes_names / sizeof *escapes_names };

void import_rules_init(struct import_rules *rules)
{
    *rules = (struct import_rules){.unit = UNIX_MS,
                                   .columns = {.place = {0, 1, 2}, .n = IMPORT_FIELDS, .text = "unix_ms, user, item"}};
}

/* The index of the name; -1: it is none of them. */
static int find(const char *name, const char *const *all, int n)
{
    for (int i = 0; i < n; i++) {
        if (all[i] != NULL && strcmp(name, all[i]) == 0) {
            return i;
        }
    }
    return -1;
}

int import_format_parse(const char *name, enum import_format *format)
{
    int i = find(name, formats, COUNT_FORMATS);
    *format = i < 0 ? *format : (enum import_format)i;
    return i < 0 ? ERR_NOTFOUND : 0;
}

int import_escapes_parse(const char *name, enum import_escapes *escapes)
{
    int i = find(name, escapes_names, COUNT_ESCAPES);
    *escapes = i < 0 ? *escapes : (enum import_escapes)i;
    return i < 0 ? ERR_NOTFOUND : 0;
}

int import_unit_parse(const char *name, enum unix_unit *unit)
{
    int i = find(name, units, sizeof units / sizeof *units);
    *unit = i < 0 ? *unit : (enum unix_unit)i;
    return i < 0 ? ERR_NOTFOUND : 0;
}

const char *import_time_name(enum unix_unit unit)
{
    return times[unit];
}

int import_columns_parse(const char *text, struct import_columns *columns, struct err *err)
{
    static const char *const names[IMPORT_FIELDS] = {"time", "user", "item"};
    bool had[IMPORT_FIELDS] = {false};
    *columns = (struct import_columns){.given = true, .text = text};
    for (const char *at = text;; columns->n++) {
        struct slice name = slice_of(at, strcspn(at, ","));
        int which = -1;
        for (int i = 0; i < IMPORT_FIELDS; i++) {
            which = slice_eq(name, slice_str(names[i])) ? i : which;
        }
        if (columns->n == IMPORT_COLUMNS_MAX) {
            return err_set(err, ERR_INVALID, "more than %d columns", IMPORT_COLUMNS_MAX);
        }
        if (which < 0 && !slice_eq(name, slice_str("-"))) {
            return err_set(err, ERR_INVALID, "'%.*s' is none of time, user, item and -", (int)name.len, name.data);
        }
        if (which >= 0 && had[which]) {
            return err_set(err, ERR_INVALID, "%s is named twice", names[which]);
        }
        if (which >= 0) {
            had[which] = true;
        }
        columns->place[columns->n] = (signed char)which;
        at += name.len;
        if (*at == '\0') {
            columns->n++;
            break;
        }
        at++;
    }
    for (int i = 0; i < IMPORT_FIELDS; i++) {
        if (!had[i]) {
            return err_set(err, ERR_INVALID, "%s is missing", names[i]);
        }
    }
    return 0;
}
