/* Failover by a lock, src/registry/lease_state.h, against a model of each kind of server: several nodes, and time that
 * the test owns. Requests and answers get lost, or come late, in every place; never do two nodes take writes at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/lease_state.h"
#include "registry/lock.h"

enum { NODES = 3, SESSIONS = 4096, LATE = 8, STEP = 50 };

/* The kind that is modelled; all tests are run for each. */
static const struct lock_kind *kind = &lock_consul;

static bool is_consul(void)
{
    return kind->promises.session;
}

/* --- a server, as documented --- */

struct session {
    bool alive, entry;
    int64_t renewed_ms;
};

struct entry {
    char session[LEASE_SESSION];
    struct lease_rival rival;
};

struct consul {
    struct session sessions[SESSIONS];
    int n;
    uint64_t index; /* of the newest write */
    uint64_t key_index;
    struct lease_value value;
    char holder[LEASE_SESSION];
    unsigned made;      /* keys, so far */
    int64_t free_at_ms; /* the lock delay */
    struct entry entries[NODES];
    uint64_t entry_index;
    int64_t lives_ms; /* how long a session lives without renewal: the TTL at least */
};

static struct session *session_of(struct consul *c, const char *id)
{
    int i = id[0] != '\0' ? atoi(id) : -1;
    return i >= 0 && i < c->n && c->sessions[i].alive ? &c->sessions[i] : NULL;
}

static void end_session(struct consul *c, int i, int64_t now)
{
    char id[LEASE_SESSION];
    snprintf(id, sizeof id, "%d", i);
    c->sessions[i].alive = false;
    if (strcmp(c->holder, id) == 0) {
        c->holder[0] = '\0';
        c->key_index = ++c->index;
        c->free_at_ms = now + LEASE_LOCK_DELAY_MS;
    }
    for (int k = 0; k < NODES; k++) {
        if (strcmp(c->entries[k].session, id) == 0) {
            c->entries[k] = (struct entry){.session = ""};
        }
    }
}

/* As if it were started anew: no session, no key, no lock delay; indexes begin again. */
static void lose_all(struct consul *c)
{
    for (int i = 0; i < c->n; i++) {
        c->sessions[i].alive = false;
    }
    memset(c->entries, 0, sizeof c->entries);
    c->value = (struct lease_value){.node = 0};
    c->holder[0] = '\0';
    c->key_index = c->index = 0;
    c->free_at_ms = 0;
}

/* A copy of the key that was made before takes its place: revisions are given again. */
struct copy {
    uint64_t index, key_index;
    struct lease_value value;
    char holder[LEASE_SESSION];
};

static void consul_time(struct consul *c, int64_t now)
{
    for (int i = 0; i < c->n; i++) {
        if (c->sessions[i].alive && now - c->sessions[i].renewed_ms >= c->lives_ms) {
            end_session(c, i, now);
        }
    }
}

/* A request as it was sent: it may arrive much later than the node has moved on. */
struct request {
    bool sent;
    int64_t until_ms; /* READ: the answer waits so long for the key to change */
    enum lease_ask ask;
    char session[LEASE_SESSION], holder[LEASE_SESSION], mark[LEASE_SESSION];
    uint64_t index, vacancy;
    bool over;
    struct lease_value wanted;
    struct lease_self self;
};

static bool same_text(const struct lease_value *a, const struct lease_value *b)
{
    return a->node == b->node && a->term == b->term && a->in_step == b->in_step && a->beat == b->beat &&
           a->lease_ms == b->lease_ms && a->heir == b->heir && a->next == b->next &&
           strcmp(a->address, b->address) == 0 && a->names.given == b->names.given && a->names.seq == b->names.seq &&
           a->names.n == b->names.n &&
           memcmp(a->names.nodes, b->names.nodes, (size_t)a->names.n * sizeof *a->names.nodes) == 0;
}

/* Whether the key is as it was read. */
static bool is_as_read(const struct consul *c, const struct request *r)
{
    char mark[LEASE_SESSION];
    snprintf(mark, sizeof mark, "%u", c->made);
    return r->index == c->key_index && (r->index == 0 || kind != &lock_etcd || strcmp(c->holder, r->holder) == 0) &&
           (r->index == 0 || kind != &lock_kubernetes || strcmp(mark, r->mark) == 0);
}

static void carry_out(struct consul *c, const struct request *r, int64_t now, struct lease_answer *a)
{
    struct session *s = session_of(c, r->session);
    *a = (struct lease_answer){.said = LEASE_YES};
    switch (r->ask) {
    case LEASE_NEW_SESSION:
    case LEASE_NEW_ENTRY:
        assert_true(r->ask == LEASE_NEW_ENTRY ? kind->promises.expires : kind->promises.session);
        assert_true(c->n < SESSIONS);
        c->sessions[c->n] = (struct session){true, r->ask == LEASE_NEW_ENTRY, now};
        snprintf(a->session, sizeof a->session, "%d", c->n++);
        return;
    case LEASE_RENEW:
        a->said = s != NULL ? LEASE_YES : LEASE_NO;
        if (s != NULL) {
            s->renewed_ms = now;
        }
        return;
    case LEASE_READ:
        a->index = c->key_index;
        a->readable = c->key_index != 0;
        a->value = c->value;
        snprintf(a->session, sizeof a->session, "%s", c->holder);
        snprintf(a->mark, sizeof a->mark, "%u", c->made);
        return;
    case LEASE_LOCK:
        if (!is_as_read(c, r) ||
            (is_consul() &&
             (s == NULL || s->entry || (c->holder[0] != '\0' && strcmp(c->holder, r->session) != 0 && !r->over) ||
              (c->holder[0] == '\0' && now < c->free_at_ms)))) {
            a->said = LEASE_NO;
            return;
        }
        assert_true(r->wanted.term >= c->value.term);                       /* terms never go down, */
        assert_true(r->wanted.heir == 0 || r->wanted.next > c->value.next); /* and each heir has one of its own */
        /* What changes nothing gets no new index, but from etcd. */
        if (kind == &lock_etcd || !same_text(&c->value, &r->wanted) || strcmp(c->holder, r->session) != 0) {
            c->key_index = ++c->index;
        }
        c->made += r->index == 0;
        c->value = r->wanted;
        snprintf(c->holder, sizeof c->holder, "%s", r->session);
        snprintf(a->mark, sizeof a->mark, "%u", c->made);
        a->index = c->key_index;
        return;
    case LEASE_RELEASE:
        a->said = (is_consul() ? s != NULL && strcmp(c->holder, r->session) == 0 : r->index == c->key_index) ? LEASE_YES
                                                                                                             : LEASE_NO;
        if (a->said == LEASE_YES) {
            c->holder[0] = '\0';
            c->key_index = ++c->index;
        }
        return;
    case LEASE_PUBLISH:
        a->said = s != NULL || !kind->promises.expires ? LEASE_YES : LEASE_NO;
        if (a->said == LEASE_YES) {
            struct entry *e = &c->entries[r->self.node - 1];
            snprintf(e->session, sizeof e->session, "%s", r->session);
            e->rival =
                (struct lease_rival){r->self.node, r->self.leader,  r->self.seq,
                                     r->vacancy,   r->self.refuses, kind->promises.expires ? 0 : ++c->entry_index};
        }
        return;
    case LEASE_LIST:
        for (int i = 0; i < NODES; i++) {
            if (c->entries[i].session[0] != '\0') {
                a->rivals[a->n++] = c->entries[i].rival;
            }
        }
        return;
    default:
        fail();
    }
}

/* --- nodes --- */

