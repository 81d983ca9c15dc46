/* A CSV record with quotes (RFC 4180): where it ends, and where its fields are. */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_CSV_H
#define UNSEEN_CLI_IMPORT_IMPORT_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

enum { IMPORT_CSV_FIELDS = 3 }; /* that are kept; more are only counted */

struct import_csv_record {
    size_t len;   /* without the newline */
    size_t lines; /* newlines inside */
    size_t n;     /* fields */
    struct {
        size_t from, to; /* without the outer quotes */
        bool escapes;
    } fields[IMPORT_CSV_FIELDS];
    const char *why; /* IMPORT_CSV_WRONG: in words */
};

enum import_csv_answer {
    IMPORT_CSV_DONE,
    IMPORT_CSV_MORE,  /* its end isn't among the n bytes */
    IMPORT_CSV_WRONG, /* the quoting is: out->why says how */
};

/* Scans a record that begins at `at`, of which n bytes are there. ended: none will follow. Changes nothing. */
enum import_csv_answer import_csv_scan(const char *at, size_t n, bool ended, struct import_csv_record *out);

/* Field i < n of a record that is done. Undoes "" in place, so it can be taken once. */
struct slice import_csv_field(char *at, const struct import_csv_record *record, size_t i);

#endif
