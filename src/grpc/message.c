/* Reading and writing the messages of unseen.proto. A question is one key, one length and one id, ten thousand times,
 * so this is what read_list() is for: neighbours whose key and length take a byte each. All else goes field by field.
 */
#include "grpc/message.h"

#include <string.h>

#include "grpc/wire.h"

/* --- what stands where --- */

enum what {
    NOTHING, /* unknown, and left out */
    LATER,   /* of a newer server */
    USER,
    BINARY_USER,
    ITEM, /* just one */
    BINARY_ITEM,
    ITEMS,
    BINARY_ITEMS,
    SESSION,
    REPLY,
    LIMIT,
    DELIVER,
    AT,
    TAG,
    ALL,
};

struct field {
    enum what what;
    const char *name;
};

enum { FIELDS = 10 }; /* numbers 1 to 9 */

/* By their numbers. */
static const struct field filter_fields[FIELDS] = {
    [1] = {USER, "user"},
    [2] = {ITEMS, "items"},
    [3] = {REPLY, "reply"},
    [4] = {LIMIT, "limit"},
    [5] = {DELIVER, "deliver"},
    [6] = {SESSION, "session"},
    [7] = {BINARY_USER, "binary_user"},
    [8] = {BINARY_ITEMS, "binary_items"},
    [9] = {LATER, "pools"},
};
static const struct field record_fields[FIELDS] = {
    [1] = {USER, "user"},
    [2] = {ITEMS, "items"},
    [3] = {AT, "at"},
    [7] = {BINARY_USER, "binary_user"},
    [8] = {BINARY_ITEMS, "binary_items"},
    [9] = {TAG, "tag"},
};
static const struct field why_fields[FIELDS] = {
    [1] = {USER, "user"},
    [2] = {ITEM, "item"},
    [6] = {SESSION, "session"},
    [7] = {BINARY_USER, "binary_user"},
    [8] = {BINARY_ITEM, "binary_item"},
};
static const struct field history_fields[FIELDS] = {
    [1] = {USER, "user"},
    [7] = {BINARY_USER, "binary_user"},
};
static const struct field forget_fields[FIELDS] = {
    [1] = {USER, "user"},
    [2] = {ITEMS, "items"},
    [3] = {ALL, "all"},
    [7] = {BINARY_USER, "binary_user"},
    [8] = {BINARY_ITEMS, "binary_items"},
};
static const struct field block_fields[FIELDS] = {
    [1] = {SESSION, "session"},
    [2] = {ITEMS, "ids"},
    [8] = {BINARY_ITEMS, "binary_ids"},
};
static const struct field unblock_fields[FIELDS] = {
    [1] = {SESSION, "session"},
    [2] = {ITEMS, "ids"},
    [3] = {ALL, "all"},
    [8] = {BINARY_ITEMS, "binary_ids"},
};

/* --- reading --- */

struct reading {
    struct wire wire;
    const struct field *fields;
    struct message *m;
    struct slice *items;
    struct slice user, binary_user;
    size_t n_text, n_binary; /* items */
    const char *ascii_end;   /* up to here it is ASCII, so that a text before it needs no look of its own */
    bool all;
};

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

static int bad_text(const struct field *field, struct err *err)
{
    return field->what == SESSION ? err_set(err, ERR_INVALID, "%s is not valid UTF-8", field->name)
                                  : err_set(err, ERR_INVALID, "%s is not valid UTF-8: other bytes go into binary_%s",
                                            field->name, field->name);
}

/* One item, and its neighbours. */
static int read_list(struct reading *r, const struct field *field, struct slice first, struct err *err)
{
    const bool binary = field->what == BINARY_ITEMS;
    size_t *n = binary ? &r->n_binary : &r->n_text;
    const uint8_t key = wire_key((unsigned)(field - r->fields), WIRE_BYTES);
    const uint8_t *at = r->wire.at, *end = r->wire.end;
    struct slice item = first, *items = r->items;
    size_t count = *n;
    for (;;) {
        if (!binary && !is_text(r, item)) {
            return bad_text(field, err);
        }
        if (count < ITEMS_MAX) {
            items[count] = item;
        }
        count++;
        if (end - at < 2 || at[0] != key || at[1] >= 0x80 || at[1] > end - at - 2) {
            break;
        }
        item = slice_of((const char *)at + 2, at[1]);
        at += 2 + item.len;
    }
    *n = count;
    r->wire.at = at;
    return 0;
}