/* Where a node that is to become primary may be killed. */
enum place { NOWHERE, AT_SESSION, AT_LOCK, AT_FOLDER, AT_KEY, PLACES };

struct node {
    struct lease_state state;
    struct lease_self self;
    bool alive, cut; /* cut: it and Consul don't hear each other */
    bool mute;       /* what it writes to the key never arrives */
    int64_t clock;   /* its monotonic clock began somewhere, */
    int drift;       /* and is so many of a thousand faster */
    int64_t busy_until;
    struct request waiting;
    struct lease_answer answer;
    bool has_answer;
    bool unfit; /* its promotion fails */
    enum place dies_at;
    bool dies_behind; /* what it does there is done */
    int deaths;       /* so often */
    bool steps_down;  /* when it is asked to by who becomes primary: it is fenced */
    bool leads_on;    /* as primary: the others follow it at once */
    int promotions;
};

struct world {
    struct consul consul;
    struct node nodes[NODES];
    struct request late[LATE];
    int64_t now;
    unsigned seed;
    int faults; /* of 100 requests so many go wrong */
    struct copy copy;
    bool counts;    /* an acknowledged write is missed: each replica that the key names has all, and no other */
    uint64_t alone; /* the node that may have acknowledged what no other has; 0: none */
    uint64_t wrote, wrote_term; /* who wrote last */
};

static unsigned draw(struct world *w, unsigned n)
{
    w->seed = w->seed * 1103515245u + 12345u;
    return (w->seed >> 16) % n;
}

/* A new process. */
static void begin_state(struct node *n, enum config_failover failover)
{
    static unsigned processes;
    char own[LEASE_NAME];
    snprintf(own, sizeof own, "%x", ++processes);
    lease_state_begin(&n->state, failover, &kind->promises, own);
}

static struct world *world_new(enum config_failover failover, unsigned seed)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->seed = seed;
    w->now = 1000 * 1000;
    w->consul.lives_ms = LEASE_TTL_MS;
    for (int i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];
        begin_state(n, failover);
        n->clock = 977 * (i + 1);
        n->alive = true;
        n->self = (struct lease_self){.primary = i == 0,
                                      .alone = i == 0,
                                      .node = (uint64_t)i + 1,
                                      .term = 1,
                                      .leader = i == 0 ? 0 : 1,
                                      .seq = 100,
                                      .address = "there:1"};
    }
    return w;
}

static int64_t clock_of(const struct world *w, const struct node *n)
{
    return n->clock + w->now + w->now * n->drift / 1000;
}

static bool writes(const struct world *w, const struct node *n)
{
    return n->alive && n->self.primary && lease_may_write(&n->state, clock_of(w, n));
}

static int writers(const struct world *w)
{
    int count = 0;
    for (int i = 0; i < NODES; i++) {
        count += writes(w, &w->nodes[i]);
    }
    return count;
}

static void finish(struct world *w, struct node *n)
{
    struct lease_self self = n->self;
    lease_look_back(&n->state, &self);
    lease_answered(&n->state, &self, &n->answer, clock_of(w, n));
    if (n->self.primary && lease_is_overruled(&n->state, &n->self)) {
        n->self.primary = false; /* the role is fenced, and rejoins as a replica */
        n->self.term = n->state.value.term;
        n->self.leader = n->state.value.node;
    }
    n->has_answer = false;
}

static void end_process(struct node *n)
{
    n->alive = n->has_answer = n->waiting.sent = false;
    begin_state(n, n->state.failover);
}

static bool dies_here(const struct node *n, enum lease_ask ask)
{
    const struct lease_state *s = &n->state;
    enum place place = ask == LEASE_NEW_SESSION                             ? AT_SESSION
                       : ask == LEASE_LOCK && s->wanted.heir != 0           ? AT_LOCK
                       : ask == LEASE_PROMOTE                               ? AT_FOLDER
                       : ask == LEASE_LOCK && s->value.node != n->self.node ? AT_KEY
                                                                            : NOWHERE;
    return n->deaths > 0 && place != NOWHERE && place == n->dies_at;
}

static void become_primary(struct world *w, struct node *n)
{
    for (int i = 0; i < NODES; i++) {
        struct node *old = &w->nodes[i];
        if (old != n && old->alive && old->steps_down && old->self.primary && old->self.term < n->state.wanted.next) {
            old->self.primary = false;
            old->self.term = n->state.wanted.next;
            old->self.leader = old->self.seq = 0;
            old->self.has_named = true; /* of itself */
            old->self.named_seq = 200;
        } else if (old != n && old->alive && n->leads_on && !old->self.primary) {
            old->self.has_named = true;
            old->self.named_seq = old->self.leader == w->consul.value.node ? old->self.seq : old->self.named_seq;
            old->self.term = n->state.wanted.next;
            old->self.leader = n->self.node;
            old->self.seq = 3; /* of a feed that begins */
        }
    }
    n->self.in_step = n->self.primary && n->self.in_step;
    n->self.primary = true;
    n->self.term = n->state.wanted.next;
    n->promotions++;
}

static void begin(struct world *w, struct node *n)
{
    struct lease_state *s = &n->state;
    struct lease_self self = n->self;
    lease_look_back(s, &self);
    enum lease_ask ask = lease_next(s, &self, clock_of(w, n));
    if (ask == LEASE_REST) {
        assert_true(s->wait_ms >= 0);
        n->busy_until = w->now + (s->wait_ms < STEP ? s->wait_ms : STEP);
        return;
    }
    if (ask == LEASE_PROMOTE && n->unfit) {
        n->answer = (struct lease_answer){.said = LEASE_NO};
        n->has_answer = true;
        n->busy_until = w->now + 20;
        return;
    }
    if (ask == LEASE_PROMOTE) {
        bool dies = dies_here(n, ask);
        if (!dies || n->dies_behind) {
            become_primary(w, n);
        }
        if (dies) {
            n->deaths--;
            end_process(n);
            return;
        }
        n->answer = (struct lease_answer){.said = LEASE_YES};
        n->has_answer = true;
        n->busy_until = w->now + 20;
        return;
    }
    assert_true(ask != LEASE_READ || s->wait_ms == 0 || kind->promises.poll_ms == 0);
    int64_t until_ms = ask == LEASE_READ && s->wait_ms > 0 ? w->now + s->wait_ms + s->wait_ms / 16 : 0;
    struct request r = {.sent = true,
                        .until_ms = until_ms,
                        .ask = ask,
                        .index = s->index,
                        .vacancy = s->vacancy,
                        .over = s->over,
                        .wanted = s->wanted,
                        .self = self};
    snprintf(r.holder, sizeof r.holder, "%s", s->holder);
    snprintf(r.mark, sizeof r.mark, "%s", s->mark);
    r.self.leader = s->unfit ? 0 : r.self.leader;
    r.self.seq = s->unfit ? 0 : r.self.seq;
    if (s->session != NULL) {
        snprintf(r.session, sizeof r.session, "%s", s->session->id);
    }
    if (dies_here(n, ask)) {
        if (n->dies_behind) {
            carry_out(&w->consul, &r, w->now, &n->answer);
        }
        n->deaths--;
        end_process(n);
        return;
    }
    n->answer = (struct lease_answer){.said = LEASE_LOST};
    n->has_answer = true;
    n->busy_until = w->now + 5;
    bool wrong = (int)draw(w, 100) < w->faults;
    unsigned how = wrong ? draw(w, 3) : 3;
    if (n->cut || how == 0 || (n->mute && ask == LEASE_LOCK)) {
        n->busy_until = w->now + 3000; /* it never arrives */
    } else if (how == 1) {
        w->late[draw(w, LATE)] = r; /* it arrives when nobody waits for it any more */
        n->busy_until = w->now + 3000;
    } else if (until_ms != 0 && how == 3) {
        n->waiting = r;
    } else {
        carry_out(&w->consul, &r, w->now, &n->answer);
        if (how == 2) {
            n->answer = (struct lease_answer){.said = LEASE_LOST}; /* its answer is lost */
            n->busy_until = w->now + 3000;
        } else if (draw(w, 4) == 0) {
            n->busy_until = w->now + draw(w, 2000) * (unsigned)(w->faults != 0);
        }
    }
}

