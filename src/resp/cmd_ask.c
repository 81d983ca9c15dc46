/* UNSEEN, SEEN, FILTER: the question itself, answered within the worker unless it goes away (away.h). */
#include <string.h>

#include "resp/args.h"
#include "resp/away.h"
#include "resp/command.h"

enum reply_form { REPLY_ITEMS, REPLY_INDEXES, REPLY_BITMAP };

struct question {
    struct slice user;
    struct slice session; /* data NULL: none */
    const struct slice *items;
    const uint64_t *hashes;
    size_t n;
    enum reply_form form;
    size_t limit; /* at least n: none */
    bool deliver;
    size_t n_unseen;
    const uint8_t *unseen; /* a bit for each item, most significant first */
};

static bool is_unseen(const struct question *q, size_t i)
{
    return (q->unseen[i / 8] & (0x80 >> i % 8)) != 0;
}

/* The first unseen one from i on, or n. */
static size_t next_unseen(const struct question *q, size_t i)
{
    while (i < q->n && !is_unseen(q, i)) {
        i += i % 8 == 0 && q->unseen[i / 8] == 0 ? 8 : 1;
    }
    return i < q->n ? i : q->n;
}

/* Returns true when q->unseen and q->n_unseen are there; else the error is written, or it is to be asked again. */
static bool ask(struct resp_client *s, struct question *q, enum outcome *refused)
{
    struct worker *w = s->conn.worker;
    if (!args_check_user(s, q->user, refused) || (q->hashes = args_hash(s, q->items, q->n, refused)) == NULL) {
        return false;
    }
    if (q->session.data != NULL && !args_check_session(s, q->session, refused)) {
        return false;
    }
    struct err err = {0};
    double error = 0;
    int code = away_filter(s, q->user, q->items, q->hashes, q->n, w->bits, &q->n_unseen, &error, &err);
    if (code == AWAY) {
        *refused = OUTCOME_AGAIN;
        return false;
    }
    if (code == 0 && q->session.data != NULL) {
        code = sessions_load(w->dedup->sessions, q->session, &w->blocked, &err);
        q->n_unseen -= session_set_hide(&w->blocked, q->items, q->hashes, q->n, w->bits);
    }
    if (code < 0) {
        resp_client_write_unread(s, &err);
        *refused = OUTCOME_ANSWERED;
        return false;
    }
    q->unseen = w->bits;
    worker_count(w, COUNT_QUESTIONS, 1);
    worker_count(w, COUNT_CANDIDATES, q->n);
    worker_count(w, COUNT_UNSEEN, q->n_unseen);
    worker_count(w, COUNT_FALSE_HITS, dedup_false_hits(error, q->n));
    worker_count(w, COUNT_OVER_ERROR_RATE, dedup_over_error_rate(w->dedup, error));
    return true;
}

/* Where an argument's own "$25\r\n" begins: in a request made of bulk strings, lengths stand in their shortest form, so
 * that an argument and its neighbours already are a piece of the reply. */
static const char *bulk_start(struct slice arg)
{
    return arg.data - (arg.len < 10 ? 4 : arg.len < 100 ? 5 : 6);
}

/* The first `count` unseen items; runs of neighbours are copied as they stand in the request. */
static void write_items(const struct resp_client *s, struct writer *w, const struct question *q, size_t count)
{
    write_array(w, count);
    if (s->parser.base == NULL) {
        for (size_t i = next_unseen(q, 0); count > 0; i = next_unseen(q, i + 1), count--) {
            write_bulk(w, q->items[i]);
        }
        return;
    }
    size_t i = 0;
    while (count > 0) {
        i = next_unseen(q, i);
        const char *from = bulk_start(q->items[i]);
        size_t last = i;
        while (--count > 0 && last + 1 < q->n && is_unseen(q, last + 1)) {
            last++;
        }
        const char *to = q->items[last].data + q->items[last].len + 2;
        buf_add(w->out, from, (size_t)(to - from));
        i = last + 1;
    }
}

static void write_indexes(struct writer *w, const struct question *q, size_t count)
{
    write_array(w, count);
    for (size_t i = next_unseen(q, 0); count > 0; i = next_unseen(q, i + 1), count--) {
        write_int(w, (int64_t)i);
    }
}

static size_t answers(const struct question *q)
{
    return q->n_unseen < q->limit ? q->n_unseen : q->limit;
}

static void write_question(const struct resp_client *s, struct writer *w, const struct question *q)
{
    switch (q->form) {
    case REPLY_ITEMS:
        write_items(s, w, q, answers(q));
        break;
    case REPLY_INDEXES:
        write_indexes(w, q, answers(q));
        break;
    case REPLY_BITMAP:
        write_bulk(w, slice_of((const char *)q->unseen, (q->n + 7) / 8));
        break;
    }
}

