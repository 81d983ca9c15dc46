#include "store/rados/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/text.h"
#include "store/rados/cluster.h"

static const char hex_digits[] = "0123456789abcdef";

/* --- names --- */

static bool is_plain(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

void layout_user_name(struct slice user, char out[LAYOUT_NAME])
{
    static const char digits[] = "0123456789ABCDEF";
    char *at = out;
    *at++ = 'u';
    *at++ = '.';
    for (size_t i = 0; i < user.len; i++) {
        unsigned char c = (unsigned char)user.data[i];
        if (is_plain(c)) {
            *at++ = (char)c;
        } else {
            *at++ = '%';
            *at++ = digits[c >> 4];
            *at++ = digits[c & 15];
        }
    }
    *at = '\0';
}

static int upper_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool layout_user_of(const char *name, char user[255], size_t *len)
{
    size_t n = 0;
    if (name[0] != 'u' || name[1] != '.') {
        return false;
    }
    for (const char *at = name + 2; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        if (n == 255) {
            return false;
        }
        if (c == '%') {
            int high = upper_digit(at[1]), low = high < 0 ? -1 : upper_digit(at[2]);
            if (low < 0 || is_plain((unsigned char)(high << 4 | low))) {
                return false;
            }
            c = (unsigned char)(high << 4 | low);
            at += 2;
        } else if (!is_plain(c)) {
            return false;
        }
        user[n++] = (char)c;
    }
    *len = n;
    return n > 0;
}

/* --- numbers --- */

static void write_hex(uint64_t n, char *out, int digits)
{
    for (int i = digits; i-- > 0; n >>= 4) {
        out[i] = hex_digits[n & 15];
    }
}

void layout_hex(uint64_t n, char out[LAYOUT_HEX])
{
    write_hex(n, out, LAYOUT_HEX);
}

bool layout_unhex(struct slice text, uint64_t *n)
{
    return text.len == LAYOUT_HEX && hex_read(text.data, LAYOUT_HEX, n);
}

/* Month 0 is none: 000000, which no month is written as. */
static void write_month(int month, char *out)
{
    char text[MONTH_TEXT] = "000000";
    if (month > 0) {
        month_suffix(month, text);
    }
    memcpy(out, text, LAYOUT_MONTH);
}

static bool read_month(const char *at, int *month)
{
    char text[LAYOUT_MONTH + 1];
    memcpy(text, at, LAYOUT_MONTH);
    text[LAYOUT_MONTH] = '\0';
    for (int i = 0; i < LAYOUT_MONTH; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
    }
    *month = strcmp(text, "000000") == 0 ? 0 : month_parse(text);
    return *month >= 0 && *month <= UINT16_MAX; /* as the directory holds it */
}

/* --- keys --- */

size_t layout_key_write(const struct layout_key *key, char out[LAYOUT_KEY])
{
    char *at = out;
    *at++ = (char)key->kind;
    switch (key->kind) {
    case LAYOUT_DELIVERY:
        write_hex(~key->stamp, at, LAYOUT_HEX);
        write_hex(key->hash, at + LAYOUT_HEX, LAYOUT_HEX);
        at += 2 * LAYOUT_HEX;
        break;
    case LAYOUT_FILTER:
        write_month(key->month, at);
        at[LAYOUT_MONTH] = '.';
        write_hex(key->part, at + LAYOUT_MONTH + 1, 4);
        at += LAYOUT_MONTH + 1 + 4;
        break;
    case LAYOUT_PLAY:
        write_month(key->month, at);
        write_hex(key->hash, at + LAYOUT_MONTH, LAYOUT_HEX);
        at += LAYOUT_MONTH + LAYOUT_HEX;
        break;
    case LAYOUT_DAMAGED:
        write_month(key->month, at);
        at += LAYOUT_MONTH;
        break;
    case LAYOUT_EXCEPTION:
        write_hex(key->hash, at, LAYOUT_HEX);
        at += LAYOUT_HEX;
        break;
    case LAYOUT_FORGOTTEN:
        if (key->item) {
            write_hex(key->hash, at, LAYOUT_HEX);
            at += LAYOUT_HEX;
        }
        break;
    case LAYOUT_GENERATION:
    case LAYOUT_DIRECTORY:
    case LAYOUT_OTHER:
        break;
    }
    *at = '\0';
    return (size_t)(at - out);
}

static bool read_key(struct slice text, struct layout_key *k)
{
    const char *at = text.data + 1;
    size_t len = text.len - 1;
    uint64_t n = 0;
    switch (k->kind) {
    case LAYOUT_DELIVERY:
        if (len != 2 * LAYOUT_HEX || !hex_read(at, LAYOUT_HEX, &n)) {
            return false;
        }
        k->stamp = ~n;
        return hex_read(at + LAYOUT_HEX, LAYOUT_HEX, &k->hash);
    case LAYOUT_FILTER:
        if (len != LAYOUT_MONTH + 5 || at[LAYOUT_MONTH] != '.' || !hex_read(at + LAYOUT_MONTH + 1, 4, &n)) {
            return false;
        }
        k->part = (uint16_t)n;
        return read_month(at, &k->month);
    case LAYOUT_PLAY:
        return len == LAYOUT_MONTH + LAYOUT_HEX && read_month(at, &k->month) &&
               hex_read(at + LAYOUT_MONTH, LAYOUT_HEX, &k->hash);
    case LAYOUT_DAMAGED:
        return len == LAYOUT_MONTH && read_month(at, &k->month);
    case LAYOUT_EXCEPTION:
        return len == LAYOUT_HEX && hex_read(at, LAYOUT_HEX, &k->hash);
    case LAYOUT_FORGOTTEN:
        k->item = len > 0;
        return len == 0 || (len == LAYOUT_HEX && hex_read(at, LAYOUT_HEX, &k->hash));
    case LAYOUT_GENERATION:
    case LAYOUT_DIRECTORY:
        return len == 0;
    case LAYOUT_OTHER:
        break;
    }
    return false;
}

struct layout_key layout_key_read(struct slice text)
{
    struct layout_key k = {.kind = text.len > 0 ? (enum layout_kind)(unsigned char)text.data[0] : LAYOUT_OTHER};
    return text.len > 0 && read_key(text, &k) ? k : (struct layout_key){.kind = LAYOUT_OTHER};
}

/* --- values --- */

size_t layout_most(struct slice key)
{
    return layout_key_read(key).kind == LAYOUT_FILTER ? CLUSTER_WRITE : LAYOUT_DIRECTORY_MAX;
}

int layout_ms(struct slice value, int64_t *ms)
{
    uint64_t n;
    if (!layout_unhex(value, &n) || n > INT64_MAX) {
        return ERR_CORRUPT;
    }
    *ms = (int64_t)n;
    return 0;
}

enum { GROUPED = 'g' };

size_t layout_delivery_write(const struct layout_delivery *d, char out[LAYOUT_DELIVERY_VALUE])
{
    char *at = out;
    if (d->group != 0) {
        *at = GROUPED;
        layout_hex(d->group, at + 1);
        at += 1 + LAYOUT_HEX;
    }
    write_month(d->month, at);
    memcpy(at + LAYOUT_MONTH, d->item.data, d->item.len);
    return (size_t)(at - out) + LAYOUT_MONTH + d->item.len;
}

int layout_delivery_read(struct slice value, struct layout_delivery *out)
{
    out->group = 0;
    if (value.len > 0 && value.data[0] == GROUPED) {
        if (value.len <= 1 + LAYOUT_HEX || !hex_read(value.data + 1, LAYOUT_HEX, &out->group) || out->group == 0) {
            return ERR_CORRUPT;
        }
        value = slice_of(value.data + 1 + LAYOUT_HEX, value.len - 1 - LAYOUT_HEX);
    }
    if (value.len <= LAYOUT_MONTH || value.len > LAYOUT_MONTH + 255 || !read_month(value.data, &out->month)) {
        return ERR_CORRUPT;
    }
    out->item = slice_of(value.data + LAYOUT_MONTH, value.len - LAYOUT_MONTH);
    return 0;
}

/* --- the directory --- */

enum { PART_COARSE = 1, PART_SEALED = 2 };

static void put_le(uint8_t *at, uint32_t n, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(n >> (8 * i));
    }
}

