/* POLICIES: what hides a candidate, by name, and what each hid. */
#include "resp/command.h"

static void write_policy(struct writer *w, const struct policy *p, const struct policy_count *c)
{
    char text[POLICY_TEXT];
    write_map(w, 9);
    write_pair_str(w, "policy", p->name);
    policy_plays_text(p, text);
    write_pair_str(w, "plays", text);
    policy_item_text(p, text);
    write_pair_str(w, "item", text);
    policy_group_text(p, text);
    write_pair_str(w, "group", text);
    write_pair_int(w, "questions", (int64_t)c->questions);
    write_pair_int(w, "candidates", (int64_t)c->candidates);
    write_pair_int(w, "hidden", (int64_t)c->hidden);
    write_pair_int(w, "hidden_today", (int64_t)c->hidden_today);
    write_str(w, "also");
    write_array(w, p->n_also);
    for (size_t i = 0; i < p->n_also; i++) {
        write_map(w, 2);
        write_str(w, "user");
        write_bulk(w, policy_also(p, i));
        write_pair_int(w, "hidden", (int64_t)c->also[i]);
    }
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
