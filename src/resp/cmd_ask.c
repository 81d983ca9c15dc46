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
    write_array(w, count);
    for (size_t i = request_next_unseen(rq, 0); count > 0; i = request_next_unseen(rq, i + 1), count--) {
        write_bulk(w, pool_line_item(rq->line, i, &walk));
    }
}

/* The first unseen items; runs of neighbours are copied as they stand in the request. */
static void write_items(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    size_t count = rq->n_answer;
    write_array(w, count);
    if (s->parser.base == NULL) {
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
    write_array(w, count);
    for (size_t i = request_next_unseen(rq, 0); count > 0; i = request_next_unseen(rq, i + 1), count--) {
        write_int(w, (int64_t)i);
    }
}

/* Positions in pools mean nothing without the version. */
static void write_version(struct writer *w, const struct request *rq)
{
    char text[POOL_VERSION_TEXT];
    if (rq->line != NULL) {
        write_array(w, 2);
        write_str(w, pool_version_text(rq->pool_version, text));
    }
}

static void write_question(const struct resp_client *s, struct writer *w, const struct request *rq)
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
        if (rq->line != NULL) {
            write_pool_items(w, rq);
        } else {
            write_items(s, w, rq);
        }
        break;
    }
}

static void write_seen(const struct resp_client *s, struct writer *w, const struct request *rq)
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

enum outcome cmd_unseen(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_QUESTION, .user = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, write_question);
}

enum outcome cmd_seen(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_QUESTION, .user = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, write_seen);
}

static bool read_form(struct slice arg, enum question_form *form)
{
    for (*form = FORM_ITEMS; *form < QUESTION_FORMS; (*form)++) {
        if (arg_is(arg, question_forms[*form])) {
            return true;
        }
    }
    return false;
}

enum option {
    OPTION_SESSION,
    OPTION_REPLY,
    OPTION_LIMIT,
    OPTION_DELIVER,
    OPTION_POOL,
    OPTION_VERSION,
    OPTION_SEED,
    OPTION_HASHES,
    OPTIONS
};

static const char *const option_names[OPTIONS] = {"SESSION", "REPLY",   "LIMIT", "DELIVER",
                                                  "POOL",    "VERSION", "SEED",  "HASHES"};

/* OPTIONS: it is none. */
static enum option find_option(struct slice arg)
{
    enum option o = 0;
    while (o < OPTIONS && !arg_is(arg, option_names[o])) {
        o++;
    }
    return o;
}

/* FILTER, while it is read. */
struct filter_args {
    struct request rq;
    struct slice pools[POOLS_OF_A_QUESTION];
    bool given[OPTIONS];
};

static bool read_option(struct resp_client *s, enum option option, struct slice value, struct filter_args *f,
                        enum outcome *refused)
{
    struct request *rq = &f->rq;
    switch (option) {
    case OPTION_SESSION:
        rq->session = value;
        return true;
    case OPTION_REPLY:
        if (!read_form(value, &rq->form)) {
            *refused = resp_client_refuse(s, "ERR REPLY must be ITEMS, INDEXES or BITMAP, got '%.*s'", arg_shown(value),
                                          value.data);
            return false;
        }
        return true;
    case OPTION_LIMIT:
        rq->has_limit = true;
        if (!arg_int(value, &rq->limit)) {
            *refused = resp_client_refuse(s, "ERR LIMIT must be a whole number of at least 1, got '%.*s'",
                                          arg_shown(value), value.data);
            return false;
        }
        return true;
    case OPTION_POOL:
        if (rq->n_pools < POOLS_OF_A_QUESTION) {
            f->pools[rq->n_pools] = value;
        }
        rq->n_pools++; /* too many are refused by their number */
        return true;
    case OPTION_VERSION:
        rq->version = value;
        return true;
    case OPTION_SEED:
        rq->seed = value;
        return true;
    case OPTION_HASHES: /* read_filter() points to it: a late request finds its argument again */
        rq->hashed = true;
        rq->n = value.len / HASH_BYTES;
        return true;
    default:
        rq->deliver = true;
        return true;
    }
}

static bool refuse_option(struct resp_client *s, struct slice arg, enum outcome *refused)
{
    *refused = resp_client_refuse(
        s,
        "ERR unknown option '%.*s' of FILTER: expected SESSION, REPLY, LIMIT, DELIVER, POOL, VERSION, SEED, HASHES or "
        "ITEMS",
        arg_shown(arg), arg.data);
    return false;
}

/* FILTER user [options] ITEMS item ..., or with POOL or HASHES without ITEMS. Returns true when f->rq is complete. */
static bool read_filter(struct resp_client *s, const struct slice *args, size_t n, struct filter_args *f,
                        enum outcome *refused)
{
    size_t i = 2;
    for (; i < n && !arg_is(args[i], "ITEMS"); i++) {
        enum option option = find_option(args[i]);
        bool has_value = option != OPTION_DELIVER;
        if (option == OPTIONS || i + has_value >= n) {
            return refuse_option(s, args[i], refused);
        }
        if (f->given[option] && option != OPTION_POOL) {
            *refused = args_refuse_twice(s, option_names[option]);
            return false;
        }
        f->given[option] = true;
        i += has_value;
        if (!read_option(s, option, args[i], f, refused)) {
            return false;
        }
        f->rq.items = option == OPTION_HASHES ? args + i : f->rq.items;
    }
    if (i + 1 >= n && ((f->rq.n_pools == 0 && !f->rq.hashed) || i < n)) {
        *refused = resp_client_refuse(s, "ERR FILTER needs ITEMS and at least one item behind it");
        return false;
    }
    f->rq.user = args[1];
    f->rq.pools = f->pools;
    if (f->rq.hashed && i < n) {
        *refused = resp_client_refuse(s, "ERR HASHES and ITEMS can't both be given");
        return false;
    }
    if (i < n) {
        f->rq.items = args + i + 1;
        f->rq.n = n - i - 1;
    }
    return true;
}

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

enum outcome cmd_filter(struct resp_client *s, const struct slice *args, size_t n)
{
    struct filter_args f = {.rq = {.kind = REQUEST_QUESTION}};
    enum outcome refused;
    if (!read_filter(s, args, n, &f, &refused) || (f.rq.n_pools > 0 && !may_reply(s, &f.rq, &refused))) {
        return refused;
    }
    return resp_client_submit(s, &f.rq, write_question);
}
