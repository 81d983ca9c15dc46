#include <string.h>

#include "base/wire.h"
#include "grpc/message.h"

static void write_indexes(const struct request *rq, struct buf *out)
{
    size_t list = wire_begin(out, 2);
    if (buf_reserve(out, (rq->n_answer + rq->n_relaxed) * 3) < 0) {
        return;
    }
    uint8_t *at = (uint8_t *)out->data + out->len;
    size_t i = request_next_unseen(rq, 0);
    for (size_t k = 0; k < rq->n_answer; k++, i = request_next_unseen(rq, i + 1)) {
        at = wire_varint(at, i);
    }
    for (size_t k = 0; k < rq->n_relaxed; k++) {
        at = wire_varint(at, rq->relaxed[k].at);
    }
    out->len = (size_t)((char *)at - out->data);
    wire_end(out, list);
}

enum { ITEM_BESIDE = 3 /* its key and its length, of an item from a pool */ };

static size_t items_max(const struct message *m)
{
    return m->bytes + m->pool_bytes + m->pool_items * ITEM_BESIDE;
}

/* A pool may hold any bytes: then all of the answer stands in the bytes field. */
static bool is_binary(const struct message *m)
{
    const struct request *rq = &m->asked.rq;
    struct pool_line_walk walk = {0};
    bool binary = m->binary;
    size_t i = rq->line != NULL ? request_next_unseen(rq, 0) : 0;
    for (size_t k = 0; rq->line != NULL && !binary && k < rq->n_answer; k++, i = request_next_unseen(rq, i + 1)) {
        binary = !slice_is_utf8(request_item(rq, i, &walk));
    }
    for (size_t k = 0; rq->line != NULL && !binary && k < rq->n_relaxed; k++) {
        walk = (struct pool_line_walk){0};
        binary = !slice_is_utf8(request_item(rq, rq->relaxed[k].at, &walk));
    }
    return binary;
}

static uint8_t *put_item(uint8_t *at, uint8_t key, struct slice item)
{
    *at++ = key;
    at = wire_varint(at, item.len);
    memcpy(at, item.data, item.len);
    return at + item.len;
}

/* They take no more than in the request, or in the pools. */
static void write_items(const struct message *m, struct buf *out)
{
    const struct request *rq = &m->asked.rq;
    const uint8_t key = wire_key(is_binary(m) ? 4 : 3, WIRE_BYTES);
    if (buf_reserve(out, items_max(m)) < 0) {
        return;
    }
    uint8_t *at = (uint8_t *)out->data + out->len;
    struct pool_line_walk walk = {0};
    size_t i = request_next_unseen(rq, 0);
    for (size_t k = 0; k < rq->n_answer; k++, i = request_next_unseen(rq, i + 1)) {
        at = put_item(at, key, request_item(rq, i, &walk));
    }
    for (size_t k = 0; k < rq->n_relaxed; k++) {
        walk = (struct pool_line_walk){0};
        at = put_item(at, key, request_item(rq, rq->relaxed[k].at, &walk));
    }
    out->len = (size_t)((char *)at - out->data);
}

static void write_version(const struct request *rq, struct buf *out)
{
    char text[POOL_VERSION_TEXT];
    wire_put_bytes(out, 5, slice_str(pool_version_text(rq->pool_version, text)));
}

static void write_filter(const struct message *m, struct buf *out)
{
    const struct request *rq = &m->asked.rq;
    if (rq->form == FORM_BITMAP) {
        wire_put_bytes(out, 1, slice_of((const char *)rq->unseen, bitmap_size(rq->n)));
    } else if (rq->n_answer + rq->n_relaxed > 0) {
        rq->form == FORM_INDEXES ? write_indexes(rq, out) : write_items(m, out);
    }
    if (rq->line != NULL && rq->form != FORM_ITEMS) { /* positions mean nothing without it */
        write_version(rq, out);
    }
    wire_put_number(out, 6, rq->n_relaxed);
}

/* Told after the message's own number, so that a reader knows whose it is. */
void message_write_many(const struct message *m, size_t user, int code, const char *text, struct buf *out)
{
    wire_put_number(out, 1, user);
    if (m->asked.rq.err == NULL) {
        size_t reply = wire_begin(out, 2);
        write_filter(m, out);
        wire_end(out, reply);
        return;
    }
    wire_put_number(out, 3, (uint64_t)code);
    wire_put_bytes(out, 4, slice_str(text));
}

