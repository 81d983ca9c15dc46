/* Reading the messages of unseen.proto. A question is one key, one length and one id, ten thousand times,
 * so this is what read_list() is for: neighbours whose key and length take a byte each. All else goes field by field.
 */
#include "grpc/message.h"

#include <string.h>

#include "base/hash.h"
#include "base/wire.h"

/* --- what stands where --- */

enum what {
    NOTHING, /* unknown, and left out */
    USER,
    BINARY_USER,
    ITEM, /* just one */
    BINARY_ITEM,
    ITEMS,
    BINARY_ITEMS,
    USERS,
    BINARY_USERS,
    SESSION,
    POOL,
    RENAME,
    POOLS,
    POOL_VERSION,
    SEED,
    HASHES, /* the last of bytes */
    REPLY,
    LIMIT,
    DELIVER,
    AT,
    TAG,
    ALL,
    FROM,
    COUNT,
};

struct field {
    enum what what;
    const char *name;
};

enum { FIELDS = 13 }; /* numbers 1 to 12 */

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
    [9] = {POOLS, "pools"},
    [10] = {POOL_VERSION, "pool_version"},
    [11] = {HASHES, "hashes"},
    [12] = {SEED, "seed"},
};
static const struct field many_fields[FIELDS] = {
    [1] = {USERS, "users"},
    [2] = {ITEMS, "items"},
    [3] = {REPLY, "reply"},
    [4] = {LIMIT, "limit"},
    [5] = {DELIVER, "deliver"}, /* these two are read to be refused, by whoever asks about many */
    [6] = {SESSION, "session"},
    [7] = {BINARY_USERS, "binary_users"},
    [8] = {BINARY_ITEMS, "binary_items"},
    [9] = {POOLS, "pools"},
    [10] = {POOL_VERSION, "pool_version"},
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

static const struct field pool_fields[FIELDS] = {
    [1] = {POOL, "pool"},
    [2] = {ITEMS, "items"},
    [8] = {BINARY_ITEMS, "binary_items"},
    [9] = {RENAME, "rename"},
};
static const struct field pool_list_fields[FIELDS] = {0};
static const struct field pool_get_fields[FIELDS] = {
    [1] = {POOL, "pool"},
    [2] = {FROM, "from"},
    [3] = {COUNT, "count"},
    [10] = {POOL_VERSION, "pool_version"},
};

/* --- reading --- */

struct reading {
    struct wire wire;
    const struct field *fields;
    struct message *m;
    struct slice *items;
    struct slice user, binary_user;
    size_t n_text, n_binary; /* items, */
    size_t n_users, n_binary_users;
    const char *ascii_end; /* up to here it is ASCII, so that a text before it needs no look of its own */
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
    return field->what >= SESSION ? err_set(err, ERR_INVALID, "%s is not valid UTF-8", field->name)
                                  : err_set(err, ERR_INVALID, "%s is not valid UTF-8: other bytes go into binary_%s",
                                            field->name, field->name);
}

/* One item, and its neighbours. */
static int read_list(struct reading *r, const struct field *field, struct slice first, struct err *err)
{
    const bool binary = field->what == BINARY_ITEMS || field->what == BINARY_USERS;
    const bool users = field->what == USERS || field->what == BINARY_USERS;
    const size_t most = users ? BATCH_USERS_MAX : ITEMS_MAX;
    size_t *n = users ? (binary ? &r->n_binary_users : &r->n_users) : binary ? &r->n_binary : &r->n_text;
    const uint8_t key = wire_key((unsigned)(field - r->fields), WIRE_BYTES);
    const uint8_t *at = r->wire.at, *end = r->wire.end;
    struct slice item = first, *items = users ? r->items + ITEMS_MAX : r->items;
    size_t count = *n;
    for (;;) {
        if (!binary && !is_text(r, item)) {
            return bad_text(field, err);
        }
        if (count < most) {
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
    case POOL:
        return read_text(r, field, bytes, &r->m->pools[0], err);
    case RENAME:
        return read_text(r, field, bytes, &r->m->pools[1], err);
    case POOLS:
        rq->n_pools++; /* too many are refused by their number */
        return read_text(r, field, bytes, &r->m->pools[(rq->n_pools - 1) % POOLS_OF_A_QUESTION], err);
    case POOL_VERSION:
        return read_text(r, field, bytes, &rq->version, err);
    case SEED:
        return read_text(r, field, bytes, &rq->seed, err);
    case HASHES:
        r->m->hashes = bytes;
        return 0;
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
    case FROM:
        r->m->from = value;
        return 0;
    case COUNT:
        r->m->count = value;
        return 0;
    default:
        r->all = value != 0;
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
static int bad_field(const struct reading *r, const struct wire_field *f, struct err *err)
{
    const char *name = f->number < FIELDS ? r->fields[f->number].name : NULL;
    if (name != NULL) {
        return err_prefix(err, "%s (field %u)", name, f->number);
    }
    return f->number > 0 ? err_prefix(err, "field %u", f->number) : err->code;
}

static int read_field(struct reading *r, const struct wire_field *f, struct err *err)
{
    const struct field *field = f->number < FIELDS ? &r->fields[f->number] : &r->fields[0];
    if (field->what == NOTHING && (f->number != WRAPPER_TYPES || f->type != WIRE_BYTES)) {
        return 0;
    }
    enum wire_type expected = field->what < REPLY && field->what != NOTHING ? WIRE_BYTES : WIRE_VARINT;
    if (f->type != expected) {
        err_set(err, ERR_INVALID, "has wire type %u, expected %u", (unsigned)f->type, (unsigned)expected);
        return bad_field(r, f, err);
    }
    return expected == WIRE_BYTES ? read_bytes(r, field, f->bytes, err) : read_number(r, field, f->value, err);
}

static int refuse_both(const struct reading *r, unsigned text, unsigned binary, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s and %s can't both be given: bytes may be text, too", r->fields[text].name,
                   r->fields[binary].name);
}

/* What protobuf can't say: which fields exclude each other, and what must be there. */
static int check(const struct reading *r, enum method_shape shape, struct err *err)
{
    const struct request *rq = &r->m->rq;
    const bool has_all = rq->kind == REQUEST_FORGET || rq->kind == REQUEST_UNBLOCK;
    const char *list = r->fields[2].name;
    if ((r->user.len > 0 && r->binary_user.len > 0) || (r->n_users > 0 && r->n_binary_users > 0)) {
        return refuse_both(r, 1, 7, err);
    }
    if (r->n_text > 0 && r->n_binary > 0) {
        return refuse_both(r, 2, 8, err);
    }
    if (has_all && r->all == (rq->n > 0)) {
        return err_set(err, ERR_INVALID, "%s and all are %s given, expected one of them", list,
                       r->all ? "both" : "not");
    }
    if (shape == METHOD_POOL_LIST || shape == METHOD_POOL_GET) {
        return 0;
    }
    if (rq->kind == REQUEST_POOL_DROP || rq->kind == REQUEST_POOL_RENAME) {
        return rq->n == 0 ? 0 : err_set(err, ERR_INVALID, "%s are for PoolSet and PoolAdd", list);
    }
    if (rq->hashed && r->n_text + r->n_binary > 0) {
        return err_set(err, ERR_INVALID, "HASHES and ITEMS can't both be given");
    }
    const bool of_pools = rq->kind == REQUEST_QUESTION && (rq->n_pools > 0 || rq->hashed);
    if (!has_all && rq->n == 0 && !of_pools && list != NULL && rq->kind != REQUEST_WHY) {
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
    m->users = r->items + ITEMS_MAX;
    m->n_users = r->n_users + r->n_binary_users;
    rq->items = r->items;
    rq->n = r->n_text + r->n_binary;
    rq->pools = m->pools;
    if (rq->kind >= REQUEST_POOL_SET) {
        rq->n_pools = rq->kind == REQUEST_POOL_RENAME ? 2 : 1;
    }
    rq->version.data = rq->version.len > 0 ? rq->version.data : NULL; /* "" is none */
    rq->seed.data = rq->seed.len > 0 ? rq->seed.data : NULL;
    if (m->hashes.len > 0) {
        rq->hashed = true;
        rq->items = &m->hashes;
        rq->n = m->hashes.len / HASH_BYTES;
    }
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
    m->pools[0] = m->pools[1] = slice_str(""); /* what isn't given is empty */
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
            struct slice serialization;
            return is_wrapper(bytes, &serialization) ? refuse_wrapper(serialization, err) : err->code;
        }
    }
    if (code < 0) {
        return bad_field(&r, &f, err);
    }
    complete(&r, method);
    return check(&r, method->shape, err);
}

/* --- the service --- */

static const struct method methods[] = {
    {"Filter", REQUEST_QUESTION, OP_FILTER, METHOD_UNARY, filter_fields},
    {"FilterMany", REQUEST_QUESTION, OP_FILTER_MANY, METHOD_MANY, many_fields},
    {"Played", REQUEST_PLAY, OP_PLAYED, METHOD_UNARY, record_fields},
    {"PlayedStream", REQUEST_PLAY, OP_PLAYED, METHOD_STREAM, record_fields},
    {"Delivered", REQUEST_DELIVERY, OP_DELIVERED, METHOD_UNARY, record_fields},
    {"Why", REQUEST_WHY, OP_WHY, METHOD_UNARY, why_fields},
    {"History", REQUEST_HISTORY, OP_HISTORY, METHOD_UNARY, history_fields},
    {"Forget", REQUEST_FORGET, OP_FORGET, METHOD_UNARY, forget_fields},
    {"Block", REQUEST_BLOCK, OP_BLOCK, METHOD_UNARY, block_fields},
    {"Unblock", REQUEST_UNBLOCK, OP_UNBLOCK, METHOD_UNARY, unblock_fields},
    {"PoolSet", REQUEST_POOL_SET, OP_OTHER, METHOD_UNARY, pool_fields},
    {"PoolAdd", REQUEST_POOL_ADD, OP_OTHER, METHOD_UNARY, pool_fields},
    {"PoolRename", REQUEST_POOL_RENAME, OP_OTHER, METHOD_UNARY, pool_fields},
    {"PoolDrop", REQUEST_POOL_DROP, OP_OTHER, METHOD_UNARY, pool_fields},
    {"PoolList", REQUEST_QUESTION, OP_OTHER, METHOD_POOL_LIST, pool_list_fields},
    {"PoolGet", REQUEST_QUESTION, OP_OTHER, METHOD_POOL_GET, pool_get_fields},
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
