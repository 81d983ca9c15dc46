/* UTC calendar months, the unit of partition, and local times of day, for the sweep window and backups.
 *
 * A month is an int: year * 12 + (month - 1), so that arithmetic is plain and order is time order.
 * Times outside the years 0 to 9999 count as the first or last month of those, so a time's month is never negative.
 */
#ifndef UNSEEN_BASE_CALENDAR_H
#define UNSEEN_BASE_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define CALENDAR_LAST_MS INT64_C(253402300799999) /* of the year 9999; sums with it can't overflow */

enum { MONTH_TEXT = 24 };

int month_of_ms(int64_t unix_ms);  /* also for times before 1970 */
int64_t month_start_ms(int month); /* first millisecond of the month */
int month_make(int year, int month_1_12);
const char *month_name(int month, char out[MONTH_TEXT]);   /* "2026-09" */
const char *month_suffix(int month, char out[MONTH_TEXT]); /* "202609", as in plays_202609 */

/* Parses "2026-09" or "202609". Returns the month, or -1. */
int month_parse(const char *text);

/* Whether libc would take the name: a file of the zone database or a POSIX TZ string. "" is the system's. */
bool calendar_zone_exists(const char *zone);

/* Sets the time zone of calendar_passed_ms(); NULL or "" is the system's. Returns 0, or ERR_NOTFOUND
 * when the zone is unknown. Before threads start. */
int calendar_set_zone(const char *zone);

/* When the local clock last came to that minute of its day, 0..1439, at or before now. Each day has it once: of an hour
 * that the clock repeats the first one counts, and what it leaves out comes as much later as it jumps. */
int64_t calendar_passed_ms(int64_t now_ms, int minute);

/* Whether it is between two such minutes, the second being the later one; 1440 is the next midnight. By the clock, so
 * it is longer by an hour that is repeated within; one that the clock leaves out is as long as on any day. */
bool calendar_is_between(int64_t now_ms, int from, int to);

/* "2026-09-01T12:00:00.123Z" */
enum { TIME_TEXT = 32 };
const char *time_text(int64_t unix_ms, char out[TIME_TEXT]);

/* Reads that back, and the other forms of RFC 3339: any fraction or none, Z or an offset such as +02:00. What is finer
 * than a millisecond is cut off. */
bool time_parse(struct slice text, int64_t *unix_ms);

#endif
