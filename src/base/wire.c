#include "base/wire.h"

#include <string.h>

#include "base/varint.h"

enum { NUMBER_MAX = (1 << 29) - 1 };

/* Any form of it, not just the shortest as varint_get() wants it. Returns its length, 0: it is cut off or too long. */
static size_t get_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < VARINT_MAX && at + i < end; i++) {
        if (i == VARINT_MAX - 1 && at[i] > 1) {
            return 0;
        }
        sum |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] < 0x80) {
            *value = sum;
            return i + 1;
        }
    }
    return 0;
}

static int bad_varint(const struct wire *w, const char *what, struct err *err)
{
    return w->end - w->at >= VARINT_MAX ? err_set(err, ERR_INVALID, "%s takes more than 64 bits", what)
                                        : err_set(err, ERR_INVALID, "the message ends within %s", what);
}

static int read_key(struct wire *w, struct wire_field *f, struct err *err)
{
    uint64_t key;
    size_t n = get_varint(w->at, w->end, &key);
    f->number = 0;
    if (n == 0) {
        return bad_varint(w, "the number of a field", err);
    }
    if (key >> 3 == 0 || key >> 3 > NUMBER_MAX) {
        return err_set(err, ERR_INVALID, "a field has number %llu, expected 1 to %d", (unsigned long long)key >> 3,
                       NUMBER_MAX);
    }
    w->at += n;
    f->number = (uint32_t)(key >> 3);
    f->type = (enum wire_type)(key & 7);
    return 0;
}

/* Moves on over so many bytes. */
static int take(struct wire *w, struct wire_field *f, uint64_t len, struct err *err)
{
    size_t left = (size_t)(w->end - w->at);
    if (len > left) {
        return err_set(err, ERR_INVALID, "is %llu bytes long, and the message ends after %zu of them",
                       (unsigned long long)len, left);
    }
    f->bytes = slice_of((const char *)w->at, (size_t)len);
    w->at += len;
    return 1;
}

int wire_next(struct wire *w, struct wire_field *f, struct err *err)
{
    if (w->at == w->end) {
        return 0;
    }
    if (read_key(w, f, err) < 0) {
        return ERR_INVALID;
    }
    switch ((unsigned)f->type) {
    case WIRE_I64:
        return take(w, f, 8, err);
    case WIRE_I32:
        return take(w, f, 4, err);
    case WIRE_VARINT:
    case WIRE_BYTES:
        break;
    case 3:
    case 4:
        return err_set(err, ERR_INVALID, "is a group, which proto3 does not have");
    default:
        return err_set(err, ERR_INVALID, "has wire type %u, which there is not", (unsigned)f->type);
    }
    size_t n = get_varint(w->at, w->end, &f->value);
    if (n == 0) {
        return bad_varint(w, f->type == WIRE_BYTES ? "its length" : "its value", err);
    }
    w->at += n;
    return f->type == WIRE_BYTES ? take(w, f, f->value, err) : 1;
}

int wire_next_packed(struct wire *w, uint64_t *value, struct err *err)
{
    if (w->at == w->end) {
        return 0;
    }
    size_t n = get_varint(w->at, w->end, value);
    w->at += n;
    return n > 0 ? 1 : bad_varint(w, "a number of its list", err);
}

/* --- writing --- */

uint8_t *wire_varint(uint8_t *at, uint64_t value)
{
    return at + varint_put(at, value);
}

static void put(struct buf *out, unsigned number, enum wire_type type, uint64_t value)
{
    uint8_t head[WIRE_NUMBER_MAX];
    head[0] = wire_key(number, type);
    buf_add(out, head, (size_t)(wire_varint(head + 1, value) - head));
}

void wire_put_number(struct buf *out, unsigned number, uint64_t value)
{
    if (value != 0) {
        put(out, number, WIRE_VARINT, value);
    }
}

void wire_put_double(struct buf *out, unsigned number, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (bits != 0) {
        uint8_t field[WIRE_DOUBLE] = {wire_key(number, WIRE_I64)};
        for (size_t i = 0; i < sizeof bits; i++) {
            field[1 + i] = (uint8_t)(bits >> 8 * i);
        }
        buf_add(out, field, sizeof field);
    }
}

void wire_put_item(struct buf *out, unsigned number, struct slice bytes)
{
    put(out, number, WIRE_BYTES, bytes.len);
    buf_add(out, bytes.data, bytes.len);
}

void wire_put_bytes(struct buf *out, unsigned number, struct slice bytes)
{
    if (bytes.len > 0) {
        wire_put_item(out, number, bytes);
    }
}

size_t wire_begin(struct buf *out, unsigned number)
{
    uint8_t key = wire_key(number, WIRE_BYTES);
    buf_add(out, &key, 1);
    return out->len;
}

/* The length was not known, so the value moves up behind it. */
void wire_end(struct buf *out, size_t opened)
{
    uint8_t length[VARINT_MAX];
    size_t value = out->len - opened, n = varint_put(length, value);
    if (out->failed || buf_reserve(out, n) < 0) {
        return;
    }
    memmove(out->data + opened + n, out->data + opened, value);
    memcpy(out->data + opened, length, n);
    out->len += n;
}