/* Consul answers a read that waits. */
static void wait_for_change(struct world *w, struct node *n)
{
    struct request *r = &n->waiting;
    if (r->sent && (w->now >= r->until_ms || r->index != w->consul.key_index)) {
        r->sent = false;
        if (n->cut) {
            n->busy_until = w->now + 3000;
        } else {
            carry_out(&w->consul, r, w->now, &n->answer);
            n->busy_until = w->now + 5;
        }
    }
}

/* What a node has acknowledged while the key named nobody is on that node alone; and whoever writes after another one
 * is of a higher term, or what it writes is fenced. */
static void count_writes(struct world *w)
{
    for (int i = 0; i < NODES; i++) {
        const struct node *n = &w->nodes[i];
        if (!writes(w, n)) {
            continue;
        }
        uint64_t me = n->self.node;
        if (w->alone != 0 && w->alone != me) {
            fail_msg("node %d takes writes without what node %d has acknowledged", i + 1, (int)w->alone);
        }
        if (w->wrote != 0 && w->wrote != me && n->self.term <= w->wrote_term) {
            fail_msg("node %d takes writes in term %d, after one of term %d", i + 1, (int)n->self.term,
                     (int)w->wrote_term);
        }
        w->wrote = me;
        w->wrote_term = n->self.term;
        w->alone = w->consul.value.node == me && w->consul.value.in_step ? 0 : me;
    }
}

static void run(struct world *w, int64_t ms)
{
    for (int64_t end = w->now + ms; w->now < end; w->now += 5) {
        consul_time(&w->consul, w->now);
        for (int i = 0; i < LATE && w->faults != 0; i++) {
            if (w->late[i].sent && draw(w, 400) == 0) {
                struct lease_answer nobodys;
                carry_out(&w->consul, &w->late[i], w->now, &nobodys);
                w->late[i].sent = false;
            }
        }
        for (int i = 0; i < NODES; i++) {
            struct node *n = &w->nodes[i];
            n->waiting.sent = n->waiting.sent && n->alive;
            wait_for_change(w, n);
            if (n->alive && !n->waiting.sent && w->now >= n->busy_until) {
                if (n->has_answer) {
                    finish(w, n);
                } else {
                    begin(w, n);
                }
            }
        }
        if (w->counts) {
            count_writes(w);
        }
        if (writers(w) > 1) {
            fail_msg("two nodes take writes, %" PRId64 " ms after the start", w->now - 1000 * 1000);
        }
    }
}

static void copy_key(struct world *w)
{
    const struct consul *c = &w->consul;
    w->copy = (struct copy){.index = c->index, .key_index = c->key_index, .value = c->value};
    snprintf(w->copy.holder, sizeof w->copy.holder, "%s", c->holder);
}

static void go_back(struct world *w)
{
    struct consul *c = &w->consul;
    const struct copy *old = &w->copy;
    c->index = old->index;
    c->key_index = old->key_index;
    c->value = old->value;
    snprintf(c->holder, sizeof c->holder, "%s", old->holder);
}

static void begins_in_step(struct world *w)
{
    run(w, 1000);
    w->nodes[0].self.in_step = true;
    run(w, 1000);
    assert_true(writes(w, &w->nodes[0]));
    assert_true(w->consul.value.in_step);
}

/* --- tests --- */

static void test_nobody_writes_without_the_lock(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 1);
    w->nodes[0].cut = true;
    run(w, 30 * 1000);
    assert_int_equal(writers(w), 0);
    w->nodes[0].cut = false;
    run(w, 5 * 1000);
    assert_true(writes(w, &w->nodes[0]));
    run(w, 120 * 1000); /* and keeps it */
    assert_true(writes(w, &w->nodes[0]));
    free(w);
}

static void test_stops_in_time(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 2);
    begins_in_step(w);
    w->nodes[0].cut = true;
    run(w, LEASE_TTL_MS - LEASE_MARGIN_MS + STEP);
    assert_int_equal(writers(w), 0);
    w->nodes[0].cut = false;
    run(w, LEASE_TTL_MS + LEASE_LOCK_DELAY_MS + 5000);
    assert_int_equal(writers(w), 1);
    free(w);
}

static void test_in_step_the_furthest_goes_on(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 3);
    w->nodes[1].self.seq = 110;
    begins_in_step(w);
    w->nodes[0].alive = false;
    run(w, LEASE_TTL_MS + LEASE_LOCK_DELAY_MS + 10 * 1000);
    assert_true(writes(w, &w->nodes[1]));
    assert_int_equal(w->nodes[1].self.term, 2);
    assert_int_equal(w->consul.value.node, 2);
    assert_false(w->consul.value.in_step);
    w->nodes[0].alive = true; /* it comes back as the primary it was */
    run(w, 30 * 1000);
    assert_false(w->nodes[0].self.primary);
    assert_true(writes(w, &w->nodes[1]));
    assert_int_equal(w->nodes[2].promotions, 0);
    free(w);
}

/* 10 s after its last renewal, though Consul ends a session after twice its TTL alone. */
static void test_a_silent_primary_is_replaced_soon(void **state)
{
    (void)state;
    int64_t most = 0, least = INT64_MAX;
    for (unsigned seed = 0; seed < 40; seed++) {
        struct world *w = world_new(FAILOVER_IN_STEP, seed);
        w->consul.lives_ms = INT64_C(2) * LEASE_TTL_MS;
        begins_in_step(w);
        run(w, 5 * 1000 + 97 * seed);
        w->nodes[0].alive = seed % 2;
        w->nodes[0].cut = true;
        int64_t began = w->now;
        while (!writes(w, &w->nodes[1]) && !writes(w, &w->nodes[2]) && w->now < began + 30 * 1000) {
            run(w, STEP);
        }
        most = w->now - began > most ? w->now - began : most;
        least = w->now - began < least ? w->now - began : least;
        assert_int_equal(writers(w), 1);
        w->nodes[0].alive = true;
        w->nodes[0].cut = false;
        run(w, 60 * 1000);
        assert_int_equal(writers(w), 1);
        assert_false(w->nodes[0].self.primary);
        free(w);
    }
    assert_in_range(least, LEASE_TTL_MS - LEASE_RENEW_MS - 100,
                    LEASE_TTL_MS - LEASE_RENEW_MS + 500 + kind->promises.poll_ms);
    assert_in_range(most, LEASE_TTL_MS - 500, LEASE_TTL_MS + 300 + kind->promises.poll_ms);
}

/* Consul gives no new index to a write that changes nothing, and so a renewal changes something. */
static void test_an_idle_primary_is_not_silent(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 12);
    begins_in_step(w);
    run(w, 120 * 1000);
    assert_true(writes(w, &w->nodes[0]));
    assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 0);
    free(w);
}

