/* SLOWLOG GET, LEN, RESET: service/slowlog.h. */
#include "resp/args.h"
#include "resp/command.h"
#include "service/slowlog.h"

enum { GET_DEFAULT = 10 };

static void write_entry(void *arg, size_t n, const struct slow *entry)
{
    struct writer *w = arg;
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
    for (size_t at = 0; slowlog_next_arg(entry, &at, &text);) {
        write_bulk(w, text);
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
    slowlog_each(count < 0 ? SIZE_MAX : (size_t)count, write_entry, &s->writer);
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
