/* A CSV record with quotes (RFC 4180): where it ends, and where its fields are. */
#ifndef UNSEEN_BASE_CSV_H
#define UNSEEN_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"

enum { CSV_FIELDS = 64 }; /* that are kept; more are only counted */

struct csv_record {
    size_t len;   /* without the newline */
    size_t lines; /* newlines inside */
    size_t n;     /* fields */
    struct {
        size_t from, to; /* without the outer quotes */
        bool escapes;
    } fields[CSV_FIELDS];
    const char *why; /* CSV_WRONG: in words */
};

enum csv_answer {
    CSV_DONE,
    CSV_MORE,  /* its end isn't among the n bytes */
    CSV_WRONG, /* the quoting is: out->why says how */
};

/* Scans a record that begins at `at`, of which n bytes are there. ended: none will follow. Changes nothing. */
enum csv_answer csv_scan(const char *at, size_t n, bool ended, struct csv_record *out);

/* Field i < n of a record that is done. Undoes "" in place, so it can be taken once. */
struct slice csv_field(char *at, const struct csv_record *record, size_t i);

#endif
