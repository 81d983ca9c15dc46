/* BLOCK, UNBLOCK: scroll sessions (dedup/sessions.h). */
#include "resp/args.h"
#include "resp/command.h"

/* Reads args[2...] into the worker's scratch memory. */
static uint32_t *read_ids(struct session *s, const struct slice *args, size_t n, enum outcome *refused)
{
    if (n - 2 > ITEMS_MAX) {
        *refused = session_refuse(s, "ERR %zu ids are too many: a command takes at most %d", n - 2, ITEMS_MAX);
        return NULL;
    }
    uint32_t *ids = (uint32_t *)s->conn.worker->hashes;
    for (size_t i = 2; i < n; i++) {
        if (!session_id(args[i], &ids[i - 2])) {
            *refused = session_refuse(s,
                                      "ERR id %zu must be a whole number from 0 to 4294967295, without sign or leading "
                                      "zeros, got '%.*s'",
                                      i - 1, arg_shown(args[i]), args[i].data);
            return NULL;
        }
    }
    return ids;
}

static enum outcome change(struct session *s, const struct slice *args, size_t n,
                           int64_t (*make)(struct sessions *all, struct slice name, uint32_t *ids, size_t n,
                                           struct err *err))
{
    enum outcome refused;
    uint32_t *ids;
    if (!args_check_session(s, args[1], &refused) || (ids = read_ids(s, args, n, &refused)) == NULL) {
        return refused;
    }
    struct err err = {0};
    int64_t changed = make(s->conn.worker->dedup->sessions, args[1], ids, n - 2, &err);
    if (changed >= 0) {
        write_int(&s->writer, changed);
        return OUTCOME_ANSWERED;
    }
    return session_refuse(s, "%s %s", err.code == ERR_NOMEM ? "OOM" : "ERR", err.text);
}

enum outcome cmd_block(struct session *s, const struct slice *args, size_t n)
{
    return change(s, args, n, sessions_block);
}

enum outcome cmd_unblock(struct session *s, const struct slice *args, size_t n)
{
    return change(s, args, n, sessions_unblock);
}
