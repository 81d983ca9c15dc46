/* WHY, HISTORY, MONTHS: what is remembered, for people. */
#include "base/calendar.h"
#include "base/hash.h"
#include "resp/args.h"
#include "resp/away.h"
#include "resp/command.h"

enum { MONTHS_MAX = 512 };

/* Whether the session blocks the item: 1, 0 or an error. */
static int is_blocked(struct worker *w, struct slice session, struct slice item, struct err *err)
{
    int code = sessions_load(w->dedup->sessions, session, &w->blocked, err);
    return code < 0 ? code : session_set_has(&w->blocked, item, hash_id(w->dedup->seed, item));
}

/* WHY user item [SESSION id] */
enum outcome cmd_why(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    if (!args_check_user(s, args[1], &refused) || !args_check_items(s, args + 2, 1, &refused)) {
        return refused;
    }
    if (n == 7 && arg_is(args[3], "SESSION") && arg_is(args[5], "SESSION")) {
        return args_refuse_twice(s, "SESSION");
    }
    if (n > 3 && (n != 5 || !arg_is(args[3], "SESSION"))) {
        return resp_client_refuse(s, "ERR behind the item WHY takes SESSION and its id, got '%.*s'", arg_shown(args[3]),
                                  args[3].data);
    }
    if (n == 5 && !args_check_session(s, args[4], &refused)) {
        return refused;
    }
    struct worker *w = s->conn.worker;
    struct place places[1 + PLACES_MAX];
    struct err err = {0};
    int blocked = n == 5 ? is_blocked(w, args[4], args[2], &err) : 0;
    int found =
        blocked < 0 ? blocked : away_why(s, args[1], args[2], hash_id(w->dedup->seed, args[2]), places + blocked, &err);
    if (found == AWAY) {
        return OUTCOME_AGAIN;
    }
    if (blocked > 0 && found >= 0) {
        places[0] = (struct place){.kind = PLACE_BLOCKED};
        found++;
    }
    if (found < 0) {
        resp_client_write_unread(s, &err);
        return OUTCOME_ANSWERED;
    }
    bool map = s->writer.proto >= 3;
    map ? write_map(&s->writer, (size_t)found) : write_array(&s->writer, (size_t)found);
    for (int i = 0; i < found; i++) {
        char month[MONTH_TEXT];
        write_str(&s->writer, place_name(&places[i], month));
        if (map) {
            write_double(&s->writer, places[i].error);
        }
    }
    return OUTCOME_ANSWERED;
}

static void write_history_month(struct writer *w, const struct history_month *m)
{
    char name[MONTH_TEXT];
    write_map(w, 7);
    write_str(w, "month");
    write_str(w, month_name(m->month, name));
    write_str(w, "items");
    write_int(w, (int64_t)m->items);
    write_str(w, "bytes");
    write_int(w, (int64_t)m->bytes);
    write_str(w, "error");
    write_double(w, m->error);
    write_str(w, "sealed");
    write_int(w, m->sealed);
    write_str(w, "in_window");
    write_int(w, m->in_window);
    write_str(w, "expires");
    write_int(w, m->expires_ms);
}

enum outcome cmd_history(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    enum outcome refused;
    if (!args_check_user(s, args[1], &refused)) {
        return refused;
    }
    struct writer *w = &s->writer;
    struct history h = {0};
    struct err err = {0};
    int known = away_history(s, args[1], &h, &err);
    if (known == AWAY) {
        return OUTCOME_AGAIN;
    }
    if (known < 0) {
        resp_client_write_unread(s, &err);
    } else if (known == 0) {
        write_null(w);
    } else {
        write_map(w, 5);
        write_str(w, "user");
        write_bulk(w, args[1]);
        write_str(w, "months");
        write_array(w, h.n_months);
        for (size_t i = 0; i < h.n_months; i++) {
            write_history_month(w, &h.months[i]);
        }
        write_str(w, "staged");
        write_int(w, (int64_t)h.staged);
        write_str(w, "delivered");
        write_int(w, (int64_t)h.delivered);
        write_str(w, "error");
        write_double(w, h.error);
    }
    return OUTCOME_ANSWERED;
}

enum outcome cmd_months(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct writer *w = &s->writer;
    struct store_month_info months[MONTHS_MAX];
    struct err err = {0};
    int found = asker_months(s->conn.worker->asker, months, MONTHS_MAX, &err);
    if (found < 0) {
        resp_client_write_unread(s, &err);
        return OUTCOME_ANSWERED;
    }
    write_array(w, (size_t)found);
    for (int i = 0; i < found; i++) {
        const struct store_month_info *m = &months[i];
        char name[MONTH_TEXT];
        write_map(w, 7);
        write_str(w, "month");
        write_str(w, month_name(m->month, name));
        write_str(w, "users");
        write_int(w, (int64_t)m->users);
        write_str(w, "plays");
        write_int(w, (int64_t)m->plays);
        write_str(w, "bytes");
        write_int(w, (int64_t)m->bytes);
        write_str(w, "state");
        write_str(w, store_month_state_name(m->state));
        write_str(w, "progress");
        write_double(w, m->progress);
        write_str(w, "in_window");
        write_int(w, m->in_window);
    }
    return OUTCOME_ANSWERED;
}
