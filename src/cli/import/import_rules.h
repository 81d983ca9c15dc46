/* How the lines of an import are to be read, as its options say. */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_RULES_H
#define UNSEEN_CLI_IMPORT_IMPORT_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/slice.h"
#include "base/unix_time.h"

enum import_format { IMPORT_AUTO, IMPORT_TSV, IMPORT_CSV, IMPORT_NDJSON };

/* What a backslash in TSV means. Nothing in a file tells: psql prints C:\new as C:\\new, where other writers of TSV
 * leave it as it is. So without a word of the user no line with a backslash is taken.
 *
 *   psql        COPY's text format: \b \f \n \r \t \v, \ooo (octal), \xhh; before another byte \ goes. A field \N is
 * NULL mysql       mysql --batch, INTO OUTFILE: \0 \b \n \r \t \Z; before another byte \ goes. A field \N or NULL is
 * NULL clickhouse  TabSeparated: \0 \a \b \e \f \n \r \t \v \xhh; before ` " ' / and \ it goes, before others it stays.
 * A field \N is NULL
 *
 * In all three a backslash before a tab or newline makes that a part of the field. */
enum import_escapes {
    IMPORT_ESCAPES_UNTOLD,
    IMPORT_ESCAPES_NONE,
    IMPORT_ESCAPES_PSQL,
    IMPORT_ESCAPES_MYSQL,
    IMPORT_ESCAPES_CLICKHOUSE,
};

enum {
    IMPORT_FIELDS = 3, /* of an event: time, user, item */
    IMPORT_COLUMNS_MAX = 64,
};

/* Which field of a line is which of an event: place[column] is 0 time, 1 user, 2 item, -1 none. */
struct import_columns {
    signed char place[IMPORT_COLUMNS_MAX];
    size_t n;
    bool given; /* by --columns: then a first line in whose time is no digit names the columns */
    const char *text;
};

struct import_rules {
    enum import_format format; /* IMPORT_AUTO: the first line tells */
    enum import_escapes escapes;
    enum unix_unit unit;
    struct import_columns columns; /* of TSV and CSV */
    bool keep;                     /* the bytes of each record, for rejects */
};

/* What holds without any option. */
void import_rules_init(struct import_rules *rules);

/* "tsv", "csv", "ndjson", "auto". 0 or ERR_NOTFOUND. */
int import_format_parse(const char *name, enum import_format *format);

/* "none", "psql", "mysql", "clickhouse"; "s", "ms", "us", "ns". 0 or ERR_NOTFOUND. */
int import_escapes_parse(const char *name, enum import_escapes *escapes);
int import_unit_parse(const char *name, enum unix_unit *unit);

/* "user,-,item,time": each of the three once, - for a column that is passed over. text must outlive the columns. 0 or
 * ERR_INVALID, which says what is wrong. */
int import_columns_parse(const char *text, struct import_columns *columns, struct err *err);

/* The key or heading of the time: "unix_ms", or "unix_s" and so on. */
const char *import_time_name(enum unix_unit unit);

#endif
