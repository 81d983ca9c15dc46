/* A field of TSV whose writer escapes, undone in place. */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_ESCAPES_H
#define UNSEEN_CLI_IMPORT_IMPORT_ESCAPES_H

#include <stdbool.h>

#include "base/slice.h"
#include "cli/import/import_rules.h"

/* Whether the field, as it stands in the file, means no value. */
bool import_escapes_null(enum import_escapes escapes, struct slice field);

/* Decodes it in place, once. 0; ERR_INVALID: it ends with a backslash, or has \x without the digits that it needs. */
int import_escapes_undo(enum import_escapes escapes, struct slice *field);

/* Whether an odd number of backslashes stands before `at`, so that it is a part of a field. */
bool import_escapes_before(const char *begin, const char *at);

#endif
