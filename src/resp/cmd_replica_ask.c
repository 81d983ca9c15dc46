/* REPLICA ASK: a question of the primary that this node follows, about hashes, when its own disk is late. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
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

/* The frame of the question: the first month of the window there, and the term of its node. A window or a clock of this
 * node's own would answer another question; and what it has of an earlier term is no answer to a later one. */
static bool read_frame(struct resp_client *s, const struct slice *args, size_t n, int *first_month,
                       enum outcome *refused)
{
    struct store_node now;
    char month[MONTH_TEXT];
    int64_t term;
    if (n == 5) { /* 0.1.0 asks */
        return true;
    }
    snprintf(month, sizeof month, "%.*s", (int)args[5].len, args[5].data);
    if (n != 7 || args[5].len != strlen("2026-09") || (*first_month = month_parse(month)) <= 0) {
        *refused = resp_client_refuse(s, "ERR expected node user hashes first_month term, such as 2026-09 1");
        return false;
    }
    role_look(service_dedup(&s->conn)->role, &now);
    if (!arg_int(args[6], &term) || (uint64_t)term != now.term) {
        *refused = resp_client_refuse(s, "ERR this node follows term %" PRIu64 " now, not %.*s", now.term,
                                      arg_shown(args[6]), args[6].data);
        return false;
    }
    return true;
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
    uint64_t node;
    int first_month = 0;
    enum outcome refused;
    if (!change_read_id(args[2], &node)) {
        return resp_client_refuse(s, "ERR a node is 16 lower-case hex digits, got '%.*s'", arg_shown(args[2]),
                                  args[2].data);
    }
    if (!find_place(s, node, &refused) || !read_frame(s, args, n, &first_month, &refused)) {
        return refused;
    }
    struct request rq = {.kind = REQUEST_QUESTION,
                         .form = FORM_BITMAP,
                         .user = args[3],
                         .items = args + 4,
                         .n = args[4].len / HASH_BYTES,
                         .hashed = true,
                         .of_node = true,
                         .first_month = first_month};
    return resp_client_submit(s, &rq, write_answer);
}