enum outcome cmd_unseen(struct resp_client *s, const struct slice *args, size_t n)
{
    struct question q = {.user = args[1], .items = args + 2, .n = n - 2, .limit = n};
    enum outcome refused;
    if (!ask(s, &q, &refused)) {
        return refused;
    }
    write_question(s, &s->writer, &q);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_seen(struct resp_client *s, const struct slice *args, size_t n)
{
    struct question q = {.user = args[1], .items = args + 2, .n = n - 2, .limit = n};
    enum outcome refused;
    if (!ask(s, &q, &refused)) {
        return refused;
    }
    struct buf *out = s->writer.out;
    write_array(&s->writer, q.n);
    if (buf_reserve(out, 4 * q.n) == 0) {
        for (size_t i = 0; i < q.n; i++) {
            memcpy(out->data + out->len, is_unseen(&q, i) ? ":0\r\n" : ":1\r\n", 4);
            out->len += 4;
        }
    }
    return OUTCOME_ANSWERED;
}

static bool read_form(struct slice arg, enum reply_form *form)
{
    if (arg_is(arg, "ITEMS")) {
        *form = REPLY_ITEMS;
    } else if (arg_is(arg, "INDEXES")) {
        *form = REPLY_INDEXES;
    } else if (arg_is(arg, "BITMAP")) {
        *form = REPLY_BITMAP;
    } else {
        return false;
    }
    return true;
}

enum option { OPTION_SESSION, OPTION_REPLY, OPTION_LIMIT, OPTION_DELIVER, OPTIONS };

static const char *const option_names[OPTIONS] = {"SESSION", "REPLY", "LIMIT", "DELIVER"};

/* OPTIONS: it is none. */
static enum option find_option(struct slice arg)
{
    enum option o = 0;
    while (o < OPTIONS && !arg_is(arg, option_names[o])) {
        o++;
    }
    return o;
}

static bool read_option(struct resp_client *s, enum option option, struct slice value, struct question *q,
                        enum outcome *refused)
{
    int64_t limit;
    switch (option) {
    case OPTION_SESSION:
        q->session = value;
        return true;
    case OPTION_REPLY:
        if (!read_form(value, &q->form)) {
            *refused = resp_client_refuse(s, "ERR REPLY must be ITEMS, INDEXES or BITMAP, got '%.*s'", arg_shown(value),
                                          value.data);
            return false;
        }
        return true;
    case OPTION_LIMIT:
        if (!arg_int(value, &limit) || limit < 1) {
            *refused = resp_client_refuse(s, "ERR LIMIT must be a whole number of at least 1, got '%.*s'",
                                          arg_shown(value), value.data);
            return false;
        }
        q->limit = (size_t)limit;
        return true;
    default:
        q->deliver = true;
        return true;
    }
}

/* FILTER user [options] ITEMS item ... Returns true when q is complete. */
static bool read_filter(struct resp_client *s, const struct slice *args, size_t n, struct question *q,
                        enum outcome *refused)
{
    size_t i = 2;
    bool given[OPTIONS] = {false};
    for (; i < n && !arg_is(args[i], "ITEMS"); i++) {
        enum option option = find_option(args[i]);
        bool has_value = option != OPTION_DELIVER;
        if (option == OPTIONS || i + has_value >= n) {
            *refused = resp_client_refuse(
                s, "ERR unknown option '%.*s' of FILTER: expected SESSION, REPLY, LIMIT, DELIVER or ITEMS",
                arg_shown(args[i]), args[i].data);
            return false;
        }
        if (given[option]) {
            *refused = args_refuse_twice(s, option_names[option]);
            return false;
        }
        given[option] = true;
        i += has_value;
        if (!read_option(s, option, args[i], q, refused)) {
            return false;
        }
    }
    if (i + 1 >= n) {
        *refused = resp_client_refuse(s, "ERR FILTER needs ITEMS and at least one item behind it");
        return false;
    }
    if (given[OPTION_LIMIT] && q->form == REPLY_BITMAP) {
        *refused = resp_client_refuse(s, "ERR LIMIT can't be used with REPLY BITMAP");
        return false;
    }
    if (q->deliver && !given[OPTION_LIMIT]) {
        *refused = resp_client_refuse(s, "ERR DELIVER needs LIMIT of at most %d", DELIVER_MAX);
        return false;
    }
    if (q->deliver && q->limit > DELIVER_MAX) {
        *refused = resp_client_refuse(s, "ERR DELIVER needs LIMIT of at most %d, got %zu", DELIVER_MAX, q->limit);
        return false;
    }
    q->user = args[1];
    q->items = args + i + 1;
    q->n = n - i - 1;
    q->limit = given[OPTION_LIMIT] ? q->limit : q->n;
    return true;
}

/* Records what is answered as delivered, and answers once that is durable. */
static enum outcome deliver(struct resp_client *s, const struct question *q)
{
    struct slice items[DELIVER_MAX];
    uint64_t hashes[DELIVER_MAX];
    size_t count = answers(q);
    size_t i = next_unseen(q, 0);
    for (size_t k = 0; k < count; k++, i = next_unseen(q, i + 1)) {
        items[k] = q->items[i];
        hashes[k] = q->hashes[i];
    }
    int64_t now = dedup_stamp(s->conn.worker->dedup);
    s->conn.op = OP_FILTER_DELIVER;
    enum outcome outcome = resp_client_record(s, STORE_DELIVERY, now, q->user, items, hashes, count);
    if (outcome != OUTCOME_RECORDED) {
        return outcome;
    }
    worker_count(s->conn.worker, COUNT_DELIVERIES, count);
    struct writer reply = {&s->reply, s->writer.proto};
    write_question(s, &reply, q);
    s->delivering = true;
    return OUTCOME_LATER;
}

enum outcome cmd_filter(struct resp_client *s, const struct slice *args, size_t n)
{
    struct question q = {.form = REPLY_ITEMS};
    enum outcome refused;
    if (!read_filter(s, args, n, &q, &refused) || !ask(s, &q, &refused)) {
        return refused;
    }
    if (q.deliver && q.n_unseen > 0) {
        return deliver(s, &q);
    }
    write_question(s, &s->writer, &q);
    return OUTCOME_ANSWERED;
}