/* A write that got no new index has renewed nothing, whatever Consul says. */
static void test_a_renewal_has_a_new_index(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 13);
    struct node *n = &w->nodes[0];
    begins_in_step(w);
    int64_t until_ms = n->state.until_ms;
    do {
        n->state.retry_ms = 0;
        w->now += LEASE_RENEW_MS;
    } while (lease_next(&n->state, &n->self, clock_of(w, n)) == LEASE_REST);
    assert_int_equal(n->state.asked, LEASE_RENEW);
    n->answer = (struct lease_answer){.said = LEASE_YES};
    finish(w, n);
    assert_int_equal(lease_next(&n->state, &n->self, clock_of(w, n)), LEASE_LOCK);
    n->answer.index = n->state.index;
    finish(w, n);
    assert_int_equal(n->state.until_ms, until_ms);
    free(w);
}

/* Everybody waits for a Consul that is away, for a moment or for long: the primary goes on. */
static void test_an_outage_of_consul_replaces_nobody(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 60; seed++) {
        struct world *w = world_new(seed % 3 == 0 ? FAILOVER_LOSSY : FAILOVER_IN_STEP, seed);
        w->consul.lives_ms = INT64_C(3600) * 1000; /* it counts from when it is back */
        begins_in_step(w);
        run(w, 5 * 1000 + 97 * seed);
        for (int i = 0; i < NODES; i++) {
            w->nodes[i].cut = true;
        }
        run(w, 6000 + 350 * seed);
        for (int i = 0; i < NODES; i++) {
            w->nodes[i].cut = false;
        }
        run(w, 30 * 1000);
        assert_true(writes(w, &w->nodes[0]));
        assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 0);
        free(w);
    }
}

/* The lock delay is lost with the key. Who had the lock takes it again at once; an old primary that was never told of
 * that one waits until it has ended for certain, and then there is one again. */
static void test_a_consul_that_loses_all(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 40; seed++) {
        struct world *w = world_new(FAILOVER_IN_STEP, seed);
        w->consul.lives_ms = INT64_C(2) * LEASE_TTL_MS;
        w->nodes[0].self.alone = false;
        w->consul.value = (struct lease_value){.node = 1, .term = 1, .beat = 1, .lease_ms = LEASE_MS, .in_step = true};
        w->consul.key_index = ++w->consul.index;
        begins_in_step(w);
        run(w, 1000 + 97 * seed);
        w->nodes[0].cut = true;
        run(w, 20 * 1000);
        struct node *now = writes(w, &w->nodes[1]) ? &w->nodes[1] : &w->nodes[2];
        assert_true(writes(w, now));
        now->cut = seed % 2;
        w->nodes[0].cut = false;
        if (seed % 4 < 2) {
            begin_state(&w->nodes[0], FAILOVER_IN_STEP); /* a new process */
            w->nodes[0].has_answer = w->nodes[0].waiting.sent = false;
        }
        lose_all(&w->consul);
        run(w, 1000);
        assert_false(writes(w, &w->nodes[0]));
        assert_true(writes(w, now));
        run(w, 30 * 1000);
        assert_int_equal(writers(w), 1);
        assert_true(writes(w, seed % 2 ? &w->nodes[0] : now));
        free(w);
    }
}

/* An index that was seen long ago says nothing of another session, which a Consul without its data has given it to. */
static void test_another_session_is_another_holder(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 11);
    w->consul.lives_ms = 60 * 1000;
    begins_in_step(w);
    w->nodes[0].alive = false;
    run(w, LEASE_MS - 500);
    snprintf(w->consul.holder, sizeof w->consul.holder, "%s", w->consul.entries[1].session); /* any other that lives */
    run(w, LEASE_TTL_MS - 1000);
    assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 0);
    run(w, 6000);
    assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 1);
    free(w);
}

/* A key of an older version isn't taken over: its primary renews the session alone. */
static void test_an_older_primary_is_not_silent(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 10);
    begins_in_step(w);
    w->nodes[0].alive = false;
    w->consul.value.lease_ms = 0;
    w->consul.key_index = ++w->consul.index;
    w->consul.lives_ms = 60 * 1000;
    run(w, 50 * 1000);
    assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 0);
    run(w, 30 * 1000);
    assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 1);
    free(w);
}

/* Whom the key doesn't name waits, and so does who has not reached its seq, also when the others are away. */
static void test_only_those_that_have_all(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 9);
    struct lease_names *names = &w->nodes[0].self.names;
    *names = (struct lease_names){.given = true, .n = 1, .nodes = {2}, .seq = 100};
    w->nodes[2].self.seq = 110;
    begins_in_step(w);
    assert_int_equal(w->consul.value.names.n, 1);
    w->nodes[0].alive = w->nodes[1].alive = false;
    run(w, 120 * 1000);
    assert_int_equal(w->nodes[2].promotions, 0);
    assert_non_null(strstr(w->nodes[2].state.why, "lacks some"));
    w->nodes[1].alive = true;
    w->nodes[1].self.seq = 99; /* its folder went back */
    run(w, 30 * 1000);
    assert_int_equal(w->nodes[1].promotions, 0);
    w->nodes[1].self.seq = 100;
    run(w, 30 * 1000);
    assert_true(writes(w, &w->nodes[1]));
    assert_false(w->consul.value.in_step);
    free(w);
}

static void test_out_of_step_nobody(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 4);
    begins_in_step(w);
    w->nodes[0].self.in_step = false;
    run(w, 100);
    assert_true(lease_is_recorded(&w->nodes[0].state, &w->nodes[0].self));
    w->nodes[0].alive = false;
    run(w, 120 * 1000);
    assert_int_equal(w->nodes[1].promotions + w->nodes[2].promotions, 0);
    assert_non_null(strstr(w->nodes[1].state.why, "out of step"));
    w->nodes[0].alive = true; /* until it is back */
    run(w, 30 * 1000);
    assert_true(writes(w, &w->nodes[0]));
    assert_false(w->consul.value.in_step);
    free(w);
}

static void test_lossy_somebody_all_the_same(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_LOSSY, 5);
    run(w, 3000);
    assert_false(w->consul.value.in_step);
    w->nodes[2].cut = true;
    w->nodes[0].alive = false;
    run(w, 120 * 1000);
    assert_true(writes(w, &w->nodes[1]));
    free(w);
}

/* Its disk is full: another one takes over; and if there is none, the primary goes on when it is back. */
static void test_who_cant_become_primary_leaves_it_to_others(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct world *w = world_new(FAILOVER_IN_STEP, 15);
        w->nodes[1].self.seq = 110;
        w->nodes[1].unfit = true;
        w->nodes[2].unfit = others == 0;
        w->consul.lives_ms = INT64_C(2) * LEASE_TTL_MS; /* no lock delay */
        begins_in_step(w);
        w->nodes[0].alive = false;
        run(w, 18 * 1000); /* it doesn't keep the lock until another one takes it over */
        assert_true(others == 0 || writes(w, &w->nodes[2]));
        run(w, 22 * 1000);
        assert_int_equal(w->nodes[1].promotions, 0);
        if (others == 0) {
            w->nodes[0].alive = true; /* a new process */
            begin_state(&w->nodes[0], FAILOVER_IN_STEP);
            run(w, 30 * 1000);
            assert_true(writes(w, &w->nodes[0]));
            assert_true(w->consul.value.in_step);
        } else {
            assert_true(writes(w, &w->nodes[2]));
        }
        free(w);
    }
}

