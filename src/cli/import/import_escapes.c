#include "cli/import/import_escapes.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

bool import_escapes_null(enum import_escapes escapes, struct slice field)
{
    return slice_eq(field, slice_str("\\N")) || (escapes == IMPORT_ESCAPES_MYSQL && slice_eq(field, slice_str("NULL")));
}

bool import_escapes_before(const char *begin, const char *at)
{
    const char *p = at;
    while (p > begin && p[-1] == '\\') {
        p--;
    }
    return (at - p) % 2 != 0;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Up to `most` digits of that base; *n of them are there. */
static int number(const char *at, const char *end, int base, size_t most, size_t *n)
{
    int value = 0;
    for (*n = 0; *n < most && at + *n < end && hex(at[*n]) >= 0 && hex(at[*n]) < base; ++*n) {
        value = value * base + hex(at[*n]);
    }
    return value;
}

/* What a letter behind a backslash stands for; -1: for nothing. */
static int letter(enum import_escapes escapes, char c)
{
    static const struct {
        const char *letters, *bytes;
    } tables[] = {
        [IMPORT_ESCAPES_PSQL] = {"bfnrtv", "\b\f\n\r\t\v"},
        [IMPORT_ESCAPES_MYSQL] = {"0bnrtZ", "\0\b\n\r\t\x1a"},
        [IMPORT_ESCAPES_CLICKHOUSE] = {"0abefnrtv", "\0\a\b\x1b\f\n\r\t\v"},
    };
    for (size_t i = 0; tables[escapes].letters[i] != '\0'; i++) {
        if (tables[escapes].letters[i] == c) {
            return (unsigned char)tables[escapes].bytes[i];
        }
    }
    return -1;
}

/* Whether ClickHouse, whose escapes leave patterns as LIKE 'a\%' alone, takes the backslash away. */
static bool goes(char c)
{
    return (unsigned char)c < 0x20 || (c != '\0' && strchr("\\`\"'/=", c) != NULL);
}

int import_escapes_undo(enum import_escapes escapes, struct slice *field)
{
    char *to = (char *)(uintptr_t)field->data;
    const char *at = field->data, *end = at + field->len;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        if (++at == end) {
            return ERR_INVALID;
        }
        size_t n = 0;
        int byte = letter(escapes, *at);
        if (byte >= 0) {
            at++;
        } else if (*at == 'x' && escapes != IMPORT_ESCAPES_MYSQL) {
            byte = number(at + 1, end, 16, 2, &n);
            if (n < (escapes == IMPORT_ESCAPES_CLICKHOUSE ? 2 : 1)) {
                return ERR_INVALID;
            }
            at += 1 + n;
        } else if (escapes == IMPORT_ESCAPES_PSQL && *at >= '0' && *at <= '7') {
            byte = number(at, end, 8, 3, &n);
            at += n;
        } else if (escapes == IMPORT_ESCAPES_CLICKHOUSE && *at == 'N') {
            at++; /* nothing, in the midst of a field */
            continue;
        } else {
            if (escapes == IMPORT_ESCAPES_CLICKHOUSE && !goes(*at)) {
                *to++ = '\\';
            }
            byte = (unsigned char)*at++;
        }
        *to++ = (char)byte;
    }
    field->len = (size_t)(to - field->data);
    return 0;
}
