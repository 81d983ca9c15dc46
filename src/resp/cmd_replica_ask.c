/* REPLICA ASK: a question of the primary that this node follows, about hashes, when its own disk is late. */
#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "dedup/role.h"
#include "replica/change.h"
#include "replica/follower.h"
#include "replica/replica.h"
#include "resp/args.h"
#include "resp/command.h"

static void write_answer(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    char error[32];
    snprintf(error, sizeof error, "%.17g", rq->error);
    write_array(w, 3);
    write_int(w, (int64_t)s->ask_to);
    write_str(w, error);
    write_bulk(w, slice_of((const char *)rq->unseen, (rq->n + 7) / 8));
}

/* How far this node has what `node` recorded. What is asked afterwards sees at least that. */
static bool find_place(struct resp_client *s, uint64_t node, enum outcome *refused)
{
    const struct dedup *d = service_dedup(&s->conn);
    struct follower_state f = {.doing = FOLLOWER_OFF};
    if (d->replica != NULL && !role_is_primary(d->role)) {
        follower_look(d->replica->follower, &f);
    }
    if (f.doing == FOLLOWER_OFF || f.doing == FOLLOWER_LOST || f.node != node || f.applied == 0) {
        *refused = resp_client_refuse(s, "ERR this node doesn't follow %016" PRIx64 " now", node);
        return false;
    }
    s->ask_to = f.applied;
    return true;
}

enum outcome cmd_replica_ask(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    uint64_t node;
    enum outcome refused;
    if (!change_read_id(args[2], &node)) {
        return resp_client_refuse(s, "ERR a node is 16 lower-case hex digits, got '%.*s'", arg_shown(args[2]),
                                  args[2].data);
    }
    if (!find_place(s, node, &refused)) {
        return refused;
    }
    struct request rq = {.kind = REQUEST_QUESTION,
                         .form = FORM_BITMAP,
                         .user = args[3],
                         .items = args + 4,
                         .n = args[4].len / HASH_BYTES,
                         .hashed = true,
                         .of_node = true};
    return resp_client_submit(s, &rq, write_answer);
}
