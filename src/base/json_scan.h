/* Strict JSON (RFC 8259), scanned where it stands: no tree. The caller descends over what it wants; the rest is checked
 * as strictly, so that a text that was cut off or joined to another never passes. Bytes above 0x7f are not checked.
 *
 * A function that fails has set err: ERR_INVALID, saying what was expected at which byte; ERR_NOMEM.
 */
#ifndef UNSEEN_BASE_JSON_SCAN_H
#define UNSEEN_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

enum { JSON_SCAN_DEPTH = 32 }; /* of nested values */

struct json_scan {
    const char *begin, *at, *end;
    struct arena *arena; /* for strings with escapes; NULL: they are decoded in place, so the text can be changed, and
                          * is read once */
    struct err *err;
    bool lines; /* errors name line and column, for a text that people wrote, rather than the byte */
};

/* "what at byte N", or "line L, column C: what": the column counts characters; of a text that ends too early it is the
 * last. Behind strings that were decoded in place it isn't known any more. */
int json_scan_bad(const struct json_scan *j, const char *what);
void json_scan_skip_space(struct json_scan *j);
bool json_scan_next_is(const struct json_scan *j, char c);
bool json_scan_word(struct json_scan *j, const char *text); /* takes null, true or false, if it is there */

/* at is on the opening quote. text may be NULL. */
int json_scan_string(struct json_scan *j, struct slice *text);
/* The number's text as it stands; whole: without fraction and exponent. */
int json_scan_number(struct json_scan *j, struct slice *text, bool *whole);
/* A member's name, its colon, and the space behind. name may be NULL. */
int json_scan_key(struct json_scan *j, struct slice *name);
/* Any value, at this depth of nesting. */
int json_scan_ignore(struct json_scan *j, int depth);

#endif
