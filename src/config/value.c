/* Options as text: each type is read by one function and written by one case of config_text(), and its output can be
 * read again. An error names the option, the value and what was expected, but never the value of a secret. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/calendar.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "config/config.h"
#include "config/kafka.h"

enum { RANGE_TEXT = 96, DAY_MINUTES = 24 * 60 };
enum { AUTO_SHARE = 4, AUTO_MOST_MIB = 4096, AUTO_UNKNOWN_MIB = 256 };

struct unit {
    const char *name;
    int64_t size;
};

/* The first name of a size is the one that is written. */
static const struct unit size_units[] = {
    {"TiB", INT64_C(1) << 40},
    {"GiB", INT64_C(1) << 30},
    {"MiB", INT64_C(1) << 20},
    {"KiB", INT64_C(1) << 10},
    {"T", INT64_C(1) << 40},
    {"G", INT64_C(1) << 30},
    {"M", INT64_C(1) << 20},
    {"K", INT64_C(1) << 10},
    {"B", 1},
    {"", 1},
    {NULL, 0},
};
static const struct unit duration_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0},
};

static void *field(struct config *cfg, const struct config_option *option)
{
    return (char *)cfg + option->offset;
}

static const void *const_field(const struct config *cfg, const struct config_option *option)
{
    return (const char *)cfg + option->offset;
}

static void print_units(int64_t value, const struct unit *units, char *out, size_t size)
{
    for (const struct unit *unit = units; value != 0 && unit->name != NULL; unit++) {
        if (value % unit->size == 0) {
            snprintf(out, size, "%" PRId64 "%s", value / unit->size,
                     unit->size == 1 && units == size_units ? "" : unit->name);
            return;
        }
    }
    snprintf(out, size, "%" PRId64, value);
}

static void print_number(const struct config_option *option, double value, char *out, size_t size)
{
    switch (option->type) {
    case CONFIG_SIZE:
    case CONFIG_MEMORY:
        print_units((int64_t)value, size_units, out, size);
        break;
    case CONFIG_DURATION:
        print_units((int64_t)value, duration_units, out, size);
        break;
    default:
        snprintf(out, size, "%.17g", value);
        break;
    }
}

static const char auto_word[] = "auto";

void config_range_text(const struct config_option *option, char *out, size_t out_size)
{
    out[0] = '\0';
    if (option->type == CONFIG_ENUM) {
        for (size_t i = 0, len = 0; option->words[i] != NULL && len < out_size; i++) {
            const char *between = i == 0 ? "" : option->words[i + 1] == NULL ? " or " : ", ";
            len += (size_t)snprintf(out + len, out_size - len, "%s%s", between, option->words[i]);
        }
    } else if (option->type == CONFIG_INT || option->type == CONFIG_SIZE || option->type == CONFIG_MEMORY ||
               option->type == CONFIG_DURATION || option->type == CONFIG_RATE) {
        char min[32], max[32];
        if (option->type == CONFIG_RATE) {
            snprintf(min, sizeof min, "%g", option->min);
            snprintf(max, sizeof max, "%g", option->max);
        } else {
            print_number(option, option->min, min, sizeof min);
            print_number(option, option->max, max, sizeof max);
        }
        const char *unit = option->unit != NULL ? option->unit : "";
        const char *zero = option->type == CONFIG_MEMORY ? auto_word : option->zero;
        snprintf(out, out_size, "%s%s%s to %s%s%s", zero != NULL ? zero : "", zero != NULL ? ", or " : "", min, max,
                 unit[0] != '\0' ? " " : "", unit);
    }
}

static int bad(const struct config_option *option, const char *value, int code, const char *what, struct err *err)
{
    char range[RANGE_TEXT];
    config_range_text(option, range, sizeof range);
    return err_set(err, code, "%s is %s, expected %s%s%s", option->name, log_quote_str(value), what,
                   what[0] != '\0' && range[0] != '\0' ? ", " : "", range);
}

/* Leading digits. Returns what follows them, or NULL when there are none or too many. */
static const char *read_digits(const char *text, int64_t *value)
{
    const char *at = text;
    *value = 0;
    for (; isdigit((unsigned char)*at); at++) {
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *at - '0', value)) {
            *value = INT64_MAX; /* above every range */
        }
    }
    return at == text ? NULL : at;
}

