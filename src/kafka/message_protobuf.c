/* Fields by their numbers, since there is no schema here. A number says that of any wire type: bytes are taken as they
 * are, varints and fixed ones as numbers, unsigned unless the option says otherwise. A field that comes twice: the last
 * one counts, but items add up. */
#include "base/wire.h"
#include "kafka/message_impl.h"

enum { NUMBER_TEXT = 21, INDEXES_MAX = 64 };

static int decimal(struct arena *arena, uint64_t value, bool below_0, struct slice *text, struct err *err)
{
    char digits[NUMBER_TEXT];
    size_t at = sizeof digits;
    value = below_0 ? -value : value;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    if (below_0) {
        digits[--at] = '-';
    }
    const char *copy = arena_copy(arena, digits + at, sizeof digits - at);
    *text = slice_of(copy, sizeof digits - at);
    return copy != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* Of so many bits, as the path has them. */
static int number(struct arena *arena, const struct message_path *path, uint64_t value, unsigned bits,
                  struct slice *text, struct err *err)
{
    if (path->zigzag) {
        value = value >> 1 ^ -(value & 1);
    } else if (bits == 32 && path->is_signed) {
        value = (uint64_t)(int32_t)(uint32_t)value;
    }
    return decimal(arena, value, (path->is_signed || path->zigzag) && value >> 63 == 1, text, err);
}

static uint64_t little_endian(struct slice bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes.len; i > 0; i--) {
        value = value << 8 | (uint8_t)bytes.data[i - 1];
    }
    return value;
}

static int add_packed(struct message_draft *draft, const struct message_path *path, struct slice bytes, struct err *err)
{
    struct wire list = wire_of(bytes);
    struct slice text;
    uint64_t value;
    int more;
    while ((more = wire_next_packed(&list, &value, err)) > 0) {
        int code = number(draft->arena, path, value, 64, &text, err);
        code = code < 0 ? code : message_add_item(draft, text, err);
        if (code < 0) {
            return code;
        }
    }
    return more < 0 ? err_prefix(err, "item") : 0;
}

static int take(struct message_draft *draft, enum message_field field, const struct message_path *path,
                const struct wire_field *f, struct err *err)
{
    struct slice text = f->bytes;
    draft->has_items |= field == MESSAGE_ITEM;
    if (f->type == WIRE_BYTES && path->packed) {
        return add_packed(draft, path, f->bytes, err);
    }
    if (f->type != WIRE_BYTES) {
        bool varint = f->type == WIRE_VARINT;
        uint64_t value = varint ? f->value : little_endian(f->bytes);
        unsigned bits = varint || f->bytes.len == 8 ? 64 : 32;
        int code = number(draft->arena, path, value, bits, &text, err);
        if (code < 0) {
            return code;
        }
    }
    if (field == MESSAGE_ITEM) {
        return message_add_item(draft, text, err);
    }
    draft->texts[field] = text;
    return 0;
}

static int fields(const struct message_rules *rules, struct slice bytes, size_t depth, unsigned wanted,
                  struct message_draft *draft, struct err *err);

/* A field of the message at this depth: taken for whom it is the end of the path, looked into for the others. */
static int field(const struct message_rules *rules, const struct wire_field *f, size_t depth, unsigned wanted,
                 struct message_draft *draft, struct err *err)
{
    unsigned below = 0;
    for (unsigned i = 0; i < MESSAGE_FIELDS; i++) {
        const struct message_path *path = &rules->paths[i];
        if ((wanted & 1u << i) == 0 || path->numbers[depth] != f->number) {
            continue;
        }
        if (path->n == depth + 1) {
            return take(draft, (enum message_field)i, path, f, err);
        }
        if (f->type != WIRE_BYTES) {
            return err_set(err, ERR_INVALID, "%s: field %u is a number, expected a message", message_names[i],
                           (unsigned)f->number);
        }
        below |= 1u << i;
    }
    return below != 0 ? fields(rules, f->bytes, depth + 1, below, draft, err) : 0;
}

static int fields(const struct message_rules *rules, struct slice bytes, size_t depth, unsigned wanted,
                  struct message_draft *draft, struct err *err)
{
    struct wire w = wire_of(bytes);
    struct wire_field f;
    int more;
    while ((more = wire_next(&w, &f, err)) > 0) {
        int code = field(rules, &f, depth, wanted, draft, err);
        if (code < 0) {
            return code;
        }
    }
    return more < 0 && f.number > 0 ? err_prefix(err, "field %u", (unsigned)f.number) : more;
}

int message_read_protobuf(const struct message_rules *rules, struct slice value, struct message_draft *draft,
                          struct err *err)
{
    unsigned wanted = 0;
    for (unsigned i = 0; i < MESSAGE_FIELDS; i++) {
        wanted |= rules->paths[i].n > 0 ? 1u << i : 0;
    }
    return fields(rules, value, 0, wanted, draft, err);
}

/* Their number and each of them are zigzag varints; a single zero stands for the list of just 0. */
int message_skip_indexes(struct slice *value, struct err *err)
{
    struct wire w = wire_of(*value);
    uint64_t n = 0, index;
    int more = wire_next_packed(&w, &n, err);
    n >>= 1;
    for (uint64_t i = 0; more > 0 && i < n && i < INDEXES_MAX; i++) {
        more = wire_next_packed(&w, &index, err);
    }
    if (more <= 0 || n > INDEXES_MAX) {
        return err_set(err, ERR_INVALID, "the message indexes of Confluent's prefix can't be read");
    }
    *value = slice_of((const char *)w.at, (size_t)(w.end - w.at));
    return 0;
}