/* The one whose disk is full, though its node is higher and it is further: the other leads; alone it does. */
static void test_one_that_refuses_plays_comes_last(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        bool lossy = i & 1, further = i & 2, alone = i & 4, other_lags = i & 8, both = i & 16;
        struct world *w = world_new(lossy ? FAILOVER_LOSSY : FAILOVER_IN_STEP, i);
        struct node *other = &w->nodes[i & 32 ? 2 : 1], *full = &w->nodes[i & 32 ? 1 : 2];
        w->consul.lives_ms = INT64_C(2) * LEASE_TTL_MS;
        full->self.refuses = true;
        other->self.refuses = both;
        full->self.seq = further ? 110 : 100;
        w->nodes[0].self.names = (struct lease_names){.given = true, .n = 2, .nodes = {2, 3}, .seq = 100};
        begins_in_step(w);
        other->self.seq = other_lags ? 99 : 100; /* its folder went back */
        run(w, LEASE_PUBLISH_MS);
        if (alone) {
            end_process(other);
            run(w, 3 * LEASE_TTL_MS); /* and what it has published has ended */
        }
        end_process(&w->nodes[0]);
        run(w, kind->promises.expires ? 20 * 1000 : 35 * 1000); /* what the other has published may be there still */
        bool full_leads =
            alone || other_lags || (further && (lossy || both)) || (both && full->self.node > other->self.node);
        if (!writes(w, full_leads ? full : other)) {
            fail_msg("course %u: node %d was to lead", i, (int)(full_leads ? full : other)->self.node);
        }
        free(w);
    }
}

/* Its folder is of an earlier term than the key that it has written. */
static void test_no_term_goes_down(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_LOSSY, 14);
    w->consul.value = (struct lease_value){.node = 1, .term = 5, .beat = 1, .address = "there:1"};
    w->consul.key_index = ++w->consul.index;
    run(w, 10 * 1000);
    assert_true(writes(w, &w->nodes[0]));
    assert_int_equal(w->nodes[0].self.term, 6);
    assert_int_equal(w->consul.value.term, 6);
    free(w);
}

/* Who is there, in which order, after the winner has died on its way. */
enum { COMES_WINNER = 1, COMES_OLD = 2 };
static const int comes[][2] = {{0, 0},
                               {COMES_WINNER, 0},
                               {COMES_OLD, 0},
                               {COMES_OLD, COMES_WINNER},
                               {COMES_WINNER, COMES_OLD},
                               {COMES_WINNER | COMES_OLD, 0}};

static void come_back(struct world *w, int who)
{
    for (int i = 0; i < 2; i++) {
        struct node *n = &w->nodes[i];
        if (who & (i == 0 ? COMES_OLD : COMES_WINNER)) {
            n->cut = false;
            n->alive = true;
        }
    }
    run(w, who != 0 ? 40 * 1000 : 0);
}

struct course {
    enum place place;
    bool behind, third, lives_long, steps_down, leads_on;
    int deaths, order;
};

static void winner_dies(const struct course *c)
{
    struct world *w = world_new(FAILOVER_IN_STEP, 16);
    struct node *old = &w->nodes[0], *winner = &w->nodes[1], *third = &w->nodes[2];
    w->counts = true;
    w->consul.lives_ms = c->lives_long ? INT64_C(2) * LEASE_TTL_MS : LEASE_TTL_MS;
    winner->self.seq = 110; /* the furthest */
    begins_in_step(w);
    run(w, 5000);
    third->alive = c->third;
    run(w, c->third ? 0 : 25 * 1000); /* what it has published ends with its session */
    winner->dies_at = c->place;
    winner->dies_behind = c->behind;
    winner->deaths = c->deaths;
    old->steps_down = c->steps_down;
    winner->leads_on = c->leads_on;
    old->cut = true;
    if (!c->steps_down) {
        end_process(old);
    }
    for (int i = 0; i < 1200 && winner->deaths > 0; i++) {
        winner->alive = true; /* its supervisor */
        run(w, STEP);
    }
    if (winner->deaths > 0) {
        /* Its folder is the primary's already, or another one was quicker. */
        assert_true(c->deaths == 2);
        winner->deaths = 0;
        end_process(winner);
    }
    assert_false(winner->alive);
    bool led = w->consul.value.node == winner->self.node;
    run(w, 40 * 1000);
    int there = c->third ? 4 : 0;
    for (int i = 0; i < 2; i++) {
        come_back(w, comes[c->order][i]);
        there |= comes[c->order][i];
    }
    run(w, 20 * 1000);
    bool can = led ? (there & COMES_WINNER) : there;
    if (writers(w) != (can ? 1 : 0) || (can && led && w->wrote != winner->self.node)) {
        fail_msg("place %d behind %d third %d long %d down %d on %d deaths %d order %d: %d take writes; %s; %s; %s",
                 c->place, c->behind, c->third, c->lives_long, c->steps_down, c->leads_on, c->deaths, c->order,
                 writers(w), old->state.why ? old->state.why : "-", winner->state.why ? winner->state.why : "-",
                 third->state.why ? third->state.why : "-");
    }
    int primaries = 0;
    for (int i = 0; i < NODES && can; i++) {
        primaries += w->nodes[i].alive && w->nodes[i].self.primary;
    }
    assert_int_equal(primaries, can ? 1 : 0);
    free(w);
}

/* It is killed at each step on its way to be the primary, once and twice, and is back after a moment, after the old
 * primary, or never: if it can have acknowledged nothing, whoever is there goes on, else it alone. */
static void test_a_winner_that_dies(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4u * 64 * 6; i++) {
        if (i % 4 == 0 && !is_consul()) {
            continue; /* there are no sessions */
        }
        const struct course c = {.place = (enum place)(AT_SESSION + i % 4),
                                 .behind = i >> 2 & 1,
                                 .third = i >> 3 & 1,
                                 .lives_long = i >> 4 & 1,
                                 .steps_down = i >> 5 & 1,
                                 .leads_on = i >> 6 & 1,
                                 .deaths = 1 + (i >> 7 & 1),
                                 .order = (int)(i >> 8)};
        winner_dies(&c);
    }
}

/* The winner's folder is a primary's, and it died before the key was. The old primary, on its way above that, hears of
 * it, and is fenced, or its disk is full: it lets the lock go. An old primary that is only fenced leads all the same,
 * since the winner has acknowledged nothing, and is not there; else the winner does, when it is back. */
static void test_an_old_primary_that_is_fenced_on_its_way(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        struct world *w = world_new(FAILOVER_IN_STEP, 17);
        struct node *old = &w->nodes[0], *winner = &w->nodes[1];
        w->counts = true;
        w->nodes[2].alive = false;
        begins_in_step(w);
        winner->dies_at = AT_FOLDER;
        winner->dies_behind = true;
        winner->deaths = 1;
        end_process(old);
        run(w, 20 * 1000);
        assert_false(winner->alive);
        assert_true(winner->self.primary);
        assert_int_equal(w->consul.value.heir, 2);
        assert_int_equal(w->consul.value.node, 1);
        assert_true(w->consul.value.in_step);
        old->alive = true;
        old->unfit = full != 0;
        for (int i = 0; i < 20 * 1000 && w->consul.value.heir != 1; i += 5) {
            run(w, 5);
        }
        assert_int_equal(w->consul.value.heir, 1);
        assert_int_equal(w->consul.value.next, 3);
        if (!full) {
            old->self.primary = false;
            old->self.term = 2;
            old->self.leader = old->self.seq = 0;
            old->self.has_named = true;
            old->self.named_seq = 200;
            old->has_answer = false;
        }
        run(w, full || kind->promises.expires ? 5 * 1000
                                              : 20 * 1000); /* what the winner has published may be there still */
        assert_int_equal(old->promotions, full ? 0 : 1);
        winner->alive = true;
        run(w, 5 * 1000);
        assert_true(writes(w, full ? winner : old));
        assert_int_equal((full ? winner : old)->self.term, 4);
        assert_int_equal(w->consul.value.heir, 0);
        free(w);
    }
}