static int set_number(int64_t *out, const struct config_option *option, const char *text, int64_t value,
                      struct err *err)
{
    if ((double)value < option->min || (double)value > option->max) {
        return bad(option, text, ERR_RANGE, "", err);
    }
    *out = value;
    return 0;
}

static int set_int(int64_t *out, const struct config_option *option, const char *text, struct err *err)
{
    int64_t value;
    const char *sign = text[0] == '-' ? text + 1 : text;
    const char *rest = read_digits(sign, &value);
    if (rest == NULL || *rest != '\0') {
        return bad(option, text, ERR_INVALID, "a whole number", err);
    }
    return set_number(out, option, text, sign > text ? -value : value, err);
}

/* Above every range where it is too large. */
static bool read_units(const char *text, const struct unit *units, int64_t *value)
{
    const char *rest = read_digits(text, value);
    if (rest == NULL) {
        return false;
    }
    rest += strspn(rest, " \t");
    if (*value == 0 && *rest == '\0') {
        return true;
    }
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (strcasecmp(rest, unit->name) == 0) {
            if (__builtin_mul_overflow(*value, unit->size, value)) {
                *value = INT64_MAX;
            }
            return true;
        }
    }
    return false;
}

bool config_read_duration(const char *text, int64_t *ms)
{
    return read_units(text, duration_units, ms);
}

void config_print_duration(int64_t ms, char *out, size_t out_size)
{
    print_units(ms, duration_units, out, out_size);
}

static int set_units(int64_t *out, const struct config_option *option, const char *text, const struct unit *units,
                     const char *what, struct err *err)
{
    int64_t value;
    return read_units(text, units, &value) ? set_number(out, option, text, value, err)
                                           : bad(option, text, ERR_INVALID, what, err);
}

static int set_rate(double *out, const struct config_option *option, const char *text, struct err *err)
{
    char *rest;
    double value = strtod(text, &rest);
    if (rest == text || *rest != '\0' || isspace((unsigned char)text[0]) || !isfinite(value)) {
        return bad(option, text, ERR_INVALID, "a number", err);
    }
    if (value < option->min || value > option->max) {
        return bad(option, text, ERR_RANGE, "", err);
    }
    *out = value;
    return 0;
}

static int set_enum(int64_t *out, const struct config_option *option, const char *text, struct err *err)
{
    for (int64_t i = 0; option->words[i] != NULL; i++) {
        if (strcmp(option->words[i], text) == 0) {
            *out = i;
            return 0;
        }
    }
    return bad(option, text, ERR_INVALID, "", err);
}

static int set_seed(struct config *cfg, const struct config_option *option, const char *text, struct err *err)
{
    uint64_t seed = 0;
    const char *digits = strncasecmp(text, "0x", 2) == 0 ? text + 2 : text;
    if (text[0] != '\0') {
        if (strspn(digits, "0123456789abcdefABCDEF") != 16 || digits[16] != '\0') {
            return err_set(err, ERR_INVALID, "%s is not what was expected: 16 hex digits", option->name);
        }
        seed = strtoull(digits, NULL, 16);
    }
    cfg->hash_seed_given = text[0] != '\0';
    cfg->hash_seed = seed;
    return 0;
}

static const char *read_daytime(const char *text, int64_t *minutes)
{
    for (int i = 0; i < 5; i++) {
        if (i == 2 ? text[i] != ':' : !isdigit((unsigned char)text[i])) {
            return NULL;
        }
    }
    int hour = (text[0] - '0') * 10 + text[1] - '0';
    int minute = (text[3] - '0') * 10 + text[4] - '0';
    *minutes = hour * 60 + minute;
    return minute > 59 || *minutes > DAY_MINUTES ? NULL : text + 5;
}

static int set_daytime(int64_t *out, const struct config_option *option, const char *text, struct err *err)
{
    int64_t minutes = -1;
    if (text[0] != '\0') {
        const char *rest = read_daytime(text, &minutes);
        if (rest == NULL || *rest != '\0' || minutes == DAY_MINUTES) {
            return bad(option, text, ERR_INVALID, "a time of day such as 03:30, or nothing", err);
        }
    }
    *out = minutes;
    return 0;
}

