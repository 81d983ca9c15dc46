/* UNSEEN, SEEN, FILTER: candidates in, answers out. */
#include <string.h>

#include "resp/args.h"
#include "resp/command.h"

/* --- answers --- */

/* Where an argument's own "$25\r\n" begins: in a request made of bulk strings, lengths stand in their shortest form, so
 * that an argument and its neighbours already are a piece of the reply. */
static const char *bulk_start(struct slice arg)
{
    return arg.data - (arg.len < 10 ? 4 : arg.len < 100 ? 5 : 6);
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

static void write_question(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    switch (rq->form) {
    case FORM_INDEXES:
        write_indexes(w, rq);
        break;
    case FORM_BITMAP:
        write_bulk(w, slice_of((const char *)rq->unseen, bitmap_size(rq->n)));
        break;
    default:
        write_items(s, w, rq);
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

static bool read_option(struct resp_client *s, enum option option, struct slice value, struct request *rq,
                        enum outcome *refused)
{
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
    default:
        rq->deliver = true;
        return true;
    }
}

/* FILTER user [options] ITEMS item ... Returns true when rq is complete. */
static bool read_filter(struct resp_client *s, const struct slice *args, size_t n, struct request *rq,
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
        if (!read_option(s, option, args[i], rq, refused)) {
            return false;
        }
    }
    if (i + 1 >= n) {
        *refused = resp_client_refuse(s, "ERR FILTER needs ITEMS and at least one item behind it");
        return false;
    }
    rq->user = args[1];
    rq->items = args + i + 1;
    rq->n = n - i - 1;
    return true;
}

enum outcome cmd_filter(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_QUESTION};
    enum outcome refused;
    return read_filter(s, args, n, &rq, &refused) ? resp_client_submit(s, &rq, write_question) : refused;
}