static uint32_t get_le(const uint8_t *at, int bytes)
{
    uint32_t n = 0;
    for (int i = 0; i < bytes; i++) {
        n |= (uint32_t)at[i] << (8 * i);
    }
    return n;
}

struct layout_part layout_part_of(const struct filter *filter, int month, uint16_t part)
{
    struct layout_part out = {
        .month = month, .part = part, .items = (uint32_t)filter_items(filter), .sealed = filter_sealed(filter)};
    for (unsigned i = 0; i < filter->n_parts; i++) {
        const struct filter_part *p = &filter->parts[i];
        out.coarse = out.coarse || p->coarse;
        out.live += !p->coarse && !p->fine && filter_part_live(p) ? p->n : 0;
    }
    return out;
}

void layout_directory_limit(uint32_t bytes, char out[LAYOUT_LIMIT])
{
    write_hex(bytes < UINT32_MAX ? bytes + 1 : UINT32_MAX, out, LAYOUT_LIMIT);
}

int layout_directory_write(const struct layout_part *parts, size_t n, struct buf *out)
{
    uint64_t sum = 0;
    char head[LAYOUT_LIMIT];
    for (size_t i = 0; i < n; i++) {
        sum += parts[i].bytes;
    }
    write_hex(sum < UINT32_MAX ? sum : UINT32_MAX, head, LAYOUT_LIMIT);
    buf_add(out, head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        const struct layout_part *p = &parts[i];
        uint8_t bytes[LAYOUT_PART];
        put_le(bytes, (uint32_t)p->month, 2);
        put_le(bytes + 2, p->part, 2);
        put_le(bytes + 4, p->bytes, 4);
        put_le(bytes + 8, p->items, 4);
        put_le(bytes + 12, p->live, 4);
        bytes[16] = (uint8_t)((p->coarse ? PART_COARSE : 0) | (p->sealed ? PART_SEALED : 0));
        buf_add(out, bytes, sizeof bytes);
    }
    return out->failed ? ERR_NOMEM : 0;
}