static int read_text(struct reading *r, const struct field *field, struct slice bytes, struct slice *to,
                     struct err *err)
{
    *to = bytes;
    return is_text(r, bytes) ? 0 : bad_text(field, err);
}

static int read_bytes(struct reading *r, const struct field *field, struct slice bytes, struct err *err)
{
    struct request *rq = &r->m->rq;
    switch (field->what) {
    case USER:
        return read_text(r, field, bytes, &r->user, err);
    case BINARY_USER:
        r->binary_user = bytes;
        return 0;
    case SESSION:
        return read_text(r, field, bytes, &rq->session, err);
    case ITEM:
        r->n_text = 1;
        return read_text(r, field, bytes, &r->items[0], err);
    case BINARY_ITEM:
        r->n_binary = 1;
        r->items[0] = bytes;
        return 0;
    default:
        return read_list(r, field, bytes, err);
    }
}

/* As they stand in .proto: BITMAP is 0 there, since it is what most want. */
static int read_reply(struct request *rq, uint64_t value, struct err *err)
{
    static const enum question_form forms[] = {FORM_BITMAP, FORM_INDEXES, FORM_ITEMS};
    if (value >= sizeof forms / sizeof *forms) {
        return err_set(err, ERR_INVALID, "reply is %lld, expected BITMAP (0), INDEXES (1) or ITEMS (2)",
                       (long long)value);
    }
    rq->form = forms[value];
    return 0;
}

static int read_number(struct reading *r, const struct field *field, uint64_t value, struct err *err)
{
    struct request *rq = &r->m->rq;
    switch (field->what) {
    case REPLY:
        return read_reply(rq, value, err);
    case LIMIT:
        rq->limit = (int64_t)value;
        rq->has_limit = value != 0;
        return 0;
    case DELIVER:
        rq->deliver = value != 0;
        return 0;
    case AT:
        rq->at_ms = (int64_t)value;
        rq->has_at = value != 0;
        return 0;
    case TAG:
        r->m->tag = value;
        return 0;
    default:
        r->all = value != 0;
        return 0;
    }
}

static int read_field(struct reading *r, const struct wire_field *f, struct err *err)
{
    const struct field *field = f->number < FIELDS ? &r->fields[f->number] : &r->fields[0];
    if (field->what == NOTHING) {
        return 0;
    }
    if (field->what == LATER) {
        return err_set(err, ERR_ABSENT, "%s (field %u) is not known to this server", field->name, f->number);
    }
    enum wire_type expected = field->what < REPLY ? WIRE_BYTES : WIRE_VARINT;
    if (f->type != expected) {
        return err_set(err, ERR_INVALID, "%s (field %u) has wire type %u, expected %u", field->name, f->number,
                       (unsigned)f->type, (unsigned)expected);
    }
    return expected == WIRE_BYTES ? read_bytes(r, field, f->bytes, err) : read_number(r, field, f->value, err);
}

/* Names the field at which the encoding is broken. */
static int bad_wire(const struct reading *r, const struct wire_field *f, struct err *err)
{
    const char *name = f->number < FIELDS ? r->fields[f->number].name : NULL;
    if (name != NULL) {
        return err_prefix(err, "%s (field %u)", name, f->number);
    }
    return f->number > 0 ? err_prefix(err, "field %u", f->number) : err->code;
}

static int refuse_both(const struct reading *r, unsigned text, unsigned binary, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s and %s can't both be given: bytes may be text, too", r->fields[text].name,
                   r->fields[binary].name);
}

