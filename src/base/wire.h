/* Protobuf's encoding, field by field: for messages so small that they need no generated code.
 *
 * A message is a run of fields: a key (the field's number and what kind of value follows), then the value. A field that
 * is not repeated and comes twice: the last one counts. Numbers, flags and texts that are zero or empty are not
 * written.
 */
#ifndef UNSEEN_BASE_WIRE_H
#define UNSEEN_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

enum wire_type { WIRE_VARINT = 0, WIRE_I64 = 1, WIRE_BYTES = 2, WIRE_I32 = 5 };

/* --- reading --- */

struct wire {
    const uint8_t *at, *end;
};

struct wire_field {
    uint32_t number; /* 0: the error lies within the key */
    enum wire_type type;
    uint64_t value;     /* WIRE_VARINT */
    struct slice bytes; /* WIRE_BYTES: within the message */
};

static inline struct wire wire_of(struct slice message)
{
    const uint8_t *at = (const uint8_t *)(message.data != NULL ? message.data : "");
    return (struct wire){at, at + message.len};
}

/* The next field: 1, 0 at the end of the message, or ERR_INVALID with a text to be put behind the field's name. err
 * may be NULL. */
int wire_next(struct wire *w, struct wire_field *f, struct err *err);

/* The next number of a packed list, in the same way. */
int wire_next_packed(struct wire *w, uint64_t *value, struct err *err);

/* --- writing --- */

enum { WIRE_NUMBER_MAX = 1 + 10, WIRE_DOUBLE = 1 + 8, WIRE_HEAD_MAX = 1 + 5 }; /* sizes, for field numbers up to 15 */

/* Raw: into memory that is there. Returns what follows. */
uint8_t *wire_varint(uint8_t *at, uint64_t value);
static inline uint8_t wire_key(unsigned number, enum wire_type type)
{
    return (uint8_t)(number << 3 | type);
}

void wire_put_number(struct buf *out, unsigned number, uint64_t value);
void wire_put_double(struct buf *out, unsigned number, double value);
void wire_put_bytes(struct buf *out, unsigned number, struct slice bytes);
void wire_put_item(struct buf *out, unsigned number, struct slice bytes); /* of a repeated field: an empty one, too */

/* A message within, or a packed list: what is appended between the two is its value. */
size_t wire_begin(struct buf *out, unsigned number);
void wire_end(struct buf *out, size_t opened);

#endif
