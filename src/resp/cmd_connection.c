/* Commands about the connection itself. */
#include "base/clock.h"
#include "resp/args.h"
#include "resp/command.h"

enum { DIGITS_TEXT = 20 + 1 };

enum outcome cmd_ping(struct resp_client *s, const struct slice *args, size_t n)
{
    if (n > 2) {
        return resp_client_refuse(s, "ERR wrong number of arguments for 'ping' command");
    }
    if (n == 2) {
        write_bulk(&s->writer, args[1]);
    } else {
        write_simple(&s->writer, "PONG");
    }
    return OUTCOME_ANSWERED;
}

enum outcome cmd_echo(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    write_bulk(&s->writer, args[1]);
    return OUTCOME_ANSWERED;
}

/* TIME: by the clock that plays are stamped with, seconds and microseconds. */
enum outcome cmd_time(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    int64_t ms = clock_wall_ms();
    char seconds[DIGITS_TEXT] = "", us[DIGITS_TEXT] = "";
    write_digits(seconds, (uint64_t)(ms / 1000));
    write_digits(us, (uint64_t)(ms % 1000 * 1000));
    write_array(&s->writer, 2);
    write_str(&s->writer, seconds);
    write_str(&s->writer, us);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_quit(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_simple(&s->writer, "OK");
    conn_finish(&s->conn);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_reset(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    resp_client_end_multi(s);
    s->writer.proto = 2;
    s->name[0] = '\0';
    s->who = (struct identity){NULL, NULL};
    s->conn.trusted = false;
    write_simple(&s->writer, "RESET");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_select(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t index;
    if (!arg_int(args[1], &index)) {
        return resp_client_refuse(s, "ERR value is not an integer or out of range");
    }
    if (index != 0) {
        return resp_client_refuse(s, "ERR DB index is out of range");
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}
