/* BLOCK, UNBLOCK: scroll sessions (dedup/sessions.h). */
#include "resp/args.h"
#include "resp/command.h"

typedef int64_t change_fn(struct sessions *all, struct slice name, struct session_ids *ids, struct err *err);

static enum outcome change(struct resp_client *s, const struct slice *args, size_t n, change_fn *make)
{
    struct worker *w = s->conn.worker;
    enum outcome refused;
    struct session_ids ids;
    struct err err = {0};
    if (!args_check_session(s, args[1], &refused)) {
        return refused;
    }
    if (n - 2 > ITEMS_MAX) {
        return resp_client_refuse(s, "ERR %zu ids are too many: a command takes at most %d", n - 2, ITEMS_MAX);
    }
    if (session_ids_read(w->dedup->seed, args + 2, n - 2, w->hashes, &ids, &err) < 0) {
        return resp_client_refuse(s, "ERR %s", err.text);
    }
    int64_t changed = make(w->dedup->sessions, args[1], &ids, &err);
    if (changed >= 0) {
        write_int(&s->writer, changed);
        return OUTCOME_ANSWERED;
    }
    return resp_client_refuse(s, "%s %s", err.code == ERR_NOMEM ? "OOM" : "ERR", err.text);
}

enum outcome cmd_block(struct resp_client *s, const struct slice *args, size_t n)
{
    return change(s, args, n, sessions_block);
}

enum outcome cmd_unblock(struct resp_client *s, const struct slice *args, size_t n)
{
    return change(s, args, n, sessions_unblock);
}
