/* WHY, HISTORY, MONTHS, DBSIZE: what is remembered, for people. */
#include "base/calendar.h"
#include "resp/command.h"
#include "store/admin.h"
#include "store/ring.h"

enum { MONTHS_MAX = 512 };

void write_why(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    (void)s;
    bool map = w->proto >= 3;
    map ? write_map(w, rq->n_places) : write_array(w, rq->n_places);
    for (size_t i = 0; i < rq->n_places; i++) {
        char month[MONTH_TEXT];
        write_str(w, place_name(&rq->places[i], month));
        if (map) {
            write_double(w, rq->places[i].error);
        }
    }
}

static void write_history_month(struct writer *w, const struct history_month *m)
{
    char name[MONTH_TEXT];
    write_map(w, 7);
    write_str(w, "month");
    write_str(w, month_name(m->month, name));
    write_str(w, "items");
    write_int(w, (int64_t)m->items);
    write_str(w, "bytes");
    write_int(w, (int64_t)m->bytes);
    write_str(w, "error");
    write_double(w, m->error);
    write_str(w, "sealed");
    write_int(w, m->sealed);
    write_str(w, "in_window");
    write_int(w, m->in_window);
    write_str(w, "expires");
    write_int(w, m->expires_ms);
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
    write_str(w, "user");
    write_bulk(w, rq->user);
    write_str(w, "months");
    write_array(w, h->n_months);
    for (size_t i = 0; i < h->n_months; i++) {
        write_history_month(w, &h->months[i]);
    }
    write_str(w, "staged");
    write_int(w, (int64_t)h->staged);
    write_str(w, "delivered");
    write_int(w, (int64_t)h->delivered);
    write_str(w, "error");
    write_double(w, h->error);
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
        write_str(w, "month");
        write_str(w, month_name(m->month, name));
        write_str(w, "users");
        write_int(w, (int64_t)m->users);
        write_str(w, "plays");
        write_int(w, (int64_t)m->plays);
        write_str(w, "bytes");
        write_int(w, (int64_t)m->bytes);
        write_str(w, "state");
        write_str(w, store_month_state_name(m->state));
        write_str(w, "progress");
        write_double(w, m->progress);
        write_str(w, "in_window");
        write_int(w, m->in_window);
        if (m->found_ms > 0) {
            write_str(w, "found");
            write_int(w, m->found_ms);
            write_str(w, "coverage");
            write_double(w, m->coverage);
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
