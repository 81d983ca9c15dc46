/* Reading the messages of unseen.proto, by the table of fields. A question is one key, one length and one id, ten
 * thousand times, so this is what read_list() is for: neighbours whose key takes a byte, and whose length a byte or
 * two. All else goes field by field.
 */
#include "grpc/message.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/wire.h"

/* --- reading --- */

struct reading {
    struct wire wire;
    unsigned of;
    struct message *m;
    struct slice *items;
    uint64_t text, binary; /* bits of rows: what was given as a string, and as bytes */
    const char *ascii_end; /* up to here it is ASCII, so that a text before it needs no look of its own */
};

static const struct field *find(unsigned of, unsigned number)
{
    const struct field *f = request_fields;
    while (f->name != NULL && ((f->grpc & of) == 0 || (f->number != number && f->binary != number))) {
        f++;
    }
    return number > 0 && f->name != NULL ? f : NULL;
}

static uint64_t bit_of(const struct field *f)
{
    return (uint64_t)1 << (f - request_fields);
}

static const char *find_ascii_end(const struct reading *r, const char *from)
{
    return from + ascii_len(slice_of(from, (size_t)((const char *)r->wire.end - from)));
}

/* Texts come in the order of the message. */
static bool is_text(struct reading *r, struct slice text)
{
    const char *end = text.data + text.len;
    if (end <= r->ascii_end) {
        return true;
    }
    bool good = slice_is_utf8(text);
    r->ascii_end = find_ascii_end(r, end);
    return good;
}

static int bad_text(const struct field *f, struct err *err)
{
    return f->binary == 0
               ? err_set(err, ERR_INVALID, "%s is not valid UTF-8", f->name)
               : err_set(err, ERR_INVALID, "%s is not valid UTF-8: other bytes go into binary_%s", f->name, f->name);
}

/* The item that follows, if it has the same key, of a byte, and its length takes a byte or two. */
static bool next_item(const uint8_t **at, const uint8_t *end, uint8_t key, struct slice *item)
{
    const uint8_t *from = *at;
    if (end - from < 3 || from[0] != key) { /* one of no bytes at the very end goes by itself */
        return false;
    }
    bool is_long = from[1] >= 0x80;
    size_t len = is_long ? (from[1] & 0x7fu) | (size_t)from[2] << 7 : from[1], head = is_long ? 3 : 2;
    if ((is_long && from[2] >= 0x80) || len > (size_t)(end - from) - head) {
        return false;
    }
    *item = slice_of((const char *)from + head, len);
    *at = from + head + len;
    return true;
}

/* One item, and its neighbours. */
static int read_list(struct reading *r, const struct field *f, unsigned number, struct slice first, struct err *err)
{
    const bool binary = number == f->binary, names = f->type == FIELD_TEXTS;
    const size_t most = names ? POOLS_OF_A_QUESTION : f->most > 0 ? f->most : ITEMS_MAX;
    const bool is_short = number < 16; /* a larger one's key has two bytes: then they go one by one */
    const uint8_t key = wire_key(number, WIRE_BYTES);
    const uint8_t *at = r->wire.at, *end = r->wire.end;
    struct slice item = first, *items = names ? r->m->asked.names : r->items + f->room;
    size_t *n = field_given(f, &r->m->asked), count = *n;
    do {
        if (!binary && !is_text(r, item)) {
            return bad_text(f, err);
        }
        if (count < most) {
            items[count] = item;
        }
        count++;
    } while (is_short && next_item(&at, end, key, &item));
    *(const struct slice **)field_at(f, &r->m->asked) = items;
    *n = count;
    r->wire.at = at;
    return 0;
}

enum { OF_ITEMS = 2 }; /* the number that items have in all messages; a reply has them as they came */

static int read_bytes(struct reading *r, const struct field *f, unsigned number, struct slice bytes, struct err *err)
{
    const bool binary = number == f->binary;
    struct slice *to = field_at(f, &r->m->asked);
    uint64_t bit = bit_of(f), *given = binary ? &r->binary : &r->text;
    r->m->binary = r->m->binary || (binary && f->number == OF_ITEMS);
    if (f->type == FIELD_IDS || f->type == FIELD_TEXTS) {
        *given |= bit;
        return read_list(r, f, number, bytes, err);
    }
    if (!binary && f->type != FIELD_BYTES && !is_text(r, bytes)) {
        return bad_text(f, err);
    }
    bool is_given = bytes.len > 0 || f->number == OF_ITEMS; /* an empty user is none, an empty item is one */
    *given = is_given ? *given | bit : *given & ~bit;
    if ((f->type == FIELD_TEXT || f->type == FIELD_BYTES) && bytes.len == 0 && (f->needed & r->of) == 0) {
        *to = (struct slice){NULL, 0}; /* "" is none */
    } else if (is_given || ((r->text | r->binary) & bit) == 0) {
        *to = bytes;
    }
    return 0;
}