/* The winner has led the third on, and is gone for good, before the key was its own. The third goes on by what it has
 * of the old primary, if that is all that was acknowledged; its folder may have gone back. */
static void test_led_on_by_a_winner_that_dies(void **state)
{
    (void)state;
    static const struct {
        bool has_named, may;
        uint64_t named_seq;
    } courses[] = {{true, true, 100}, {true, false, 99}, {false, false, 100}};
    for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
        struct world *w = world_new(FAILOVER_IN_STEP, 19);
        struct node *winner = &w->nodes[1], *third = &w->nodes[2];
        w->counts = true;
        w->nodes[0].self.names = (struct lease_names){.given = true, .n = 2, .nodes = {2, 3}, .seq = 100};
        winner->self.seq = 110;
        begins_in_step(w);
        winner->dies_at = AT_FOLDER;
        winner->dies_behind = winner->leads_on = true;
        winner->deaths = 1;
        end_process(&w->nodes[0]);
        while (winner->alive) {
            run(w, STEP);
        }
        assert_int_equal(third->self.leader, 2);
        end_process(third); /* it dies, too, and is back */
        third->alive = true;
        third->self.has_named = courses[i].has_named;
        third->self.named_seq = courses[i].named_seq;
        run(w, 40 * 1000);
        assert_int_equal(writers(w), courses[i].may ? 1 : 0);
        assert_true(!courses[i].may || (writes(w, third) && third->self.term == 3));
        winner->alive = true;
        run(w, 40 * 1000);
        assert_true(writes(w, courses[i].may ? third : winner));
        free(w);
    }
}

/* By hand, while another one was on its way to the same term, and may be a primary of that: it goes above. */
static void test_promoted_by_hand_beside_an_heir(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 18);
    struct node *by_hand = &w->nodes[1], *winner = &w->nodes[2];
    w->counts = true;
    winner->self.seq = 110;
    begins_in_step(w);
    winner->dies_at = AT_FOLDER;
    winner->dies_behind = true;
    winner->deaths = 1;
    end_process(&w->nodes[0]);
    while (winner->alive) {
        run(w, STEP);
    }
    by_hand->self.primary = true;
    by_hand->self.term = winner->self.term;
    run(w, 30 * 1000);
    assert_true(writes(w, by_hand));
    assert_int_equal(by_hand->self.term, winner->self.term + 1);
    end_process(by_hand);
    winner->alive = true;
    run(w, 40 * 1000);
    assert_false(winner->self.primary);
    assert_int_equal(writers(w), 0); /* what the other one has acknowledged is there alone */
    free(w);
}

static void test_waits_for_a_replica_that_may_be_further(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 6);
    begins_in_step(w);
    run(w, 8000);
    w->nodes[0].alive = false;
    run(w, is_consul() ? 9000 : 3000);      /* before it can take the lock */
    w->consul.entries[2].rival.vacancy = 1; /* it has published before, and now it can't */
    w->consul.sessions[atoi(w->consul.entries[2].session)].renewed_ms += 60 * 1000;
    w->nodes[2].cut = true;
    run(w, 30 * 1000);
    assert_int_equal(w->nodes[1].promotions, 0);
    run(w, 60 * 1000); /* its session ends, and with it what it has published */
    assert_true(writes(w, &w->nodes[1]));
    free(w);
}

/* A session that something else than time ends (the check of its node): the lock delay covers that. */
static void test_a_session_that_ends_early(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 7);
    begins_in_step(w);
    for (int round = 0; round < 20; round++) {
        int64_t first = w->now;
        end_session(&w->consul, atoi(w->consul.holder), w->now);
        w->nodes[0].cut = round % 2 == 0;
        run(w, LEASE_TTL_MS);
        assert_int_equal(writers(w), 0);
        w->nodes[0].cut = false;
        run(w, 40 * 1000 + 370 * round);
        assert_int_equal(writers(w), 1);
        assert_true(w->now > first);
    }
    free(w);
}

/* Lost and late requests and answers, nodes that are cut off, die and come back, sessions that end: any order. */
static void test_never_two(void **state)
{
    (void)state;
    int failovers = 0, wrote = 0;
    for (unsigned seed = 1; seed <= 240; seed++) {
        struct world *w = world_new(seed % 3 == 0 ? FAILOVER_LOSSY : FAILOVER_IN_STEP, seed);
        w->counts = seed % 3 == 1;
        w->consul.lives_ms = LEASE_TTL_MS + draw(w, LEASE_TTL_MS); /* twice the TTL, as Consul may */
        w->nodes[0].self.alone = false;
        w->faults = 15;
        for (int i = 0; i < NODES; i++) {
            w->nodes[i].drift = (int)draw(w, 200) - 100; /* a clock counts 7.5 s while another counts 9.2 */
        }
        for (int i = 0; i < 60; i++) {
            struct node *n = &w->nodes[draw(w, NODES)];
            n->unfit = draw(w, 4) == 0;
            n->dies_at = (enum place)draw(w, PLACES);
            n->dies_behind = draw(w, 2) == 0;
            n->deaths = (int)draw(w, 3);
            switch (draw(w, 8)) {
            case 7:
                if (!w->counts) {
                    lose_all(&w->consul);
                }
                break;
            case 0:
                n->cut = !n->cut;
                break;
            case 1: /* a new process, with nothing in memory */
                n->alive = true;
                n->has_answer = n->waiting.sent = false;
                begin_state(n, n->state.failover);
                break;
            case 2:
                n->alive = draw(w, 2) == 0;
                break;
            case 3:
                n->self.in_step = draw(w, 2) == 0;
                break;
            case 4:
                if (is_consul() && session_of(&w->consul, w->consul.holder) != NULL) {
                    end_session(&w->consul, atoi(w->consul.holder), w->now);
                }
                break;
            default:
                n->cut = false;
                n->alive = true;
            }
            run(w, 200 + draw(w, 9000));
            wrote += writers(w);
        }
        for (int i = 0; i < NODES; i++) {
            failovers += w->nodes[i].promotions;
        }
        free(w);
    }
    assert_true(failovers > 20);
    assert_true(wrote > 500);
}

/* Etcd and Kubernetes, without the data that they had, give revisions again, and the holder is who it was: a replica
 * that has seen both before must not count from then. */
static void test_a_server_that_gives_indexes_again(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        struct world *w = world_new(FAILOVER_IN_STEP, 19);
        struct node *old = &w->nodes[0];
        begins_in_step(w);
        copy_key(w);
        uint64_t seen = w->consul.key_index;
        while (back && w->consul.key_index == seen) {
            run(w, 5);
        }
        seen = w->consul.key_index;
        run(w, LEASE_RENEW_MS - 500); /* all have seen it */
        w->nodes[1].cut = w->nodes[2].cut = true;
        run(w, 2000);
        if (back) {
            go_back(w);
        } else {
            lose_all(&w->consul);
        }
        for (int i = 0; i < 20 * 1000 && w->consul.key_index != seen; i++) {
            run(w, 5);
        }
        assert_int_equal(w->consul.key_index, seen);
        run(w, 10);
        assert_true(writes(w, old));
        for (int i = 1; i < NODES; i++) {
            w->nodes[i].cut = false;
            w->nodes[i].busy_until = w->now; /* it asks at once */
        }
        old->cut = true;
        run(w, 30 * 1000); /* in which never two take writes */
        assert_int_equal(writers(w), 1);
        free(w);
    }
}

