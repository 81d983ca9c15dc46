#include "ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/lib/random.h"

static int below(uint64_t *state, int n)
{
    return (int)random_below(state, (uint64_t)n);
}

struct ledger *ledger_new(uint64_t seed)
{
    struct ledger *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (l == MAP_FAILED) {
        perror("mmap");
        abort();
    }
    l->seed = seed;
    return l;
}

void ledger_free(struct ledger *l)
{
    munmap(l, sizeof *l);
}

void ledger_op(const struct ledger *l, int number, struct ledger_op *out)
{
    static const struct {
        int percent;
        enum ledger_kind kind;
    } shares[] = {{52, LEDGER_PLAY}, {10, LEDGER_DELIVER},     {4, LEDGER_FORGET_USER}, {4, LEDGER_FORGET_ITEMS},
                  {3, LEDGER_MERGE}, {3, LEDGER_MERGE_FORGET}, {12, LEDGER_WAIT},       {6, LEDGER_ADVANCE},
                  {4, LEDGER_FLUSH}, {2, LEDGER_RESTART}};
    uint64_t state = l->seed * 1000003 + (uint64_t)number;
    int dice = below(&state, 100);
    size_t k = 0;
    while (dice >= shares[k].percent) {
        dice -= shares[k++].percent;
    }
    out->kind = shares[k].kind;
    out->n_events = out->kind == LEDGER_PLAY || out->kind == LEDGER_DELIVER ? 1 + below(&state, LEDGER_EVENTS) : 1;
    out->ms = below(&state, 3) == 0 ? 24 * 3600 * 1000 : 40 * 60 * 1000;
    for (int i = 0; i < out->n_events; i++) {
        struct ledger_event *e = &out->events[i];
        e->user = below(&state, LEDGER_USERS);
        e->months_ago = below(&state, 4) == 0 ? 1 + below(&state, 2) : 0;
        e->n = 1 + below(&state, LEDGER_EVENT_ITEMS);
        e->into = (e->user + 1 + below(&state, LEDGER_USERS - 1)) % LEDGER_USERS;
        for (int j = 0; j < e->n; j++) {
            e->items[j] = below(&state, LEDGER_ITEMS);
        }
    }
}

static bool names(const struct ledger_op *op, int user, int item)
{
    for (int i = 0; i < op->n_events; i++) {
        const struct ledger_event *e = &op->events[i];
        for (int j = 0; e->user == user && j < e->n; j++) {
            if (e->items[j] == item || op->kind == LEDGER_FORGET_USER) {
                return true;
            }
        }
    }
    return false;
}

/* What may be of one item and each user. */
struct expected {
    bool seen[LEDGER_USERS], unseen[LEDGER_USERS];
};

/* One that was not acknowledged may have come to nothing. */
static void expect_merge(struct expected *e, int from, int into, bool forgets, bool acknowledged)
{
    bool unseen = e->unseen[into] && e->unseen[from];
    e->seen[into] = e->seen[into] || e->seen[from];
    e->unseen[into] = acknowledged ? unseen : e->unseen[into];
    if (forgets) {
        e->seen[from] = e->seen[from] && !acknowledged;
        e->unseen[from] = true;
    }
}

void ledger_expect(const struct ledger *l, int user, int item, bool *may_be_seen, bool *may_be_unseen)
{
    struct expected e;
    for (int u = 0; u < LEDGER_USERS; u++) {
        e.seen[u] = false;
        e.unseen[u] = true;
    }
    for (int i = 0; i < l->handed_in; i++) {
        struct ledger_op op;
        ledger_op(l, i, &op);
        if (op.kind == LEDGER_MERGE || op.kind == LEDGER_MERGE_FORGET) {
            const struct ledger_event *m = &op.events[0];
            expect_merge(&e, m->user, m->into, op.kind == LEDGER_MERGE_FORGET, l->acknowledged[i]);
            continue;
        }
        for (int u = 0; u < LEDGER_USERS && op.kind <= LEDGER_FORGET_ITEMS; u++) {
            if (!names(&op, u, item)) {
                continue;
            }
            bool adds = op.kind == LEDGER_PLAY || op.kind == LEDGER_DELIVER;
            e.seen[u] = adds || (e.seen[u] && !l->acknowledged[i]);
            e.unseen[u] = !adds || (e.unseen[u] && !l->acknowledged[i]);
        }
    }
    *may_be_seen = e.seen[user];
    *may_be_unseen = e.unseen[user];
}