/* As they stand in .proto: BITMAP is 0 there, since it is what most want. */
static int read_reply(enum question_form *form, uint64_t value, struct err *err)
{
    static const enum question_form forms[] = {FORM_BITMAP, FORM_INDEXES, FORM_ITEMS};
    if (value >= sizeof forms / sizeof *forms) {
        return err_set(err, ERR_INVALID, "reply is %lld, expected BITMAP (0), INDEXES (1) or ITEMS (2)",
                       (long long)value);
    }
    *form = forms[value];
    return 0;
}

static int read_number(struct reading *r, const struct field *f, uint64_t value, struct err *err)
{
    switch (f->type) {
    case FIELD_FORM:
        return read_reply(field_at(f, &r->m->asked), value, err);
    case FIELD_NUMBER:
        field_set_number(f, &r->m->asked, (int64_t)value, value != 0);
        return 0;
    default:
        *(bool *)field_at(f, &r->m->asked) = value != 0;
        return 0;
    }
}

/* Dubbo's consumers without a stub from the .proto file send arguments that Java or Go serialized, in a message
 * TripleRequestWrapper: a serialization's name, the arguments, and their types in field 3, which is never bytes in
 * ours.
 */
enum { WRAPPER_NAME = 1, WRAPPER_TYPES = 3 };

static bool is_wrapper(struct slice message, struct slice *serialization)
{
    struct wire w = wire_of(message);
    struct wire_field f;
    bool has_types = false;
    *serialization = slice_str("");
    while (wire_next(&w, &f, NULL) > 0) {
        if (f.number > WRAPPER_TYPES || f.type != WIRE_BYTES) {
            return false;
        }
        *serialization = f.number == WRAPPER_NAME ? f.bytes : *serialization;
        has_types = has_types || f.number == WRAPPER_TYPES;
    }
    return has_types && w.at == w.end && serialization->len > 0 && serialization->len < 32 &&
           slice_is_text(*serialization);
}

static int refuse_wrapper(struct slice serialization, struct err *err)
{
    return err_set(err, ERR_ABSENT,
                   "a TripleRequestWrapper (%.*s) is not served: call by the stub that Dubbo's compiler makes of "
                   "unseen.proto, which sends protobuf",
                   (int)serialization.len, serialization.data);
}

/* Puts the field's name before what is wrong with its encoding. */
static int bad_field(const struct reading *r, const struct wire_field *w, struct err *err)
{
    const struct field *f = find(r->of, w->number);
    if (f != NULL) {
        return err_prefix(err, "%s%s (field %u)", w->number == f->binary ? "binary_" : "", f->name, w->number);
    }
    return w->number > 0 ? err_prefix(err, "field %u", w->number) : err->code;
}

static int read_field(struct reading *r, const struct wire_field *w, struct err *err)
{
    const struct field *f = find(r->of, w->number);
    if (f == NULL && (w->number != WRAPPER_TYPES || w->type != WIRE_BYTES)) {
        return 0;
    }
    bool is_number = f == NULL || f->type == FIELD_FORM || f->type == FIELD_NUMBER || f->type == FIELD_FLAG;
    enum wire_type expected = is_number ? WIRE_VARINT : WIRE_BYTES;
    if (w->type != expected) {
        err_set(err, ERR_INVALID, "has wire type %u, expected %u", (unsigned)w->type, (unsigned)expected);
        return bad_field(r, w, err);
    }
    return is_number ? read_number(r, f, w->value, err) : read_bytes(r, f, w->number, w->bytes, err);
}

static int refuse_both(uint64_t both, struct err *err)
{
    const struct field *f = request_fields;
    while ((bit_of(f) & both) == 0) {
        f++;
    }
    return err_set(err, ERR_INVALID, "%s and binary_%s can't both be given: bytes may be text, too", f->name, f->name);
}

/* What protobuf can't say: which fields exclude each other, and what must be there. */
static int check(const struct reading *r, enum method_shape shape, struct err *err)
{
    const struct request *rq = &r->m->asked.rq;
    const struct field *list = find(r->of, OF_ITEMS);
    const bool has_all = rq->kind == REQUEST_FORGET || rq->kind == REQUEST_UNBLOCK, all = r->m->asked.all;
    if ((r->text & r->binary) != 0) {
        return refuse_both(r->text & r->binary, err);
    }
    if (has_all && all == (rq->n > 0)) {
        return err_set(err, ERR_INVALID, "%s and all are %s given, expected one of them", list->name,
                       all ? "both" : "not");
    }
    if (shape == METHOD_POOL_LIST || shape == METHOD_POOL_GET) {
        return 0;
    }
    if (rq->kind == REQUEST_POOL_DROP || rq->kind == REQUEST_POOL_RENAME) {
        return rq->n == 0 ? 0 : err_set(err, ERR_INVALID, "%s are for PoolSet and PoolAdd", list->name);
    }
    if (rq->hashed && ((r->text | r->binary) & bit_of(list)) != 0) {
        return err_set(err, ERR_INVALID, "HASHES and ITEMS can't both be given");
    }
    const bool of_pools = rq->kind == REQUEST_QUESTION && (rq->n_pools > 0 || rq->hashed);
    if (!has_all && rq->n == 0 && !of_pools && list != NULL) {
        return err_set(err, ERR_INVALID, "%s holds 0 ids, expected 1 to %d", list->name, ITEMS_MAX);
    }
    if (rq->has_at && rq->kind == REQUEST_DELIVERY) {
        return err_set(err, ERR_INVALID, "at is for plays: a delivery counts from now on");
    }
    if (rq->n_groups > 0 && rq->kind == REQUEST_PLAY) {
        return err_set(err, ERR_INVALID, "groups are for deliveries: a play has none");
    }
    return 0;
}