static int set_daytimes(int64_t out[2], const struct config_option *option, const char *text, struct err *err)
{
    int64_t from, to;
    const char *rest = read_daytime(text, &from);
    if (rest == NULL || *rest != '-' || (rest = read_daytime(rest + 1, &to)) == NULL || *rest != '\0' ||
        from == DAY_MINUTES) {
        return bad(option, text, ERR_INVALID, "two times of day such as 00:00-05:00", err);
    }
    if (from == to) {
        return bad(option, text, ERR_RANGE, "two different times (00:00-24:00 is the whole day)", err);
    }
    out[0] = from;
    out[1] = to;
    return 0;
}

static bool are_addresses(const char *text)
{
    const char *at = text;
    struct config_address a;
    int n = 0, code;
    while ((code = config_next_address(&at, &a)) > 0) {
        n++;
    }
    return code == 0 && n <= CONFIG_ADDRESSES_MAX && (n > 0 || strcmp(text, "none") == 0);
}

static int set_text(char *out, const struct config_option *option, const char *text, struct err *err)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (iscntrl((unsigned char)text[i])) {
            return err_set(err, ERR_INVALID, "%s holds a control character (byte %zu)", option->name, i + 1);
        }
    }
    switch (option->type) {
    case CONFIG_ADDRESS:
        if (len >= CONFIG_LIST || !are_addresses(text)) {
            return bad(option, text, ERR_INVALID,
                       "an IP address and a port such as 127.0.0.1:7979, [::1]:7979 or tls://10.0.0.7:7979, more of "
                       "them, or none",
                       err);
        }
        break;
    case CONFIG_HOSTS: /* a scheme or a port would make a name that no request has */
        if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_, \t")] != '\0') {
            return bad(option, text, ERR_INVALID, "names such as unseen.example.org, split by commas", err);
        }
        break;
    case CONFIG_ZONE:
        if (len >= CONFIG_TEXT || !calendar_zone_exists(text)) {
            return bad(option, text, ERR_INVALID, "a time zone that this system knows, such as Europe/Berlin", err);
        }
        break;
    case CONFIG_SECRET:
        if (strcmp(text, CONFIG_MASK) == 0) {
            return err_set(err, ERR_INVALID, "%s is what stands for a hidden one, expected the real one", option->name);
        }
        break;
    default:
        if (text[0] == '"' || text[0] == '\'') {
            return bad(option, text, ERR_INVALID, "a value without quotes", err);
        }
        break;
    }
    double usual = option->type == CONFIG_ADDRESS ? CONFIG_LIST - 1 : CONFIG_TEXT_MAX;
    double max = option->max > 0 ? option->max : usual;
    if ((double)len < option->min) {
        return err_set(err, ERR_RANGE, "%s is empty", option->name);
    }
    if ((double)len > max) {
        return err_set(err, ERR_RANGE, "%s is %zu bytes long, expected at most %.0f", option->name, len, max);
    }
    memcpy(out, text, len + 1);
    return 0;
}

static int unknown(const char *name, struct err *err)
{
    const char *nearest = config_nearest(name);
    if (nearest == NULL) {
        return err_set(err, ERR_NOTFOUND, "there is no option %s", log_quote_str(name));
    }
    return err_set(err, ERR_NOTFOUND, "there is no option %s; did you mean %s?", log_quote_str(name), nearest);
}

/* A quarter of what the process may use, in whole MiB: as much again may be needed at times for a slot that is flushed,
 * and the rest is for requests, caches and SQLite. */
int64_t config_auto_memory(int64_t limit, double least)
{
    const int64_t mib = 1024 * 1024, most = AUTO_MOST_MIB * mib;
    int64_t bytes = limit > 0 ? limit / AUTO_SHARE / mib * mib : AUTO_UNKNOWN_MIB * mib;
    bytes = bytes < most ? bytes : most;
    return (double)bytes > least ? bytes : (int64_t)least;
}

/* "auto", or what is shown of it: "auto (64MiB)". */
static int set_memory(int64_t out[2], const struct config_option *option, const char *value, struct err *err)
{
    const size_t n = sizeof auto_word - 1, len = strlen(value);
    if (strncmp(value, auto_word, n) == 0 &&
        (len == n || (value[n] == ' ' && value[n + 1] == '(' && value[len - 1] == ')'))) {
        const char *from;
        out[0] = config_auto_memory(process_memory_limit("", &from), option->min);
        out[1] = 1;
        return 0;
    }
    int code = set_units(&out[0], option, value, size_units, "a size such as 256MiB", err);
    out[1] = code == 0 ? 0 : out[1];
    return code;
}

