/* The messages of gRPC. The first byte chooses whose: a method's request, which must point into the message, hold text
 * where text is promised, be the same when it is written and read anew, and be answered within the bytes that were
 * announced; a probe's; one of reflection; or a compressed one. */
#include <string.h>

#include "base/gzip.h"
#include "base/wire.h"
#include "fuzz.h"
#include "grpc/health.h"
#include "grpc/message.h"
#include "grpc/reflection.h"

enum { HEALTH = 9, REFLECTION, GZIP, KINDS = 19, INFLATED_MOST = 1 << 20 };

static const char *const names[KINDS] = {"Filter",  "Played",  "PlayedStream", "Delivered", "Why",
                                         "History", "Forget",  "Block",        "Unblock",   [12] = "FilterMany",
                                         "PoolSet", "PoolAdd", "PoolRename",   "PoolDrop",  "PoolList",
                                         "PoolGet"};
static struct slice items[FIELDS_SLICES], again_items[FIELDS_SLICES];

static void check_within(struct slice id, struct slice message)
{
    CHECK(id.data != NULL);
    CHECK(id.len == 0 || (id.data >= message.data && id.data + id.len <= message.data + message.len));
}

static void write_items(const struct message *m, struct buf *out)
{
    for (size_t i = 0; i < m->asked.rq.n && !m->asked.rq.hashed; i++) {
        wire_put_item(out, m->binary ? 8 : 2, m->asked.rq.items[i]);
    }
}

static void write_of_pool(const struct message *m, bool page, struct buf *out)
{
    wire_put_bytes(out, 1, m->asked.names[0]);
    if (page) {
        wire_put_number(out, 2, m->asked.from);
        wire_put_number(out, 3, m->asked.count);
        wire_put_bytes(out, 10, m->asked.rq.version);
        return;
    }
    write_items(m, out);
    wire_put_bytes(out, 9, m->asked.names[1]);
}

static bool are_text(const struct slice *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!slice_is_utf8(ids[i])) {
            return false;
        }
    }
    return true;
}

/* As protobuf would write it, by the numbers of unseen.proto. */
static void write_request(const struct message *m, struct buf *out)
{
    const bool text = are_text(m->asked.users, m->asked.n_users);
    for (size_t i = 0; i < m->asked.n_users; i++) {
        wire_put_item(out, text ? 1 : 7, m->asked.users[i]);
    }
    const struct request *rq = &m->asked.rq;
    bool session_first = rq->kind == REQUEST_BLOCK || rq->kind == REQUEST_UNBLOCK;
    bool binary_user = !slice_is_utf8(rq->user);
    if (!session_first) {
        wire_put_bytes(out, binary_user ? 7 : 1, rq->user);
    }
    wire_put_bytes(out, session_first ? 1 : 6, rq->session);
    write_items(m, out);
    wire_put_bytes(out, 11, m->asked.hashes);
    wire_put_bytes(out, 12, rq->seed);
    if (rq->kind == REQUEST_QUESTION) {
        wire_put_number(out, 3, rq->form == FORM_BITMAP ? 0 : rq->form == FORM_INDEXES ? 1 : 2);
        wire_put_number(out, 4, (uint64_t)rq->limit);
        wire_put_number(out, 5, rq->deliver);
        for (size_t i = 0; i < rq->n_pools; i++) { /* of too many the last ones are kept, and their number */
            wire_put_item(out, 9, m->asked.names[i % POOLS_OF_A_QUESTION]);
        }
        wire_put_bytes(out, 10, rq->version);
    } else if (rq->kind == REQUEST_PLAY) {
        wire_put_number(out, 3, (uint64_t)rq->at_ms);
    } else if (rq->n == 0 && rq->kind != REQUEST_HISTORY) {
        wire_put_number(out, 3, 1);
    }
    wire_put_number(out, 9, m->asked.tag);
}

static void check_same(const struct message *a, const struct message *b)
{
    const struct request *x = &a->asked.rq, *y = &b->asked.rq;
    CHECK(slice_eq(x->user, y->user) && slice_eq(x->session, y->session));
    CHECK((x->session.data == NULL) == (y->session.data == NULL));
    CHECK(x->n == y->n && a->binary == b->binary && a->asked.tag == b->asked.tag && a->op == b->op);
    CHECK(x->form == y->form && x->limit == y->limit && x->has_limit == y->has_limit);
    CHECK(x->deliver == y->deliver && x->at_ms == y->at_ms && x->has_at == y->has_at);
    CHECK(x->n_pools == y->n_pools && slice_eq(x->version, y->version));
    for (size_t i = 0; i < x->n_pools; i++) {
        CHECK(slice_eq(a->asked.names[i % POOLS_OF_A_QUESTION], b->asked.names[i % POOLS_OF_A_QUESTION]));
    }
    CHECK(slice_eq(a->asked.names[0], b->asked.names[0]) && a->asked.from == b->asked.from &&
          a->asked.count == b->asked.count);
    CHECK(x->kind != REQUEST_POOL_RENAME || slice_eq(a->asked.names[1], b->asked.names[1]));
    CHECK(a->asked.n_users == b->asked.n_users);
    for (size_t i = 0; i < a->asked.n_users; i++) {
        CHECK(slice_eq(a->asked.users[i], b->asked.users[i]));
    }
    CHECK(x->hashed == y->hashed && slice_eq(a->asked.hashes, b->asked.hashes));
    CHECK((x->seed.data == NULL) == (y->seed.data == NULL) && slice_eq(x->seed, y->seed));
    for (size_t i = 0; i < x->n && !x->hashed; i++) {
        CHECK(slice_eq(x->items[i], y->items[i]));
    }
}

