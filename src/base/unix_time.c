#include "base/unix_time.h"

#include <stddef.h>

static const struct {
    const char *name;
    int64_t end; /* the numbers from the end of the unit before up to here, exclusive, look like this one */
} units[] = {
    [UNIX_S] = {"seconds", INT64_C(100000000000)},
    [UNIX_MS] = {"milliseconds", INT64_C(100000000000000)},
    [UNIX_US] = {"microseconds", INT64_C(100000000000000000)},
    [UNIX_NS] = {"nanoseconds", INT64_MAX},
};

const char *unix_unit_name(enum unix_unit unit)
{
    return units[unit].name;
}

const char *unix_time_looks_like(int64_t value, enum unix_unit expected)
{
    enum unix_unit unit = UNIX_S;
    while (unit < UNIX_NS && value >= units[unit].end) {
        unit++;
    }
    return value > 0 && unit != expected ? units[unit].name : NULL;
}

int64_t unix_time_ms(int64_t value, enum unix_unit unit, int thousandths)
{
    int64_t ms;
    switch (unit) {
    case UNIX_S:
        if (__builtin_mul_overflow(value, 1000, &ms) || __builtin_add_overflow(ms, thousandths, &ms)) {
            return value < 0 ? INT64_MIN : INT64_MAX;
        }
        return ms;
    case UNIX_US:
        return value / 1000;
    case UNIX_NS:
        return value / 1000000;
    default:
        return value;
    }
}

bool unix_time_decimal(struct slice text, int64_t *whole, int *thousandths)
{
    size_t at = text.len > 0 && text.data[0] == '-', digits = 0, places = 0;
    int64_t value = 0;
    int behind = 0;
    bool point = false;
    for (size_t i = at; i < text.len; i++) {
        int digit = text.data[i] - '0';
        if (text.data[i] == '.' && !point && digits > 0) {
            point = true;
            continue;
        }
        if (digit < 0 || digit > 9) {
            return false;
        }
        digits++;
        places += point;
        if (point) {
            behind = places <= 3 ? behind * 10 + digit : behind;
        } else if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    for (size_t i = places; i < 3; i++) {
        behind *= 10;
    }
    *whole = at > 0 ? -value : value;
    *thousandths = at > 0 ? -behind : behind;
    return digits > 0 && text.data[text.len - 1] != '.';
}