static void complete(struct message *m, const struct method *method)
{
    struct request *rq = &m->asked.rq;
    m->op = rq->has_at ? OP_PLAYEDAT : method->op;
    fields_complete(&m->asked);
    if (method->of & (OF_BLOCK | OF_UNBLOCK) && rq->session.data == NULL) {
        rq->session = slice_str("");
    }
}

int message_read(const struct method *method, struct slice bytes, struct slice *items, struct message *m,
                 struct err *err)
{
    const struct slice none = slice_str(""); /* what isn't given */
    *m = (struct message){.op = method->op, .bytes = bytes.len};
    m->asked.rq =
        (struct request){.kind = method->kind, .form = FORM_BITMAP, .user = none, .into = none, .items = items};
    m->asked.item = m->asked.names[0] = m->asked.names[1] = none;
    struct reading r = {.wire = wire_of(bytes), .of = method->of, .m = m, .items = items};
    r.ascii_end = find_ascii_end(&r, (const char *)r.wire.at);
    struct wire_field f;
    int code;
    while ((code = wire_next(&r.wire, &f, err)) > 0) {
        if (read_field(&r, &f, err) < 0) {
            struct slice serialization;
            return is_wrapper(bytes, &serialization) ? refuse_wrapper(serialization, err) : err->code;
        }
    }
    if (code < 0) {
        return bad_field(&r, &f, err);
    }
    complete(m, method);
    return check(&r, method->shape, err);
}

/* --- the service --- */

static const struct method methods[] = {
    {"Filter", REQUEST_QUESTION, OP_FILTER, METHOD_UNARY, OF_FILTER},
    {"FilterMany", REQUEST_QUESTION, OP_FILTER_MANY, METHOD_MANY, OF_FILTER_MANY},
    {"Played", REQUEST_PLAY, OP_PLAYED, METHOD_UNARY, OF_PLAYED},
    {"PlayedStream", REQUEST_PLAY, OP_PLAYED, METHOD_STREAM, OF_PLAYED},
    {"Delivered", REQUEST_DELIVERY, OP_DELIVERED, METHOD_UNARY, OF_DELIVERED},
    {"Why", REQUEST_WHY, OP_WHY, METHOD_UNARY, OF_WHY},
    {"Exposure", REQUEST_EXPOSURE, OP_EXPOSURE, METHOD_UNARY, OF_EXPOSURE},
    {"History", REQUEST_HISTORY, OP_HISTORY, METHOD_UNARY, OF_HISTORY},
    {"Forget", REQUEST_FORGET, OP_FORGET, METHOD_UNARY, OF_FORGET},
    {"Merge", REQUEST_MERGE, OP_MERGE, METHOD_UNARY, OF_MERGE},
    {"Block", REQUEST_BLOCK, OP_BLOCK, METHOD_UNARY, OF_BLOCK},
    {"Unblock", REQUEST_UNBLOCK, OP_UNBLOCK, METHOD_UNARY, OF_UNBLOCK},
    {"PoolSet", REQUEST_POOL_SET, OP_OTHER, METHOD_UNARY, OF_POOL_SET},
    {"PoolAdd", REQUEST_POOL_ADD, OP_OTHER, METHOD_UNARY, OF_POOL_ADD},
    {"PoolRename", REQUEST_POOL_RENAME, OP_OTHER, METHOD_UNARY, OF_POOL_RENAME},
    {"PoolDrop", REQUEST_POOL_DROP, OP_OTHER, METHOD_UNARY, OF_POOL_DROP},
    {"PoolList", REQUEST_QUESTION, OP_OTHER, METHOD_POOL_LIST, OF_POOL_LIST},
    {"PoolGet", REQUEST_QUESTION, OP_OTHER, METHOD_POOL_GET, OF_POOL_GET},
};

const struct method *method_find(struct slice name)
{
    for (size_t i = 0; name.len > 0 && i < sizeof methods / sizeof *methods; i++) {
        const char *own = methods[i].name;
        bool first = (name.data[0] | 0x20) == (own[0] | 0x20);
        if (first && slice_eq(slice_of(name.data + 1, name.len - 1), slice_str(own + 1))) {
            return &methods[i];
        }
    }
    return NULL;
}
