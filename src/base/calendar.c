/* Days and civil dates are converted by Howard Hinnant's days_from_civil and civil_from_days (chrono-Compatible
 * Low-Level Date Algorithms, 2013): years begin in March, so that the leap day is a year's last, and 400 years, an
 * era, are always 146,097 days. */
#include "base/calendar.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

#define DAY_MS INT64_C(86400000)
#define MINUTE_MS INT64_C(60000)

enum { DAY_MINUTES = 24 * 60 };

enum {
    DAYS_PER_ERA = 146097,
    DAYS_TO_1970 = 719468, /* from 0000-03-01 */
    LAST_MONTH = 9999 * 12 + 11,
};

struct date {
    int64_t year;
    int month, day;
};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t days_from_civil(int64_t year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = floor_div(y, 400);
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970;
}

static struct date civil_from_days(int64_t days)
{
    int64_t z = days + DAYS_TO_1970;
    int64_t era = floor_div(z, DAYS_PER_ERA);
    int64_t day_of_era = z - era * DAYS_PER_ERA;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month_from_march = (5 * day_of_year + 2) / 153;
    struct date d;
    d.day = (int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
    d.month = (int)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
    d.year = year_of_era + era * 400 + (d.month <= 2);
    return d;
}

int month_make(int year, int month_1_12)
{
    return year * 12 + (month_1_12 - 1);
}

int month_of_ms(int64_t unix_ms)
{
    struct date d = civil_from_days(floor_div(unix_ms, DAY_MS));
    int64_t month = d.year * 12 + (d.month - 1);
    if (month < 0) {
        return 0;
    }
    return month > LAST_MONTH ? LAST_MONTH : (int)month;
}

int64_t month_start_ms(int month)
{
    int64_t year = floor_div(month, 12);
    return days_from_civil(year, (int)(month - year * 12) + 1, 1) * DAY_MS;
}

static const char *print_month(int month, const char *between, char out[MONTH_TEXT])
{
    int64_t year = floor_div(month, 12);
    snprintf(out, MONTH_TEXT, "%04lld%s%02d", (long long)year, between, (int)(month - year * 12) + 1);
    return out;
}

const char *month_name(int month, char out[MONTH_TEXT])
{
    return print_month(month, "-", out);
}

const char *month_suffix(int month, char out[MONTH_TEXT])
{
    return print_month(month, "", out);
}

static int digits(const char *text, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

int month_parse(const char *text)
{
    int year = digits(text, 4);
    if (year < 0) {
        return -1;
    }
    text += text[4] == '-' ? 5 : 4;
    int month = digits(text, 2);
    if (month < 1 || month > 12 || text[2] != '\0') {
        return -1;
    }
    return month_make(year, month);
}

static bool zone_file_exists(const char *zone)
{
    if (zone[0] == '/' || strstr(zone, "..") != NULL) {
        return false;
    }
    const char *folder = getenv("TZDIR");
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : "/usr/share/zoneinfo", zone);
    if (n < 0 || (size_t)n >= sizeof path) {
        return false;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    char magic[4];
    bool good = read(fd, magic, sizeof magic) == (ssize_t)sizeof magic && memcmp(magic, "TZif", sizeof magic) == 0;
    close(fd);
    return good;
}

/* A zone of POSIX begins with a name and an offset: CET-1CEST,M3.5.0,M10.5.0/3 or <+0330>-3:30. What follows is left
 * to libc. */
static bool is_posix_zone(const char *zone)
{
    const char *at = zone;
    if (*at == '<') {
        at += 1 + strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-");
        if (at - zone < 4 || *at++ != '>') {
            return false;
        }
    } else {
        while (isalpha((unsigned char)*at)) {
            at++;
        }
        if (at - zone < 3) {
            return false;
        }
    }
    if (*at == '+' || *at == '-') {
        at++;
    }
    if (!isdigit((unsigned char)*at)) {
        return false;
    }
    for (; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("+-:,./<>", *at) == NULL) {
            return false;
        }
    }
    return true;
}

bool calendar_zone_exists(const char *zone)
{
    return zone[0] == '\0' || zone_file_exists(zone) || is_posix_zone(zone);
}

int calendar_set_zone(const char *zone)
{
    if (zone != NULL && zone[0] != '\0') {
        if (!calendar_zone_exists(zone)) {
            return ERR_NOTFOUND;
        }
        if (setenv("TZ", zone, 1) < 0) {
            return ERR_NOMEM;
        }
    }
    tzset();
    return 0;
}

/* How far the local clock is ahead of UTC; 0 in a year beyond int. */
static int64_t ahead_ms(int64_t unix_ms)
{
    time_t seconds = (time_t)floor_div(unix_ms, 1000);
    struct tm tm;
    return localtime_r(&seconds, &tm) != NULL ? (int64_t)tm.tm_gmtoff * 1000 : 0;
}

/* When the local clock shows what UTC would show at that time. It changes at most once within two days, so it is as far
 * ahead as a day before or a day after. */
static int64_t instant_of(int64_t local_ms)
{
    int64_t before = ahead_ms(local_ms - DAY_MS), after = ahead_ms(local_ms + DAY_MS);
    int64_t first = local_ms - (before > after ? before : after), second = local_ms - (before > after ? after : before);
    return local_ms - ahead_ms(first) == first     ? first
           : local_ms - ahead_ms(second) == second ? second
                                                   : local_ms - before;
}

static int64_t minute_of(int64_t day, int minute)
{
    return instant_of(day * DAY_MS + minute * MINUTE_MS);
}

/* The local day, and a time near enough to reckon with. */
static int64_t day_of(int64_t *now_ms)
{
    const int64_t bound = INT64_C(1) << 60;
    *now_ms = *now_ms < -bound ? -bound : *now_ms > bound ? bound : *now_ms;
    return floor_div(*now_ms + ahead_ms(*now_ms), DAY_MS);
}

int64_t calendar_passed_ms(int64_t now_ms, int minute)
{
    int64_t day = day_of(&now_ms) + 1;
    while (minute_of(day, minute) > now_ms) {
        day--;
    }
    return minute_of(day, minute);
}

bool calendar_is_between(int64_t now_ms, int from, int to)
{
    int64_t today = day_of(&now_ms);
    int length = to > from ? to - from : to - from + DAY_MINUTES;
    bool is = false;
    for (int64_t day = today - 1; day <= today + 1 && !is; day++) {
        int64_t begins = minute_of(day, from), ends = minute_of(day, from + length);
        ends = ends > begins ? ends : begins + length * MINUTE_MS;
        is = begins <= now_ms && now_ms < ends;
    }
    return is;
}

const char *time_text(int64_t unix_ms, char out[TIME_TEXT])
{
    int ms = (int)((unix_ms % DAY_MS + DAY_MS) % DAY_MS);
    struct date d = civil_from_days(floor_div(unix_ms, DAY_MS));
    snprintf(out, TIME_TEXT, "%04lld-%02d-%02dT%02d:%02d:%02d.%03dZ", (long long)d.year, d.month, d.day, ms / 3600000,
             ms / 60000 % 60, ms / 1000 % 60, ms % 1000);
    return out;
}

/* So many digits at *at, within the text; -1: they aren't there. */
static int take_digits(struct slice text, size_t *at, size_t n)
{
    int value = 0;
    for (size_t end = *at + n; *at < end; (*at)++) {
        if (*at >= text.len || !isdigit((unsigned char)text.data[*at])) {
            return -1;
        }
        value = value * 10 + (text.data[*at] - '0');
    }
    return value;
}

static bool take_letter(struct slice text, size_t *at, const char *letters)
{
    bool is = *at < text.len && text.data[*at] != '\0' && strchr(letters, text.data[*at]) != NULL;
    *at += is;
    return is;
}

/* The fraction of a second, if there is one, in milliseconds; -1: a point without digits. */
static int take_fraction(struct slice text, size_t *at)
{
    int ms = 0, scale = 100;
    if (!take_letter(text, at, ".,")) {
        return 0;
    }
    size_t start = *at;
    for (int digit; (digit = take_digits(text, at, 1)) >= 0; scale /= 10) {
        ms += digit * scale;
    }
    return *at > start ? ms : -1;
}

/* Minutes to the east; false: neither Z nor an offset. */
static bool take_offset(struct slice text, size_t *at, int *minutes)
{
    *minutes = 0;
    if (take_letter(text, at, "Zz")) {
        return true;
    }
    int sign = *at < text.len && text.data[*at] == '-' ? -1 : 1;
    if (!take_letter(text, at, "+-")) {
        return false;
    }
    int hour = take_digits(text, at, 2);
    take_letter(text, at, ":");
    int minute = take_digits(text, at, 2);
    *minutes = sign * (hour * 60 + minute);
    return hour >= 0 && hour < 24 && minute >= 0 && minute < 60;
}

bool time_parse(struct slice text, int64_t *unix_ms)
{
    size_t at = 0;
    int offset;
    int year = take_digits(text, &at, 4);
    int month = take_letter(text, &at, "-") ? take_digits(text, &at, 2) : -1;
    int day = take_letter(text, &at, "-") ? take_digits(text, &at, 2) : -1;
    int hour = take_letter(text, &at, "Tt ") ? take_digits(text, &at, 2) : -1;
    int minute = take_letter(text, &at, ":") ? take_digits(text, &at, 2) : -1;
    int second = take_letter(text, &at, ":") ? take_digits(text, &at, 2) : -1;
    int ms = take_fraction(text, &at);
    if (year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
        second < 0 || second > 60 || ms < 0 || !take_offset(text, &at, &offset) || at != text.len) {
        return false;
    }
    int64_t days = days_from_civil(year, month, day);
    struct date back = civil_from_days(days);
    *unix_ms = days * DAY_MS + (((hour * 60 + minute - offset) * INT64_C(60)) + second) * 1000 + ms;
    return back.month == month && back.day == day; /* there is no 30th of February */
}
