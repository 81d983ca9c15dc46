/* WHY, EXPOSURE, HISTORY, MONTHS, DBSIZE: what is remembered, for people. */
#include "base/calendar.h"
#include "resp/command.h"
#include "store/admin.h"
#include "store/ring.h"

enum { MONTHS_MAX = 512 };

/* What each hides until then; null: as long as it is remembered. */
static void write_places(struct writer *w, const struct request *rq)
{
    write_array(w, rq->n_places);
    for (size_t i = 0; i < rq->n_places; i++) {
        const struct place *p = &rq->places[i];
        char name[PLACE_TEXT];
        write_map(w, 3);
        write_str(w, "place");
        write_bulk(w, place_name(p, name));
        write_pair_double(w, "error", p->error);
        write_str(w, "until");
        if (p->until_ms > 0) {
            write_int(w, p->until_ms);
        } else {
            write_null(w);
        }
    }
}

void write_why(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    (void)s;
    if (rq->policy_name.data != NULL) {
        write_places(w, rq);
        return;
    }
    bool map = w->proto >= 3;
    map ? write_map(w, rq->n_places) : write_array(w, rq->n_places);
    for (size_t i = 0; i < rq->n_places; i++) {
        char name[PLACE_TEXT];
        write_bulk(w, place_name(&rq->places[i], name));
        if (map) {
            write_double(w, rq->places[i].error);
        }
    }
}

void write_exposure(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    (void)s;
    write_array(w, rq->n);
    for (size_t i = 0; i < rq->n; i++) {
        const struct exposed *item = &rq->exposed[i];
        if (item->times == 0) {
            write_null(w);
            continue;
        }
        write_array(w, 2);
        write_int(w, item->times);
        write_int(w, item->age_ms / 1000);
    }
}

static void write_history_month(struct writer *w, const struct history_month *m)
{
    char name[MONTH_TEXT];
    write_map(w, 7);
    write_pair_str(w, "month", month_name(m->month, name));
    write_pair_int(w, "items", (int64_t)m->items);
    write_pair_int(w, "bytes", (int64_t)m->bytes);
    write_pair_double(w, "error", m->error);
    write_pair_int(w, "sealed", m->sealed);
    write_pair_int(w, "in_window", m->in_window);
    write_pair_int(w, "expires", m->expires_ms);
}

void write_history(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    (void)s;
    const struct history *h = rq->history;
    if (h == NULL) {
        write_null(w);
        return;
    }
    write_map(w, 5);
    write_pair_bulk(w, "user", rq->user);
    write_str(w, "months");
    write_array(w, h->n_months);
    for (size_t i = 0; i < h->n_months; i++) {
        write_history_month(w, &h->months[i]);
    }
    write_pair_int(w, "staged", (int64_t)h->staged);
    write_pair_int(w, "delivered", (int64_t)h->delivered);
    write_pair_double(w, "error", h->error);
}

enum outcome cmd_months(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct writer *w = &s->writer;
    struct store_month_info months[MONTHS_MAX];
    struct err err = {0};
    int found = asker_months(service_of(&s->conn)->asker, months, MONTHS_MAX, &err);
    if (found < 0) {
        resp_client_write_unread(s, &err);
        return OUTCOME_ANSWERED;
    }
    write_array(w, (size_t)found);
    for (int i = 0; i < found; i++) {
        const struct store_month_info *m = &months[i];
        char name[MONTH_TEXT];
        write_map(w, m->found_ms > 0 ? 9 : 7);
        write_pair_str(w, "month", month_name(m->month, name));
        write_pair_int(w, "users", (int64_t)m->users);
        write_pair_int(w, "plays", (int64_t)m->plays);
        write_pair_int(w, "bytes", (int64_t)m->bytes);
        write_pair_str(w, "state", store_month_state_name(m->state));
        write_pair_double(w, "progress", m->progress);
        write_pair_int(w, "in_window", m->in_window);
        if (m->found_ms > 0) {
            write_pair_int(w, "found", m->found_ms);
            write_pair_double(w, "coverage", m->coverage);
        }
    }
    return OUTCOME_ANSWERED;
}

/* For Redis's tools, to whom a user is a key. All users are not counted at once; but those of a month, and of a slot,
 * are counted. */
enum outcome cmd_dbsize(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct store_month_info months[MONTHS_MAX];
    struct err err = {0};
    int found = asker_months(service_of(&s->conn)->asker, months, MONTHS_MAX, &err);
    if (found < 0) {
        resp_client_write_unread(s, &err);
        return OUTCOME_ANSWERED;
    }
    uint64_t most = 0;
    for (int i = 0; i < found; i++) {
        most = months[i].users > most ? months[i].users : most;
    }
    struct store *store = service_dedup(&s->conn)->store;
    if (store->ring != NULL) {
        struct store_ring ring;
        store->ring->look(store, &ring);
        for (int i = 0; i < ring.n_slots; i++) {
            most = ring.slots[i].users > most ? ring.slots[i].users : most;
        }
    }
    write_int(&s->writer, (int64_t)most);
    return OUTCOME_ANSWERED;
}
