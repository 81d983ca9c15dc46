/* MEMORY: what takes memory, for Redis's tools. INFO memory and /metrics say more. */
#include "resp/args.h"
#include "resp/command.h"
#include "store/ring.h"

static void write_usage(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    (void)s;
    const struct history *h = rq->history;
    if (h == NULL) {
        write_null(w);
        return;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < h->n_months; i++) {
        bytes += h->months[i].bytes;
    }
    write_int(w, (int64_t)bytes);
}

/* MEMORY USAGE user [SAMPLES count]: nothing is sampled, all of it is counted. */
enum outcome cmd_memory_usage(struct resp_client *s, const struct slice *args, size_t n)
{
    int64_t samples;
    if (n != 3 && !(n == 5 && arg_is(args[3], "SAMPLES") && arg_int(args[4], &samples) && samples >= 0)) {
        return resp_client_refuse(s, "ERR syntax error");
    }
    struct request rq = {.kind = REQUEST_HISTORY, .user = args[2], .items = args + n};
    return resp_client_submit(s, &rq, write_usage);
}

enum outcome cmd_memory_stats(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct writer *w = &s->writer;
    struct store *store = service_dedup(&s->conn)->store;
    struct store_ring ring = {0};
    if (store->ring != NULL) {
        store->ring->look(store, &ring);
    }
    struct process_memory memory = process_memory();
    write_map(w, 5);
    write_pair_int(w, "total.allocated", (int64_t)memory.used);
    write_pair_int(w, "clients.normal", (int64_t)budget_used(&s->conn.worker->pool->budget));
    write_pair_int(w, "staged.bytes", (int64_t)ring.memory);
    write_pair_int(w, "rss.bytes", (int64_t)memory.resident);
    write_pair_double(w, "fragmentation", memory.fragmentation);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_memory_doctor(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_text(&s->writer, slice_str("Every part has a bound of its own: staging_memory, request_memory, pool_memory, "
                                     "session_memory, history_memory. INFO memory, ring, pools and sessions say how "
                                     "much of each is taken.\n"));
    return OUTCOME_ANSWERED;
}