/* What protobuf can't say: which fields exclude each other, and what must be there. */
static int check(const struct reading *r, struct err *err)
{
    const struct request *rq = &r->m->rq;
    const bool has_all = rq->kind == REQUEST_FORGET || rq->kind == REQUEST_UNBLOCK;
    const char *list = r->fields[2].name;
    if (r->user.len > 0 && r->binary_user.len > 0) {
        return refuse_both(r, 1, 7, err);
    }
    if (r->n_text > 0 && r->n_binary > 0) {
        return refuse_both(r, 2, 8, err);
    }
    if (has_all && r->all == (rq->n > 0)) {
        return err_set(err, ERR_INVALID, "%s and all are %s given, expected one of them", list,
                       r->all ? "both" : "not");
    }
    if (!has_all && rq->n == 0 && list != NULL && rq->kind != REQUEST_WHY) {
        return err_set(err, ERR_INVALID, "%s holds 0 ids, expected 1 to %d", list, ITEMS_MAX);
    }
    if (rq->has_at && rq->kind == REQUEST_DELIVERY) {
        return err_set(err, ERR_INVALID, "at is for plays: a delivery counts from now on");
    }
    return 0;
}

static void complete(struct reading *r, const struct method *method)
{
    struct message *m = r->m;
    struct request *rq = &m->rq;
    m->binary = r->n_binary > 0;
    m->op = rq->has_at ? OP_PLAYEDAT : method->op;
    rq->user = r->binary_user.len > 0 ? r->binary_user : r->user;
    rq->items = r->items;
    rq->n = r->n_text + r->n_binary;
    if (rq->kind == REQUEST_WHY) {
        r->items[0] = rq->n > 0 ? r->items[0] : slice_str("");
        rq->n = 1;
    }
    if (rq->kind == REQUEST_BLOCK || rq->kind == REQUEST_UNBLOCK) {
        rq->session = rq->session.data != NULL ? rq->session : slice_str("");
    } else if (rq->session.len == 0) {
        rq->session.data = NULL; /* "" is none */
    }
}

int message_read(const struct method *method, struct slice bytes, struct slice *items, struct message *m,
                 struct err *err)
{
    *m = (struct message){.rq = {.kind = method->kind, .form = FORM_BITMAP}, .op = method->op, .bytes = bytes.len};
    struct reading r = {
        .wire = wire_of(bytes),
        .fields = method->fields,
        .m = m,
        .items = items,
        .user = slice_str(""),
    };
    r.ascii_end = find_ascii_end(&r, (const char *)r.wire.at);
    struct wire_field f;
    int code;
    while ((code = wire_next(&r.wire, &f, err)) > 0) {
        if (read_field(&r, &f, err) < 0) {
            return err->code;
        }
    }
    if (code < 0) {
        return bad_wire(&r, &f, err);
    }
    complete(&r, method);
    return check(&r, err);
}

/* --- writing --- */

static void write_indexes(const struct request *rq, struct buf *out)
{
    size_t list = wire_open(out, 2);
    if (buf_reserve(out, rq->n_answer * 3) < 0) {
        return;
    }
    uint8_t *at = (uint8_t *)out->data + out->len;
    size_t i = request_next_unseen(rq, 0);
    for (size_t k = 0; k < rq->n_answer; k++, i = request_next_unseen(rq, i + 1)) {
        at = wire_varint(at, i);
    }
    out->len = (size_t)((char *)at - out->data);
    wire_close(out, list);
}

/* They take no more than in the request. */
static void write_items(const struct message *m, struct buf *out)
{
    const struct request *rq = &m->rq;
    const uint8_t key = wire_key(m->binary ? 4 : 3, WIRE_BYTES);
    if (buf_reserve(out, m->bytes) < 0) {
        return;
    }
    uint8_t *at = (uint8_t *)out->data + out->len;
    size_t i = request_next_unseen(rq, 0);
    for (size_t k = 0; k < rq->n_answer; k++, i = request_next_unseen(rq, i + 1)) {
        const struct slice item = rq->items[i];
        *at++ = key;
        at = wire_varint(at, item.len);
        memcpy(at, item.data, item.len);
        at += item.len;
    }
    out->len = (size_t)((char *)at - out->data);
}

static void write_filter(const struct message *m, struct buf *out)
{
    const struct request *rq = &m->rq;
    if (rq->form == FORM_BITMAP) {
        wire_put_bytes(out, 1, slice_of((const char *)rq->unseen, bitmap_size(rq->n)));
    } else if (rq->n_answer > 0) {
        rq->form == FORM_INDEXES ? write_indexes(rq, out) : write_items(m, out);
    }
}