int layout_directory_count(struct slice value)
{
    uint64_t sum, found = 0;
    if (value.len == 0) {
        return 0;
    }
    if (value.len < LAYOUT_LIMIT || !hex_read(value.data, LAYOUT_LIMIT, &sum) ||
        (value.len - LAYOUT_LIMIT) % LAYOUT_PART != 0 || (value.len - LAYOUT_LIMIT) / LAYOUT_PART > LAYOUT_PARTS_MAX) {
        return ERR_CORRUPT;
    }
    size_t n = (value.len - LAYOUT_LIMIT) / LAYOUT_PART;
    for (size_t i = 0; i < n; i++) {
        found += layout_directory_part(value, i).bytes;
    }
    return sum == (found < UINT32_MAX ? found : UINT32_MAX) ? (int)n : ERR_CORRUPT;
}

size_t layout_directory_sum(struct slice value)
{
    uint64_t sum;
    return value.len >= LAYOUT_LIMIT && hex_read(value.data, LAYOUT_LIMIT, &sum) ? (size_t)sum : 0;
}

struct layout_part layout_directory_part(struct slice value, size_t i)
{
    const uint8_t *at = (const uint8_t *)value.data + LAYOUT_LIMIT + i * LAYOUT_PART;
    return (struct layout_part){.month = (int)get_le(at, 2),
                                .part = (uint16_t)get_le(at + 2, 2),
                                .bytes = get_le(at + 4, 4),
                                .items = get_le(at + 8, 4),
                                .live = get_le(at + 12, 4),
                                .coarse = (at[16] & PART_COARSE) != 0,
                                .sealed = (at[16] & PART_SEALED) != 0};
}
