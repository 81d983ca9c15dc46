/* A time as its writer states it: a number since 1970, of which only its size tells in which unit it counts.
 *
 * Times between March 1973 and the year 5138 have 9 to 11 digits in seconds, 12 to 14 in milliseconds, 15 to 17 in
 * microseconds and 18 or 19 in nanoseconds, so that no two units share a number. This is the one place where that is
 * judged, for all that take times.
 */
#ifndef UNSEEN_BASE_UNIX_TIME_H
#define UNSEEN_BASE_UNIX_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum unix_unit { UNIX_S, UNIX_MS, UNIX_US, UNIX_NS };

/* "seconds", "milliseconds", "microseconds", "nanoseconds" */
const char *unix_unit_name(enum unix_unit unit);

/* The unit, by its name, that this number is most likely in; NULL: it may well be in `expected`, or is not above 0. */
const char *unix_time_looks_like(int64_t value, enum unix_unit expected);

/* Reads a decimal such as 1795255200.25: its whole part, and the first three places behind the point, which have its
 * sign. */
bool unix_time_decimal(struct slice text, int64_t *whole, int *thousandths);

/* In milliseconds, what is finer cut off; seconds and their thousandths that don't fit become the first or last one.
 * Of the other units the thousandths are not looked at. */
int64_t unix_time_ms(int64_t value, enum unix_unit unit, int thousandths);

#endif