static void write_record(const struct message *m, struct buf *out)
{
    wire_put_number(out, 1, (uint64_t)m->rq.count);
    wire_put_number(out, 2, m->tag);
}

static void write_count(const struct message *m, struct buf *out)
{
    wire_put_number(out, 1, (uint64_t)m->rq.count);
}

static void write_why(const struct message *m, struct buf *out)
{
    const struct request *rq = &m->rq;
    wire_put_number(out, 1, rq->n_places > 0);
    for (size_t i = 0; i < rq->n_places; i++) {
        char month[MONTH_TEXT];
        size_t place = wire_open(out, 2);
        wire_put_bytes(out, 1, slice_str(place_name(&rq->places[i], month)));
        wire_put_double(out, 2, rq->places[i].error);
        wire_close(out, place);
    }
}

static void write_month(const struct history_month *m, struct buf *out)
{
    char name[MONTH_TEXT];
    wire_put_bytes(out, 1, slice_str(month_name(m->month, name)));
    wire_put_number(out, 2, m->items);
    wire_put_number(out, 3, m->bytes);
    wire_put_double(out, 4, m->error);
    wire_put_number(out, 5, m->sealed);
    wire_put_number(out, 6, m->in_window);
    wire_put_number(out, 7, (uint64_t)m->expires_ms);
}

static void write_history(const struct message *m, struct buf *out)
{
    const struct history *h = m->rq.history;
    for (size_t i = 0; i < h->n_months; i++) {
        size_t month = wire_open(out, 1);
        write_month(&h->months[i], out);
        wire_close(out, month);
    }
    wire_put_number(out, 2, h->staged);
    wire_put_number(out, 3, h->delivered);
    wire_put_double(out, 4, h->error);
}

void message_write(const struct method *method, const struct message *m, struct buf *out)
{
    method->write(m, out);
}

void message_write_refused(uint64_t tag, int code, const char *text, struct buf *out)
{
    char clean[sizeof(struct err) + 64];
    strncpy(clean, text, sizeof clean - 1);
    clean[sizeof clean - 1] = '\0';
    utf8_clean(clean);
    wire_put_number(out, 2, tag);
    wire_put_number(out, 3, (uint64_t)code);
    wire_put_bytes(out, 4, slice_str(clean));
}

enum {
    PLACE_MOST = WIRE_HEAD_MAX + WIRE_HEAD_MAX + PLACE_TEXT + WIRE_DOUBLE,
    HISTORY_MOST = 48 * 1024, /* of some 500 months */
    LEAST = 64,               /* the numbers of any reply */
};

size_t message_reply_max(const struct message *m)
{
    const struct request *rq = &m->rq;
    switch (rq->kind) {
    case REQUEST_QUESTION:
        return LEAST + (rq->form == FORM_BITMAP ? bitmap_size(rq->n) : rq->form == FORM_INDEXES ? 3 * rq->n : m->bytes);
    case REQUEST_WHY:
        return LEAST + PLACES_MAX * PLACE_MOST;
    case REQUEST_HISTORY:
        return LEAST + HISTORY_MOST;
    default:
        return LEAST;
    }
}

/* --- the service --- */

static const struct method methods[] = {
    {"Filter", REQUEST_QUESTION, OP_FILTER, false, filter_fields, write_filter},
    {"Played", REQUEST_PLAY, OP_PLAYED, false, record_fields, write_record},
    {"PlayedStream", REQUEST_PLAY, OP_PLAYED, true, record_fields, write_record},
    {"Delivered", REQUEST_DELIVERY, OP_DELIVERED, false, record_fields, write_record},
    {"Why", REQUEST_WHY, OP_WHY, false, why_fields, write_why},
    {"History", REQUEST_HISTORY, OP_HISTORY, false, history_fields, write_history},
    {"Forget", REQUEST_FORGET, OP_FORGET, false, forget_fields, write_count},
    {"Block", REQUEST_BLOCK, OP_BLOCK, false, block_fields, write_count},
    {"Unblock", REQUEST_UNBLOCK, OP_UNBLOCK, false, unblock_fields, write_count},
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
