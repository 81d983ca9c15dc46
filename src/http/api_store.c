/* GET /v1/ring, /v1/months: how the store is; /v1/policies: what hides. */
#include <jansson.h>

#include "http/handlers.h"
#include "http/json.h"
#include "store/admin.h"
#include "store/ring.h"

enum { MONTHS_MAX = 512 };

enum http_outcome get_ring(struct http_request *rq)
{
    struct store *store = rq->dedup->store;
    struct store_ring ring;
    struct err err;
    if (store->ring == NULL) {
        store_lacks(store, "ring", &err);
        return http_fail(rq, &err);
    }
    store->ring->look(store, &ring);
    json_t *slots = json_array();
    for (int i = 0; i < ring.n_slots; i++) {
        const struct store_slot *s = &ring.slots[i];
        json_append(&slots,
                    json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "slot", s->slot, "state",
                              store_slot_state_name(s->state), "rows", (json_int_t)s->rows, "users",
                              (json_int_t)s->users, "memory", (json_int_t)s->bytes, "since", (json_int_t)s->since_ms,
                              "retry", (json_int_t)s->retry_ms, "last_error", s->error));
    }
    json_write(&rq->out,
               json_pack("{s:I, s:i, s:I, s:I, s:I, s:b, s:s, s:s, s:o}", "turn", (json_int_t)ring.turn, "open",
                         ring.open, "next_turn", (json_int_t)ring.next_turn_ms, "memory", (json_int_t)ring.memory,
                         "memory_limit", (json_int_t)ring.memory_limit, "writes_refused", ring.busy,
                         "writes_refused_cause", ring.busy ? ring.busy_cause : "", "clock",
                         ring.clock_doubted ? ring.clock_reason : "steady", "slots", slots));
    return HTTP_DONE;
}

enum http_outcome get_months(struct http_request *rq)
{
    struct store_month_info months[MONTHS_MAX];
    struct err err = {0};
    int found = asker_months(rq->asker, months, MONTHS_MAX, &err);
    if (found < 0) {
        return http_fail(rq, &err);
    }
    json_t *list = json_array();
    for (int i = 0; i < found; i++) {
        const struct store_month_info *m = &months[i];
        char name[MONTH_TEXT];
        json_t *month =
            json_pack("{s:s, s:I, s:I, s:I, s:s, s:f, s:b}", "month", month_name(m->month, name), "users",
                      (json_int_t)m->users, "plays", (json_int_t)m->plays, "bytes", (json_int_t)m->bytes, "state",
                      store_month_state_name(m->state), "progress", m->progress, "in_window", m->in_window);
        if (month != NULL && m->found_ms > 0) {
            json_object_set_new(month, "found", json_integer((json_int_t)m->found_ms));
            json_object_set_new(month, "coverage", json_real(m->coverage));
        }
        json_append(&list, month);
    }
    json_write(&rq->out, json_pack("{s:o}", "months", list));
    return HTTP_DONE;
}

static json_t *also_of(const struct policy *p, const struct policy_count *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_also; i++) {
        const struct slice user = policy_also(p, i);
        json_append(&list, json_pack("{s:s%, s:I}", "user", user.data, user.len, "hidden", (json_int_t)c->also[i]));
    }
    return list;
}

enum http_outcome get_policies(struct http_request *rq)
{
    const struct policies *all = &config_now(rq->dedup->cfg)->policies;
    const int64_t now_ms = dedup_stamp(rq->dedup);
    json_t *list = json_array();
    for (size_t i = 0; i < all->n; i++) {
        struct policy_count c;
        char plays[POLICY_TEXT], item[POLICY_TEXT], group[POLICY_TEXT];
        policy_plays_text(&all->list[i], plays);
        policy_item_text(&all->list[i], item);
        policy_group_text(&all->list[i], group);
        policy_meter_look(&rq->pool->service->policies, &all->list[i], now_ms, &c);
        json_append(&list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "policy", all->list[i].name,
                                     "plays", plays, "item", item, "group", group, "questions", (json_int_t)c.questions,
                                     "candidates", (json_int_t)c.candidates, "hidden", (json_int_t)c.hidden,
                                     "hidden_today", (json_int_t)c.hidden_today, "also", also_of(&all->list[i], &c)));
    }
    json_write(&rq->out, json_pack("{s:o}", "policies", list));
    return HTTP_DONE;
}