/* All of it is unseen. */
static void check_reply(struct message *m)
{
    static uint8_t all[ITEMS_MAX / 8];
    memset(all, 0xff, sizeof all);
    struct buf out = {0};
    m->asked.rq.unseen = all;
    m->asked.rq.n_unseen = m->asked.rq.n_answer = m->asked.rq.n;
    message_write(m, &out);
    CHECK(!out.failed && out.len <= message_reply_max(m));
    struct wire w = wire_of(buf_slice(&out));
    struct wire_field f;
    size_t n = 0;
    while (wire_next(&w, &f, NULL) > 0) {
        n += f.number >= 3 && slice_eq(f.bytes, m->asked.rq.items[n]);
    }
    CHECK(w.at == w.end &&
          (m->asked.rq.kind != REQUEST_QUESTION || m->asked.rq.form != FORM_ITEMS || n == m->asked.rq.n));
    buf_free(&out);
}

static void check_method(const char *name, struct slice message)
{
    const struct method *method = method_find(slice_str(name));
    struct message m, again;
    struct err err = {0};
    if (message_read(method, message, items, &m, &err) < 0) {
        CHECK(err.text[0] != '\0' && (err.code == ERR_INVALID || err.code == ERR_ABSENT));
        return;
    }
    if (m.asked.rq.hashed) { /* its rules are the service's; items here are never one a hash */
        CHECK(m.asked.rq.items == &m.asked.hashes && m.asked.rq.n == m.asked.hashes.len / 8 && m.asked.hashes.len > 0);
        check_within(m.asked.hashes, message);
    }
    CHECK(m.asked.rq.n <= message.len / 2 + 1 && (m.asked.rq.hashed || m.asked.rq.n <= ITEMS_MAX));
    if (m.asked.rq.user.len > 0) {
        check_within(m.asked.rq.user, message);
    }
    for (size_t i = 0; i < m.asked.rq.n && !m.asked.rq.hashed; i++) {
        check_within(m.asked.rq.items[i], message);
        CHECK(m.binary || slice_is_utf8(m.asked.rq.items[i]));
    }
    CHECK(m.asked.n_users <= message.len / 2 && (m.asked.n_users == 0 || method->shape == METHOD_MANY));
    if (m.asked.n_users > BATCH_USERS_MAX) { /* the service refuses them by their number: not all of them are there */
        return;
    }
    for (size_t i = 0; i < m.asked.n_users; i++) {
        check_within(m.asked.users[i], message);
    }
    const bool page = method->shape == METHOD_POOL_GET;
    struct buf written = {0};
    if (page || m.asked.rq.kind >= REQUEST_POOL_SET) {
        write_of_pool(&m, page, &written);
    } else if (method->shape != METHOD_POOL_LIST) {
        write_request(&m, &written);
    }
    CHECK(!written.failed && message_read(method, buf_slice(&written), again_items, &again, &err) == 0);
    check_same(&m, &again);
    buf_free(&written);
    const bool refused =
        m.asked.rq.hashed && (m.asked.rq.form == FORM_ITEMS || m.asked.rq.n > ITEMS_MAX); /* by the service */
    if (m.asked.rq.kind != REQUEST_HISTORY && !refused && !page && method->shape != METHOD_POOL_LIST) {
        check_reply(&m);
    }
}

static void check_reflection(struct slice message)
{
    struct buf out = {0};
    struct err err = {0};
    int code = reflection_answer(message, &out, &err);
    CHECK(!out.failed && (code == 0 || (code == ERR_INVALID && err.text[0] != '\0')));
    CHECK(code < 0 || (out.len > 0 && out.len <= reflection_reply_max(message)));
    buf_free(&out);
}

static bool may_hold(void *arg, size_t bytes)
{
    (void)arg;
    return bytes <= INFLATED_MOST;
}

static void check_gzip(struct slice message)
{
    struct buf out = {0};
    struct err err = {0};
    int code = gzip_inflate(message, INFLATED_MOST, may_hold, NULL, &out, &err);
    CHECK(out.cap <= INFLATED_MOST && (code == 0 || (out.data == NULL && err.text[0] != '\0')));
    if (code == 0) {
        check_method(names[0], buf_slice(&out));
    }
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    char *copy = malloc(size > 1 ? size - 1 : 1); /* exactly: what is read behind it shows */
    CHECK(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    struct slice message = slice_of(copy, size - 1);
    struct err err = {0};
    int code;
    switch (data[0] % KINDS) {
    case HEALTH:
        code = health_read(message, &(enum health_role){HEALTH_ANY}, &err);
        CHECK(code == 0 || err.text[0] != '\0');
        break;
    case REFLECTION:
        check_reflection(message);
        break;
    case GZIP:
        check_gzip(message);
        break;
    default:
        check_method(names[data[0] % KINDS], message);
    }
    free(copy);
    return 0;
}