/* The write of the key is the renewal: that all else is answered renews nothing. */
static void test_renewals_that_never_arrive(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 21);
    w->consul.lives_ms = 60 * 1000;
    begins_in_step(w);
    run(w, 5000);
    w->nodes[0].mute = true;
    run(w, LEASE_MS + STEP);
    assert_false(writes(w, &w->nodes[0]));
    run(w, 10 * 1000);
    assert_int_equal(writers(w), 1);
    free(w);
}

/* A replica's request for the lock comes when the server has lost its data, and its index is given again. */
static void test_a_late_takeover_of_another_key(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 22);
    struct node *old = &w->nodes[0], *winner = &w->nodes[1];
    struct lease_answer nobodys;
    winner->self.seq = 110;
    begins_in_step(w);
    old->cut = true;
    while (winner->state.asked != LEASE_LOCK) {
        winner->mute = true;
        run(w, 5);
    }
    struct request late = {.sent = true,
                           .ask = LEASE_LOCK,
                           .index = winner->state.index,
                           .over = winner->state.over,
                           .wanted = winner->state.wanted,
                           .self = winner->self};
    snprintf(late.session, sizeof late.session, "%s", winner->state.lock.id);
    snprintf(late.holder, sizeof late.holder, "%s", winner->state.holder);
    snprintf(late.mark, sizeof late.mark, "%s", winner->state.mark);
    w->nodes[1].cut = w->nodes[2].cut = true;
    lose_all(&w->consul);
    old->cut = false;
    for (int i = 0; i < 20 * 1000 && w->consul.key_index != late.index; i++) {
        run(w, 5);
    }
    assert_int_equal(w->consul.key_index, late.index);
    carry_out(&w->consul, &late, w->now, &nobodys);
    assert_int_equal(nobodys.said, LEASE_NO);
    free(w);
}

/* Where entries stay, one that no longer changes is that of a replica that is no more. */
static void test_an_entry_that_stays(void **state)
{
    (void)state;
    for (int published = 0; published < 2; published++) {
        struct world *w = world_new(FAILOVER_IN_STEP, 20);
        begins_in_step(w);
        run(w, 8000);
        end_process(&w->nodes[0]);
        const struct lease_rival *other = &w->consul.entries[2].rival;
        for (int i = 0; i < LEASE_TTL_MS && published && other->vacancy != w->consul.key_index; i += 5) {
            run(w, 5);
        }
        end_process(&w->nodes[2]);
        assert_int_equal(other->vacancy == w->consul.key_index, published);
        run(w, LEASE_TTL_MS);
        assert_int_equal(w->nodes[1].promotions, 0);
        run(w, LEASE_TTL_MS + 3000);
        assert_true(writes(w, &w->nodes[1]));
        free(w);
    }
}

/* A record "in step" that was lost arrives after "out of step" was acknowledged: it must change nothing. */
static void test_a_late_record_changes_nothing(void **state)
{
    (void)state;
    struct world *w = world_new(FAILOVER_IN_STEP, 8);
    run(w, 2000);
    struct node *n = &w->nodes[0];
    n->self.in_step = true;
    assert_int_equal(lease_next(&n->state, &n->self, clock_of(w, n)), LEASE_LOCK);
    struct request late = {.sent = true,
                           .ask = LEASE_LOCK,
                           .index = n->state.index,
                           .over = n->state.over,
                           .wanted = n->state.wanted,
                           .self = n->self};
    snprintf(late.session, sizeof late.session, "%s", n->state.lock.id);
    assert_true(late.wanted.in_step);
    n->answer = (struct lease_answer){.said = LEASE_LOST};
    finish(w, n);
    n->self.in_step = false;
    assert_false(lease_is_recorded(&n->state, &n->self)); /* it isn't known */
    struct lease_answer nobodys;
    n->self.in_step = true;
    run(w, 3000);
    n->self.in_step = false;
    run(w, 3000);
    assert_true(lease_is_recorded(&n->state, &n->self));
    carry_out(&w->consul, &late, w->now, &nobodys);
    assert_int_equal(nobodys.said, LEASE_NO);
    assert_false(w->consul.value.in_step);
    free(w);
}

static const struct lock_group group = {.name = "unseen", .space = "films"};

static void test_wire(void **state)
{
    (void)state;
    struct lease_state s;
    struct lease_self self = {.primary = true, .alone = true, .node = 0xab, .term = 7, .address = "h:1"};
    struct lock_request request;
    struct lease_answer a;
    struct err err = {0};
    lease_state_begin(&s, FAILOVER_IN_STEP, &lock_consul.promises, "");
    assert_int_equal(lease_next(&s, &self, 1), LEASE_NEW_SESSION);
    assert_int_equal(lock_request(&lock_consul, &s, &self, &group, &request, &err), 0);
    assert_string_equal(request.path, "/v1/session/create");
    assert_string_equal(request.body,
                        "{\"Name\":\"unseen unseen 00000000000000ab\",\"TTL\":\"10s\",\"LockDelay\":\"10s\","
                        "\"Behavior\":\"release\"}");
    free(request.body);
    static const char made[] = "{ \"ID\": \"a0707677-6f4a-1311-4736-037a03b1d9d0\" }";
    lock_reply(&lock_consul, &s, 500, (struct slice){made, sizeof made - 1}, &a, &err);
    assert_int_equal(a.said, LEASE_LOST);
    lock_reply(&lock_consul, &s, 200, (struct slice){made, sizeof made - 1}, &a, &err);
    assert_int_equal(a.said, LEASE_YES);
    lease_answered(&s, &self, &a, 2);
    assert_int_equal(lease_next(&s, &self, 3), LEASE_READ);
    lock_reply(&lock_consul, &s, 404, (struct slice){"", 0}, &a, &err);
    lease_answered(&s, &self, &a, 4);
    assert_int_equal(lease_next(&s, &self, 5), LEASE_LOCK);
    assert_int_equal(lock_request(&lock_consul, &s, &self, &group, &request, &err), 0);
    assert_string_equal(request.path, "/v1/txn");
    assert_non_null(strstr(request.body, "\"Verb\":\"cas\""));
    free(request.body);
    static const char locked[] = "{\"Results\":[{\"KV\":{\"ModifyIndex\":17}},{\"KV\":{\"ModifyIndex\":17}}]}";
    lock_reply(&lock_consul, &s, 409, (struct slice){"{}", 2}, &a, &err);
    assert_int_equal(a.said, LEASE_NO);
    lock_reply(&lock_consul, &s, 200, (struct slice){locked, sizeof locked - 1}, &a, &err);
    lease_answered(&s, &self, &a, 6);
    assert_int_equal(s.value.beat, 1);
    assert_true(lease_may_write(&s, 1 + LEASE_TTL_MS - LEASE_MARGIN_MS - 1));
    assert_false(lease_may_write(&s, 1 + LEASE_TTL_MS - LEASE_MARGIN_MS)); /* from before the session was asked for */
    static const char *const strange[] = {"", "[]", "[{}]", "{", "[{\"ModifyIndex\":3,\"Session\":\"../x\"}]"};
    s.asked = LEASE_READ;
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        lock_reply(&lock_consul, &s, 200, (struct slice){strange[i], strlen(strange[i])}, &a, &err);
        assert_int_equal(a.said, LEASE_LOST);
    }
    static const char foreign[] = "[{\"ModifyIndex\":3,\"Value\":\"e30=\"}]";
    lock_reply(&lock_consul, &s, 200, (struct slice){foreign, sizeof foreign - 1}, &a, &err);
    assert_int_equal(a.said, LEASE_YES);
    assert_false(a.readable);
    s.asked = LEASE_PUBLISH;
    self.leader = 0xcd;
    self.seq = 9;
    for (s.unfit = false;; s.unfit = true) {
        assert_int_equal(lock_request(&lock_consul, &s, &self, &group, &request, &err), 0);
        assert_true((strstr(request.body, "\"leader\":\"00000000000000cd\",\"seq\":9,") == NULL) == s.unfit);
        free(request.body);
        if (s.unfit) {
            break;
        }
    }
    s.asked = LEASE_READ;
    static const struct {
        const char *pair;
        uint64_t beat, lease_ms;
    } keys[] = {
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBhYiIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMCwiYmVhdCI6MTJ9\"}]",
         12, 7500},
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBhYiIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMH0=\"}]",
         0, 0}, /* its renewals don't show */
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        lock_reply(&lock_consul, &s, 200, (struct slice){keys[i].pair, strlen(keys[i].pair)}, &a, &err);
        assert_true(a.readable);
        assert_int_equal(a.value.term, 7);
        assert_int_equal(a.value.beat, keys[i].beat);
        assert_int_equal(a.value.lease_ms, keys[i].lease_ms);
    }
}

