/* UNSEEN, SEEN, FILTER: candidates in, answers out. */
#include <string.h>

#include "base/hash.h"
#include "dedup/pools.h"
#include "resp/args.h"
#include "resp/command.h"

/* --- answers --- */

/* Where an argument's own "$25\r\n" begins: in a request made of bulk strings, lengths stand in their shortest form, so
 * that an argument and its neighbours already are a piece of the reply. */
static const char *bulk_start(struct slice arg)
{
    return arg.data - (arg.len < 10 ? 4 : arg.len < 100 ? 5 : 6);
}

static void write_pool_items(struct writer *w, const struct request *rq)
{
    size_t count = rq->n_answer;
    struct pool_line_walk walk = {0};
    for (size_t i = request_next_unseen(rq, 0); count > 0; i = request_next_unseen(rq, i + 1), count--) {
        write_bulk(w, pool_line_item(rq->line, i, &walk));
    }
}

/* How many elements the answer has; with RELAX, one more. */
static size_t elements(const struct request *rq)
{
    return rq->n_answer + rq->n_relaxed + rq->relax;
}

static void write_relaxed_items(struct writer *w, const struct request *rq)
{
    for (size_t i = 0; i < rq->n_relaxed; i++) {
        struct pool_line_walk walk = {0};
        write_bulk(w, request_item(rq, rq->relaxed[i].at, &walk));
    }
    if (rq->relax) {
        write_int(w, (int64_t)rq->n_relaxed);
    }
}

/* The first unseen items; runs of neighbours are copied as they stand in the request. */
static void write_items(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    size_t count = rq->n_answer;
    if (s->parser.base == NULL || rq->n_groups > 0) {
        for (size_t i = request_next_unseen(rq, 0); count > 0; i = request_next_unseen(rq, i + 1), count--) {
            write_bulk(w, rq->items[i]);
        }
        return;
    }
    size_t i = 0;
    while (count > 0) {
        i = request_next_unseen(rq, i);
        const char *from = bulk_start(rq->items[i]);
        size_t last = i;
        while (--count > 0 && last + 1 < rq->n && request_is_unseen(rq, last + 1)) {
            last++;
        }
        const char *to = rq->items[last].data + rq->items[last].len + 2;
        buf_add(w->out, from, (size_t)(to - from));
        i = last + 1;
    }
}

static void write_indexes(struct writer *w, const struct request *rq)
{
    size_t count = rq->n_answer;
    const bool in_pools = rq->line != NULL;
    write_array(w, elements(rq) - (in_pools && rq->relax));
    for (size_t i = request_next_unseen(rq, 0); count > 0; i = request_next_unseen(rq, i + 1), count--) {
        write_int(w, (int64_t)i);
    }
    for (size_t i = 0; i < rq->n_relaxed; i++) {
        write_int(w, (int64_t)rq->relaxed[i].at);
    }
    if (rq->relax) { /* of pools it stands behind the version and the list */
        write_int(w, (int64_t)rq->n_relaxed);
    }
}

/* Positions in pools mean nothing without the version. */
static void write_version(struct writer *w, const struct request *rq)
{
    char text[POOL_VERSION_TEXT];
    if (rq->line != NULL) {
        write_array(w, 2 + rq->relax);
        write_str(w, pool_version_text(rq->pool_version, text));
    }
}

void write_question(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    switch (rq->form) {
    case FORM_INDEXES:
        write_version(w, rq);
        write_indexes(w, rq);
        break;
    case FORM_BITMAP:
        write_version(w, rq);
        write_bulk(w, slice_of((const char *)rq->unseen, bitmap_size(rq->n)));
        break;
    default:
        write_array(w, elements(rq));
        if (rq->line != NULL) {
            write_pool_items(w, rq);
        } else {
            write_items(s, w, rq);
        }
        write_relaxed_items(w, rq);
        break;
    }
}

void write_seen(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    (void)s;
    write_array(w, rq->n);
    if (buf_reserve(w->out, 4 * rq->n) == 0) {
        for (size_t i = 0; i < rq->n; i++) {
            memcpy(w->out->data + w->out->len, request_is_unseen(rq, i) ? ":0\r\n" : ":1\r\n", 4);
            w->out->len += 4;
        }
    }
}

/* --- questions --- */

/* Of pools it goes by what these hold. False: it can't be made now, or not at all. */
static bool may_reply(struct resp_client *s, const struct request *rq, enum outcome *refused)
{
    enum { OF_ITEM = 8, OF_INDEX = 16, OF_HEAD = 64 }; /* what stands around each */
    size_t n, id_bytes;
    struct err err;
    request_pools_answer(&s->conn, rq, &n, &id_bytes);
    size_t most = OF_HEAD + (rq->form == FORM_BITMAP    ? bitmap_size(n)
                             : rq->form == FORM_INDEXES ? n * OF_INDEX
                                                        : n * OF_ITEM + id_bytes);
    if (conn_check_reply(&s->conn, most, "the reply", "ask with LIMIT, or REPLY BITMAP", &err) < 0) {
        *refused = resp_client_refuse_err(s, &err);
        return false;
    }
    s->reply_most = most > s->reply_most ? most : s->reply_most;
    *refused = OUTCOME_AGAIN;
    return conn_may_reply(&s->conn, s->reply_most);
}

/* The items, if there are any, or the hashes. */
static bool take_candidates(struct resp_client *s, struct asked *asked, enum outcome *refused)
{
    const struct request *rq = &asked->rq;
    bool hashed = asked->hashes.data != NULL, has_items = rq->items != NULL;
    if (has_items ? rq->n == 0 : !hashed && rq->n_pools == 0) {
        *refused = resp_client_refuse(s, "ERR FILTER needs ITEMS and at least one item behind it");
        return false;
    }
    if (hashed && has_items) {
        *refused = resp_client_refuse(s, "ERR HASHES and ITEMS can't both be given");
        return false;
    }
    fields_complete(asked);
    return true;
}

enum outcome cmd_filter(struct resp_client *s, const struct slice *args, size_t n)
{
    struct asked asked = {.rq = {.kind = REQUEST_QUESTION}};
    enum outcome refused;
    if (!args_read(s, OF_FILTER, args, n, 1, &asked, &refused) || !take_candidates(s, &asked, &refused) ||
        (asked.rq.n_pools > 0 && !may_reply(s, &asked.rq, &refused))) {
        return refused;
    }
    return resp_client_submit(s, &asked.rq, write_question);
}
