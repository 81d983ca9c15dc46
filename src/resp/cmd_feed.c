/* FEED: who consumes what is recorded here, and how far each is. */
#include "resp/command.h"
#include "store/feed.h"

enum outcome cmd_feed(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct feed_state all[FEED_CONSUMERS_MAX];
    struct writer *w = &s->writer;
    int consumers = feed_look(service_dedup(&s->conn)->store, all);
    write_array(w, (size_t)consumers);
    for (int i = 0; i < consumers; i++) {
        const struct feed_state *c = &all[i];
        const struct writer_number numbers[] = {
            {"since", c->since_ms},         {"listens", c->listens},
            {"cursor", (int64_t)c->cursor}, {"last", (int64_t)c->last},
            {"events", (int64_t)c->events}, {"bytes", (int64_t)c->bytes},
            {"limit", (int64_t)c->limit},   {"behind_ms", c->behind_ms},
            {"lost_since", c->lost_ms},     {"left_out", (int64_t)c->left_out},
        };
        write_map(w, 2 + sizeof numbers / sizeof *numbers);
        write_pair_str(w, "consumer", c->name);
        write_pair_str(w, "state", feed_place_name(c->place));
        write_pair_ints(w, numbers, sizeof numbers / sizeof *numbers);
    }
    return OUTCOME_ANSWERED;
}