int config_set(struct config *cfg, const char *name, const char *value, struct err *err)
{
    const struct config_option *option = config_find(name);
    if (option == NULL && strncmp(name, CONFIG_KAFKA_PREFIX, strlen(CONFIG_KAFKA_PREFIX)) == 0 &&
        strchr(name, '.') != NULL) {
        return config_set_property(cfg, name + strlen(CONFIG_KAFKA_PREFIX), value, err);
    }
    if (option == NULL) {
        return unknown(name, err);
    }
    void *out = field(cfg, option);
    switch (option->type) {
    case CONFIG_STRING:
    case CONFIG_ADDRESS:
    case CONFIG_ZONE:
    case CONFIG_HOSTS:
    case CONFIG_SECRET:
        return set_text(out, option, value, err);
    case CONFIG_INT:
        return set_int(out, option, value, err);
    case CONFIG_SIZE:
        return set_units(out, option, value, size_units, "a size such as 256MiB", err);
    case CONFIG_MEMORY:
        return set_memory(out, option, value, err);
    case CONFIG_DURATION:
        if (option->zero != NULL && strcmp(value, option->zero) == 0) {
            *(int64_t *)out = 0;
            return 0;
        }
        return set_units(out, option, value, duration_units, "a time with its unit (ms, s, min, h, d)", err);
    case CONFIG_RATE:
        return set_rate(out, option, value, err);
    case CONFIG_ENUM:
        return set_enum(out, option, value, err);
    case CONFIG_SEED:
        return set_seed(cfg, option, value, err);
    case CONFIG_DAYTIME_RANGE:
        return set_daytimes(out, option, value, err);
    case CONFIG_DAYTIME:
        return set_daytime(out, option, value, err);
    case CONFIG_PROPERTIES:
        return config_set_properties(cfg, value, err);
    }
    return err_set(err, ERR_INVALID, "%s has no type", name);
}

void config_text(const struct config *cfg, const struct config_option *option, char *out, size_t out_size)
{
    const void *in = const_field(cfg, option);
    const int64_t *number = in;
    const double *rate = in;
    char size[32];
    switch (option->type) {
    case CONFIG_STRING:
    case CONFIG_ADDRESS:
    case CONFIG_ZONE:
    case CONFIG_HOSTS:
        snprintf(out, out_size, "%s", (const char *)in);
        break;
    case CONFIG_SECRET:
        snprintf(out, out_size, "%s", *(const char *)in != '\0' ? CONFIG_MASK : "");
        break;
    case CONFIG_SEED:
        snprintf(out, out_size, "%s", cfg->hash_seed_given ? CONFIG_MASK : "");
        break;
    case CONFIG_INT:
        snprintf(out, out_size, "%" PRId64, *number);
        break;
    case CONFIG_SIZE:
        print_units(*number, size_units, out, out_size);
        break;
    case CONFIG_MEMORY:
        print_units(*number, size_units, size, sizeof size);
        snprintf(out, out_size, "%s%s%s", number[1] != 0 ? "auto (" : "", size, number[1] != 0 ? ")" : "");
        break;
    case CONFIG_DURATION:
        if (option->zero != NULL && *number == 0) {
            snprintf(out, out_size, "%s", option->zero);
        } else {
            print_units(*number, duration_units, out, out_size);
        }
        break;
    case CONFIG_RATE:
        for (int digits = 1; digits <= 17; digits++) { /* the shortest that reads back as the same */
            char text[32];
            snprintf(text, sizeof text, "%.*g", digits, *rate);
            if (digits == 17 || fabs(strtod(text, NULL) - *rate) <= 0) {
                snprintf(out, out_size, "%s", text);
                break;
            }
        }
        break;
    case CONFIG_ENUM:
        snprintf(out, out_size, "%s", option->words[*number]);
        break;
    case CONFIG_PROPERTIES:
        config_properties_text(cfg, out, out_size);
        break;
    case CONFIG_DAYTIME:
        out[0] = '\0';
        if (*number >= 0) {
            snprintf(out, out_size, "%02d:%02d", (int)*number / 60, (int)*number % 60);
        }
        break;
    case CONFIG_DAYTIME_RANGE:
        snprintf(out, out_size, "%02d:%02d-%02d:%02d", (int)number[0] / 60, (int)number[0] % 60, (int)number[1] / 60,
                 (int)number[1] % 60);
        break;
    }
}