static void test_wire_of_an_heir(void **state)
{
    (void)state;
    struct lease_state s;
    struct lock_request request;
    struct lease_answer a;
    struct err err = {0};
    lease_state_begin(&s, FAILOVER_IN_STEP, &lock_consul.promises, "");
    struct lease_self self = {.node = 0xab, .leader = 0xcd, .seq = 3, .term = 7, .address = "h:1"};
    s.asked = LEASE_LOCK;
    s.session = &s.lock;
    s.wanted = (struct lease_value){.node = 0xcd, .term = 7, .lease_ms = LEASE_MS, .beat = 9, .heir = 0xab, .next = 9};
    assert_int_equal(lock_request(&lock_consul, &s, &self, &group, &request, &err), 0);
    assert_non_null(strstr(request.body, "\"Verb\":\"lock\""));
    free(request.body);
    s.asked = LEASE_READ;
    static const struct {
        const char *pair;
        bool readable;
        uint64_t heir, next;
    } keys[] = {
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBjZCIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMCwiYmVhdCI6OSwiaGVpciI6IjAwMDAwMDAwMDAwMDAwYWIiLCJuZXh0Ijo5fQ==\"}]",
         true, 0xab, 9},
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBjZCIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMCwiYmVhdCI6OX0=\"}]",
         true, 0, 0},
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBjZCIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMCwiYmVhdCI6OSwiaGVpciI6ImFiIiwibmV4dCI6OX0=\"}]",
         false, 0, 0}, /* no id */
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBjZCIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMCwiYmVhdCI6OSwiaGVpciI6IjAwMDAwMDAwMDAwMDAwYWIiLCJuZXh0Ijo3fQ==\"}]",
         false, 0, 0}, /* no term above */
        {"[{\"ModifyIndex\":3,\"Value\":"
         "\"eyJub2RlIjoiMDAwMDAwMDAwMDAwMDBjZCIsImFkZHJlc3MiOiJoOjEiLCJ0ZXJtIjo3LCJpbl9zdGVwIjp0cnVlLCJsZWFzZV9tcyI6NzU"
         "wMCwiYmVhdCI6OSwiaGVpciI6IjAwMDAwMDAwMDAwMDAwYWIifQ==\"}]",
         false, 0, 0}, /* none */
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        lock_reply(&lock_consul, &s, 200, (struct slice){keys[i].pair, strlen(keys[i].pair)}, &a, &err);
        assert_int_equal(a.said, LEASE_YES);
        assert_int_equal(a.readable, keys[i].readable);
        if (a.readable) {
            assert_int_equal(a.value.heir, keys[i].heir);
            assert_int_equal(a.value.next, keys[i].next);
            assert_int_equal(a.value.term, 7);
        }
    }
}

enum { ALL, SESSIONS_ONLY, NAMES_ONLY, EXPIRING_ONLY, STAYING_ONLY };

static bool is_run(int for_kinds)
{
    const struct lease_promises *p = &kind->promises;
    return for_kinds == ALL || (for_kinds == SESSIONS_ONLY && p->session) || (for_kinds == NAMES_ONLY && !p->session) ||
           (for_kinds == EXPIRING_ONLY && p->expires) || (for_kinds == STAYING_ONLY && !p->expires);
}

int main(void)
{
    static const struct {
        struct CMUnitTest test;
        int for_kinds;
    } all[] = {
        {cmocka_unit_test(test_nobody_writes_without_the_lock), ALL},
        {cmocka_unit_test(test_stops_in_time), ALL},
        {cmocka_unit_test(test_in_step_the_furthest_goes_on), ALL},
        {cmocka_unit_test(test_a_silent_primary_is_replaced_soon), ALL},
        {cmocka_unit_test(test_an_idle_primary_is_not_silent), ALL},
        {cmocka_unit_test(test_a_renewal_has_a_new_index), SESSIONS_ONLY},
        {cmocka_unit_test(test_an_outage_of_consul_replaces_nobody), ALL},
        {cmocka_unit_test(test_a_consul_that_loses_all), ALL},
        {cmocka_unit_test(test_another_session_is_another_holder), SESSIONS_ONLY},
        {cmocka_unit_test(test_an_older_primary_is_not_silent), SESSIONS_ONLY},
        {cmocka_unit_test(test_only_those_that_have_all), ALL},
        {cmocka_unit_test(test_out_of_step_nobody), ALL},
        {cmocka_unit_test(test_lossy_somebody_all_the_same), ALL},
        {cmocka_unit_test(test_who_cant_become_primary_leaves_it_to_others), ALL},
        {cmocka_unit_test(test_no_term_goes_down), ALL},
        {cmocka_unit_test(test_one_that_refuses_plays_comes_last), ALL},
        {cmocka_unit_test(test_a_winner_that_dies), ALL},
        {cmocka_unit_test(test_led_on_by_a_winner_that_dies), ALL},
        {cmocka_unit_test(test_promoted_by_hand_beside_an_heir), ALL},
        {cmocka_unit_test(test_an_old_primary_that_is_fenced_on_its_way), ALL},
        {cmocka_unit_test(test_waits_for_a_replica_that_may_be_further), EXPIRING_ONLY},
        {cmocka_unit_test(test_a_session_that_ends_early), SESSIONS_ONLY},
        {cmocka_unit_test(test_never_two), ALL},
        {cmocka_unit_test(test_a_late_record_changes_nothing), ALL},
        {cmocka_unit_test(test_wire), SESSIONS_ONLY},
        {cmocka_unit_test(test_wire_of_an_heir), SESSIONS_ONLY},
        {cmocka_unit_test(test_a_server_that_gives_indexes_again), NAMES_ONLY},
        {cmocka_unit_test(test_renewals_that_never_arrive), ALL},
        {cmocka_unit_test(test_a_late_takeover_of_another_key), ALL},
        {cmocka_unit_test(test_an_entry_that_stays), STAYING_ONLY},
    };
    static const struct lock_kind *const kinds[] = {&lock_consul, &lock_etcd, &lock_kubernetes};
    int failed = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct CMUnitTest tests[sizeof all / sizeof *all];
        size_t n = 0;
        kind = kinds[k];
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            if (is_run(all[i].for_kinds)) {
                tests[n++] = all[i].test;
            }
        }
        failed += _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
    }
    return failed;
}
