/* POLICIES: what hides a candidate, by name, and what each hid. */
#include "resp/command.h"

static void write_policy(struct writer *w, const struct policy *p, const struct policy_count *c)
{
    char text[POLICY_TEXT];
    write_map(w, 7);
    write_str(w, "policy");
    write_str(w, p->name);
    policy_plays_text(p, text);
    write_str(w, "plays");
    write_str(w, text);
    policy_item_text(p, text);
    write_str(w, "item");
    write_str(w, text);
    write_str(w, "questions");
    write_int(w, (int64_t)c->questions);
    write_str(w, "candidates");
    write_int(w, (int64_t)c->candidates);
    write_str(w, "hidden");
    write_int(w, (int64_t)c->hidden);
    write_str(w, "hidden_today");
    write_int(w, (int64_t)c->hidden_today);
}

enum outcome cmd_policies(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    const struct dedup *d = service_dedup(&s->conn);
    const struct policies *all = &config_now(d->cfg)->policies;
    const int64_t now_ms = dedup_stamp(d);
    write_array(&s->writer, all->n);
    for (size_t i = 0; i < all->n; i++) {
        struct policy_count count;
        policy_meter_look(&s->conn.worker->pool->service->policies, &all->list[i], now_ms, &count);
        write_policy(&s->writer, &all->list[i], &count);
    }
    return OUTCOME_ANSWERED;
}