static void write_why(const struct request *rq, struct buf *out)
{
    wire_put_number(out, 1, rq->n_places > 0);
    for (size_t i = 0; i < rq->n_places; i++) {
        char name[PLACE_TEXT];
        size_t place = wire_begin(out, 2);
        const struct slice text = place_name(&rq->places[i], name);
        wire_put_bytes(out, slice_is_utf8(text) ? 1 : 4, text);
        wire_put_double(out, 2, rq->places[i].error);
        wire_put_number(out, 3, (uint64_t)rq->places[i].until_ms);
        wire_end(out, place);
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

static void write_history(const struct history *h, struct buf *out)
{
    for (size_t i = 0; i < h->n_months; i++) {
        size_t month = wire_begin(out, 1);
        write_month(&h->months[i], out);
        wire_end(out, month);
    }
    wire_put_number(out, 2, h->staged);
    wire_put_number(out, 3, h->delivered);
    wire_put_double(out, 4, h->error);
}

static void write_exposure(const struct request *rq, struct buf *out)
{
    for (size_t i = 0; i < rq->n; i++) {
        size_t item = wire_begin(out, 1);
        wire_put_number(out, 1, rq->exposed[i].times);
        wire_put_number(out, 2, rq->exposed[i].times > 0 ? (uint64_t)rq->exposed[i].age_ms / 1000 : 0);
        wire_end(out, item);
    }
}

void message_write(const struct message *m, struct buf *out)
{
    switch (m->asked.rq.kind) {
    case REQUEST_QUESTION:
        write_filter(m, out);
        break;
    case REQUEST_WHY:
        write_why(&m->asked.rq, out);
        break;
    case REQUEST_EXPOSURE:
        write_exposure(&m->asked.rq, out);
        break;
    case REQUEST_HISTORY:
        write_history(m->asked.rq.history, out);
        break;
    default:
        wire_put_number(out, 1, (uint64_t)m->asked.rq.count);
        wire_put_number(out, 2, m->asked.tag);
        if (m->asked.rq.kind >= REQUEST_POOL_SET && m->asked.rq.kind != REQUEST_POOL_DROP) {
            write_version(&m->asked.rq, out);
        }
    }
}

/* --- what pools there are --- */

enum { INFO_MOST = 2 * WIRE_HEAD_MAX + ID_MAX + 3 * WIRE_NUMBER_MAX + WIRE_HEAD_MAX + POOL_VERSION_TEXT };

static void write_info(const struct pool *pool, struct buf *out)
{
    char version[POOL_VERSION_TEXT];
    size_t info = wire_begin(out, 1);
    wire_put_bytes(out, slice_is_utf8(pool->name) ? 1 : 7, pool->name);
    wire_put_number(out, 2, pool->n);
    wire_put_bytes(out, 5, slice_str(pool_version_text(pool->version, version)));
    wire_put_number(out, 6, pool->bytes);
    wire_put_number(out, 8, (uint64_t)pool->changed_ms);
    wire_end(out, info);
}

void message_write_pools(const struct pool_table *table, struct buf *out)
{
    for (size_t i = 0; table != NULL && i < table->n; i++) {
        write_info(table->list[i], out);
    }
}

size_t message_pools_max(const struct pool_table *table)
{
    return table != NULL ? table->n * INFO_MOST : 0;
}

static size_t page_end(const struct pool *pool, size_t from, size_t count)
{
    return from >= pool->n ? from : count < pool->n - from ? from + count : pool->n;
}

void message_write_page(const struct pool *pool, size_t from, size_t count, struct buf *out)
{
    size_t end = page_end(pool, from, count);
    bool binary = false;
    struct pool_walk walk = {0};
    for (size_t i = from; i < end && !binary; i++) {
        binary = !slice_is_utf8(pool_item(pool, i, &walk));
    }
    write_info(pool, out);
    walk = (struct pool_walk){0};
    for (size_t i = from; i < end; i++) {
        wire_put_item(out, binary ? 8 : 2, pool_item(pool, i, &walk));
    }
}

size_t message_page_max(const struct pool *pool, size_t count)
{
    size_t n = count < pool->n ? count : pool->n;
    return INFO_MOST + n * ITEM_BESIDE + pool_ids_max(n, pool->id_bytes);
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
    PLACE_MOST = WIRE_HEAD_MAX + WIRE_HEAD_MAX + MONTH_TEXT + WIRE_DOUBLE + WIRE_NUMBER_MAX,
    ALSO_MOST = PLACE_MOST + PLACE_TEXT,
    HISTORY_MOST = 48 * 1024, /* of some 500 months */
    LEAST = 64,               /* the numbers of any reply */
};

size_t message_reply_max(const struct message *m)
{
    const struct request *rq = &m->asked.rq;
    switch (rq->kind) {
    case REQUEST_QUESTION:
        return LEAST + (rq->form == FORM_BITMAP    ? bitmap_size(rq->n + m->pool_items)
                        : rq->form == FORM_INDEXES ? 3 * (rq->n + m->pool_items)
                                                   : items_max(m));
    case REQUEST_WHY:
        return LEAST + PLACES_MAX * PLACE_MOST + POLICY_ALSO * ALSO_MOST;
    case REQUEST_EXPOSURE:
        return LEAST + rq->n * (WIRE_HEAD_MAX + 2 * WIRE_NUMBER_MAX);
    case REQUEST_HISTORY:
        return LEAST + HISTORY_MOST;
    default:
        return LEAST;
    }
}
