/* What subcommands print: tables for people, JSON for programs. */
#ifndef UNSEEN_CLI_LIB_OUTPUT_H
#define UNSEEN_CLI_LIB_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/slice.h"

/* Columns are as wide as their content. Headings as "month|plays>": '>' aligns a column to the right. */
enum { TABLE_COLUMNS = 10 };
struct table {
    int columns;
    bool right[TABLE_COLUMNS];
    int width[TABLE_COLUMNS];
    int at;           /* column of the next cell */
    struct buf cells; /* each ended by NUL; the headings are the first row */
};
void table_begin(struct table *t, const char *headings);
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_end(struct table *t, FILE *out); /* prints and frees */

/* Writes JSON, indented. A key of NULL: an element of an array. */
struct json {
    FILE *out;
    int depth;
    bool filled; /* the open object or array has something in it */
};
void json_open(struct json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);                 /* '}' or ']'; ends the line at depth 0 */
/* An id that isn't UTF-8, which JSON can't hold, is written as key_base64; in an array as {"base64": "..."}. */
void json_id(struct json *j, const char *key, struct slice id);
void json_text(struct json *j, const char *key, const char *text);
void json_number(struct json *j, const char *key, int64_t value);
void json_double(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);

/* The string in quotes. Bytes that aren't UTF-8 become the lone surrogates \udc80..\udcff, one a byte, as Python's
 * "surrogateescape" reads and writes them, so that nothing is lost. */
void json_escape(struct buf *out, struct slice text);

/* An id for a terminal: control characters and bytes that aren't UTF-8 as \xNN. */
void escape_id(struct buf *out, struct slice id);

enum { OUTPUT_TEXT = 40 };
const char *count_text(uint64_t n, char out[OUTPUT_TEXT]);     /* 1,234,567 */
const char *size_text(uint64_t bytes, char out[OUTPUT_TEXT]);  /* 812 B, 1.5 KiB, 64.0 MiB */
const char *chance_text(double p, char out[OUTPUT_TEXT]);      /* 0, 1 in 1,234, 1 in 1.7 */
const char *date_text(int64_t unix_ms, char out[OUTPUT_TEXT]); /* 2026-11-21 */

#endif
