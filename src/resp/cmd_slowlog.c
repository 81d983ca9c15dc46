/* SLOWLOG GET, LEN, RESET: service/slowlog.h. */
#include <stdio.h>

#include "resp/args.h"
#include "resp/command.h"
#include "service/account.h"
#include "service/slowlog.h"

enum { GET_DEFAULT = 10 };

struct getting {
    struct writer *w;
    bool whole;
};

/* What stands behind a command's name may be ids. */
static void write_arg(const struct getting *g, size_t i, struct slice arg)
{
    char hidden[32];
    if (i == 0 || g->whole) {
        write_bulk(g->w, arg);
    } else {
        snprintf(hidden, sizeof hidden, "(%zu bytes)", arg.len);
        write_str(g->w, hidden);
    }
}

static void write_entry(void *arg, size_t n, const struct slow *entry)
{
    const struct getting *g = arg;
    struct writer *w = g->w;
    struct slice text;
    if (entry == NULL) {
        write_array(w, n);
        return;
    }
    write_array(w, 6);
    write_int(w, (int64_t)entry->id);
    write_int(w, entry->at_ms / 1000);
    write_int(w, entry->us);
    write_array(w, slowlog_count_args(entry));
    for (size_t at = 0, i = 0; slowlog_next_arg(entry, &at, &text); i++) {
        write_arg(g, i, text);
    }
    write_str(w, entry->address);
    write_str(w, entry->name);
}

enum outcome cmd_slowlog_get(struct resp_client *s, const struct slice *args, size_t n)
{
    int64_t count = GET_DEFAULT;
    if (n > 3 || (n == 3 && (!arg_int(args[2], &count) || count < -1))) {
        return resp_client_refuse(s, "ERR SLOWLOG GET takes how many, a whole number, -1 for all, got '%.*s'",
                                  arg_shown(args[n > 3 ? 3 : 2]), args[n > 3 ? 3 : 2].data);
    }
    struct getting g = {&s->writer, account_sees_users(resp_client_account(s))};
    slowlog_each(count < 0 ? SIZE_MAX : (size_t)count, write_entry, &g);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_slowlog_len(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_int(&s->writer, (int64_t)slowlog_len());
    return OUTCOME_ANSWERED;
}

enum outcome cmd_slowlog_reset(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    slowlog_reset();
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}
