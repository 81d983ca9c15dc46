#include "registry/lease_state.h"

#include <stdio.h>
#include <string.h>

const char *lease_ask_name(enum lease_ask ask)
{
    static const char *const names[] = {"rest", "new session", "new entry", "renew", "read",
                                        "lock", "release",     "publish",   "list",  "promote"};
    return names[ask];
}

void lease_state_begin(struct lease_state *s, enum config_failover failover)
{
    *s = (struct lease_state){.failover = failover, .away = true, .why = "Consul was not asked yet"};
}

static bool has_lock(const struct lease_state *s)
{
    return s->known && s->lock.id[0] != '\0' && strcmp(s->holder, s->lock.id) == 0;
}

bool lease_may_write(const struct lease_state *s, int64_t now_ms)
{
    return s->held && now_ms < s->until_ms;
}

bool lease_is_overruled(const struct lease_state *s, const struct lease_self *self)
{
    const struct lease_value *v = &s->value;
    return s->known && s->readable && v->node != self->node &&
           (v->term > self->term || (v->term == self->term && v->node > self->node));
}

static bool is_named(const struct lease_names *names, uint64_t node)
{
    bool named = !names->given;
    for (int i = 0; i < names->n; i++) {
        named = named || names->nodes[i] == node;
    }
    return named;
}

static bool is_same_step(const struct lease_value *v, const struct lease_self *self)
{
    bool same = v->in_step == self->in_step && v->names.given == self->names.given && v->names.n == self->names.n;
    for (int i = 0; i < self->names.n && same; i++) {
        same = is_named(&v->names, self->names.nodes[i]);
    }
    return same;
}

bool lease_is_recorded(const struct lease_state *s, const struct lease_self *self)
{
    return s->held && has_lock(s) && s->readable && s->value.node == self->node && is_same_step(&s->value, self);
}

static enum lease_ask rest(struct lease_state *s, int64_t ms, const char *why)
{
    s->why = why;
    s->wait_ms = ms;
    return LEASE_REST;
}

static enum lease_ask read_again(struct lease_state *s, int64_t now_ms, const char *why)
{
    s->why = why;
    if (now_ms - s->read_ms < LEASE_RETRY_MS) {
        s->wait_ms = s->read_ms + LEASE_RETRY_MS - now_ms;
        return LEASE_REST;
    }
    s->wait_ms = 0;
    return LEASE_READ;
}

/* A session that may have ended is renewed before anything else, or made. LEASE_REST: it is fine. */
static enum lease_ask keep_session(struct lease_state *s, struct lease_session *session, enum lease_ask make,
                                   int64_t now_ms)
{
    s->session = session;
    if (session->id[0] == '\0') {
        return make;
    }
    return now_ms - session->sent_ms >= LEASE_RENEW_MS ? LEASE_RENEW : LEASE_REST;
}

/* From when on whoever holds the lock takes no writes, if its clock runs as this one. INT64_MAX: that can't be told. */
static int64_t silent_from(const struct lease_state *s)
{
    bool tells = s->known && s->holder[0] != '\0' && s->readable && s->value.lease_ms != 0;
    return tells ? s->seen_ms + (int64_t)s->value.lease_ms : INT64_MAX;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* From when on a primary may ask for a key that isn't there, though another may have had the lock. */
static int64_t absent_from(const struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    bool none = self->alone || now_ms < s->had_ms;
    return none ? now_ms : s->seen_ms + LEASE_MS + LEASE_MARGIN_MS;
}

/* From when on the lock may be asked for. */
static int64_t free_from(const struct lease_state *s)
{
    int64_t back = s->back_ms + LEASE_RETURN_MS, silent = silent_from(s);
    return s->holder[0] == '\0' ? back : silent == INT64_MAX ? silent : later(back, silent + LEASE_MARGIN_MS);
}

/* Consul answers when the key has changed, and at until_ms at the latest, or soon. */
static enum lease_ask watch(struct lease_state *s, int64_t now_ms, int64_t until_ms)
{
    int64_t left = until_ms - now_ms;
    s->wait_ms = left < 1 ? 1 : left < LEASE_WATCH_MS ? left : LEASE_WATCH_MS;
    return LEASE_READ;
}

static const struct lease_names nobody = {.given = true};

static enum lease_ask lock(struct lease_state *s, const struct lease_self *self, uint64_t term, bool in_step,
                           const struct lease_names *names)
{
    s->session = &s->lock;
    s->wanted = (struct lease_value){.node = self->node,
                                     .term = term,
                                     .in_step = in_step,
                                     .names = *names,
                                     .lease_ms = LEASE_MS,
                                     .beat = s->value.beat + 1};
    s->over = s->holder[0] != '\0' && strcmp(s->holder, s->lock.id) != 0;
    snprintf(s->wanted.address, sizeof s->wanted.address, "%s", self->address);
    return LEASE_LOCK;
}

/* Whoever has acknowledged alone doesn't know it after a restart: what the key said of this node stays, and of any
 * other it says nothing. */
static bool was_in_step(const struct lease_state *s, const struct lease_self *self)
{
    return s->readable && s->value.node == self->node && s->value.in_step;
}

static enum lease_ask next_of_primary(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    s->vacancy = 0;
    s->published = false;
    enum lease_ask ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
    if (ask != LEASE_REST) {
        return ask;
    }
    /* The session may live on when the lock doesn't: somebody released or deleted the key. */
    if (!s->known || (!has_lock(s) && s->read_ms < s->lock.sent_ms)) {
        s->wait_ms = 0;
        return LEASE_READ;
    }
    if (lease_is_overruled(s, self)) {
        return read_again(s, now_ms, "another node is primary, as Consul has it");
    }
    if (s->readable && s->value.node == self->node && s->value.term > self->term) {
        s->wanted = s->value; /* it was to become that one when its folder became primary of another: none goes down */
        return LEASE_PROMOTE;
    }
    if (s->index == 0 && now_ms < absent_from(s, self, now_ms)) {
        return read_again(s, now_ms, "Consul has lost who had the lock: another node may take writes for a moment");
    }
    if (!has_lock(s)) {
        return s->holder[0] != '\0' && now_ms < free_from(s)
                   ? read_again(s, now_ms, "another session holds the lock in Consul")
                   : lock(s, self, self->term, was_in_step(s, self), was_in_step(s, self) ? &s->value.names : &nobody);
    }
    const struct lease_value *v = &s->value;
    if (!s->readable || v->node != self->node || v->term != self->term || strcmp(v->address, self->address) != 0 ||
        !is_same_step(v, self) || s->beat_ms < s->lock.sent_ms) {
        return lock(s, self, self->term, self->in_step, &self->names);
    }
    return rest(s, s->lock.sent_ms + LEASE_RENEW_MS - now_ms, NULL);
}

static enum lease_ask publish(struct lease_state *s)
{
    s->session = &s->entry;
    return LEASE_PUBLISH;
}

/* It took the lock already, for a promotion that is not done: nobody else has been primary since. */
static bool has_won(const struct lease_state *s, const struct lease_self *self)
{
    return s->readable && s->value.node == self->node && s->value.term > self->term;
}

static enum lease_ask take(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    enum lease_ask ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
    if (ask != LEASE_REST) {
        return ask;
    }
    uint64_t above = s->value.term > self->term ? s->value.term : self->term;
    s->before = has_won(s, self) ? s->before : s->value;
    return lock(s, self, has_won(s, self) ? above : above + 1, false, &nobody);
}

/* The lock is free, or who holds it is silent. */
static enum lease_ask elect(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    if (!s->readable) {
        return read_again(s, now_ms, "the key in Consul is not one of Unseen's");
    }
    if (has_won(s, self)) {
        return take(s, self, now_ms);
    }
    if (s->unfit) {
        return read_again(s, now_ms, "this node can't become primary");
    }
    if (s->failover != FAILOVER_LOSSY && !s->value.in_step) {
        return read_again(s, now_ms, "the primary is gone and was out of step: nobody is promoted by itself");
    }
    if (s->failover != FAILOVER_LOSSY && self->leader != s->value.node) {
        return read_again(s, now_ms, "the primary is gone, and this node did not follow it");
    }
    if (s->failover != FAILOVER_LOSSY && (!is_named(&s->value.names, self->node) || self->seq < s->value.names.seq)) {
        return read_again(s, now_ms, "the primary is gone, and this replica lacks some of what it has acknowledged");
    }
    if (self->leader == 0) {
        return read_again(s, now_ms, "the primary is gone, and this node has followed nobody");
    }
    int64_t ends = later(s->vacant_ms + LEASE_ELECTION_MS, free_from(s));
    if (now_ms < ends) {
        return watch(s, now_ms, ends);
    }
    return s->won ? take(s, self, now_ms) : LEASE_LIST;
}

/* As it was before, for others; and then the lock. */
static enum lease_ask give_back(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    enum lease_ask ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
    if (ask != LEASE_REST) {
        return ask;
    }
    lock(s, self, s->value.term + 1, s->before.in_step, &s->before.names);
    s->wanted.node = s->before.node;
    snprintf(s->wanted.address, sizeof s->wanted.address, "%s", s->before.address);
    return LEASE_LOCK;
}

static enum lease_ask next_of_replica(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    enum lease_ask ask;
    if (s->unfit && now_ms - s->unfit_ms >= LEASE_UNFIT_MS) {
        s->unfit = s->published = false;
    }
    if (has_lock(s)) { /* for a promotion; or this node was the primary */
        if (!has_won(s, self)) {
            s->session = &s->lock;
            return LEASE_RELEASE;
        }
        if (s->gives_back) {
            return give_back(s, self, now_ms);
        }
        ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
        s->wanted = s->value;
        return ask != LEASE_REST ? ask : LEASE_PROMOTE;
    }
    ask = keep_session(s, &s->entry, LEASE_NEW_ENTRY, now_ms);
    if (ask != LEASE_REST) {
        return ask;
    }
    s->wait_ms = 0;
    if (!s->known) {
        return LEASE_READ;
    }
    s->gives_back = false;
    bool vacant = (s->holder[0] == '\0' && s->index != 0) || now_ms >= silent_from(s);
    if (s->vacancy != (vacant ? s->index : 0)) {
        s->vacancy = vacant ? s->index : 0;
        s->vacant_ms = now_ms;
        s->published = false;
        s->won = false;
    }
    if (!s->published || now_ms - s->published_ms >= LEASE_PUBLISH_MS) {
        return publish(s);
    }
    if (vacant) {
        return elect(s, self, now_ms);
    }
    if (s->index == 0) {
        return read_again(s, now_ms, "no primary has been in Consul yet");
    }
    s->why = NULL;
    return watch(s, now_ms, silent_from(s));
}

enum lease_ask lease_next(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    s->asked_ms = now_ms;
    s->session = NULL;
    if (now_ms < s->retry_ms) {
        s->wait_ms = s->retry_ms - now_ms;
        s->asked = LEASE_REST;
    } else if (self->primary) {
        s->asked = next_of_primary(s, self, now_ms);
    } else {
        s->asked = next_of_replica(s, self, now_ms);
    }
    return s->asked;
}

/* A session that is gone takes the lock with it. */
static void forget_session(struct lease_state *s, struct lease_session *session)
{
    *session = (struct lease_session){.id = ""};
    s->published = s->published && session != &s->entry;
    if (session == &s->lock) {
        s->held = false;
        s->known = false;
    }
}

/* The lock is ours, as of the last question. */
static void settle(struct lease_state *s)
{
    s->held = has_lock(s);
    s->until_ms = s->held ? (s->beat_ms < s->lock.sent_ms ? s->beat_ms : s->lock.sent_ms) + LEASE_MS : 0;
    s->had_ms = s->held ? s->until_ms : s->had_ms;
}

static void read_key(struct lease_state *s, const struct lease_answer *a, int64_t now_ms)
{
    bool same = a->index == s->index && strcmp(a->session, s->holder) == 0;
    s->seen_ms = same && s->seen_ms != 0 ? s->seen_ms : now_ms;
    s->known = true;
    s->index = a->index;
    s->readable = a->readable;
    s->value = a->value;
    s->read_ms = s->asked_ms;
    snprintf(s->holder, sizeof s->holder, "%s", a->session);
    settle(s);
}

static void locked(struct lease_state *s, const struct lease_answer *a, int64_t now_ms)
{
    if (a->index == s->index) { /* nobody sees that it was written */
        s->known = false;
        return;
    }
    s->beat_ms = s->asked_ms;
    struct lease_answer now = {.index = a->index, .readable = true, .value = s->wanted};
    snprintf(now.session, sizeof now.session, "%s", s->lock.id);
    read_key(s, &now, now_ms);
}

/* Ours is what comes first: the highest seq of the old primary, and of equal ones the highest node. One that has not
 * published for this vacancy may be further than it has said. */
static bool comes_first(struct lease_state *s, const struct lease_self *self, const struct lease_answer *a,
                        int64_t now_ms)
{
    uint64_t mine = self->leader == s->value.node ? self->seq : 0;
    bool patient = s->failover == FAILOVER_IN_STEP || now_ms - s->vacant_ms < LEASE_ELECTION_LAST_MS;
    for (int i = 0; i < a->n; i++) {
        const struct lease_rival *r = &a->rivals[i];
        uint64_t theirs = r->leader == s->value.node ? r->seq : 0;
        if (r->node == self->node || (s->failover != FAILOVER_LOSSY && !is_named(&s->value.names, r->node))) {
            continue;
        }
        if (r->vacancy != s->vacancy && patient) {
            s->why = "the primary is gone, and another replica has not said how far it is";
            return false;
        }
        if (r->vacancy == s->vacancy && (theirs > mine || (theirs == mine && r->node > self->node))) {
            s->why = "the primary is gone, and another replica is further";
            return false;
        }
    }
    return true;
}

static void refused(struct lease_state *s, int64_t now_ms)
{
    switch (s->asked) {
    case LEASE_RENEW:
    case LEASE_PUBLISH:
        forget_session(s, s->session);
        break;
    case LEASE_PROMOTE:
        s->why = "this node can't become primary";
        s->gives_back = s->unfit = s->before.term != 0;
        s->unfit_ms = now_ms;
        s->retry_ms = s->gives_back ? now_ms : now_ms + LEASE_RETRY_MS;
        break;
    default:
        s->known = false;
        s->won = false;
        s->retry_ms = now_ms + LEASE_RETRY_MS;
    }
}

static void granted(struct lease_state *s, const struct lease_self *self, const struct lease_answer *a, int64_t now_ms)
{
    switch (s->asked) {
    case LEASE_NEW_SESSION:
    case LEASE_NEW_ENTRY:
        snprintf(s->session->id, sizeof s->session->id, "%s", a->session);
        s->session->sent_ms = s->asked_ms;
        break;
    case LEASE_RENEW:
        s->session->sent_ms = s->asked_ms;
        break;
    case LEASE_READ:
        read_key(s, a, now_ms);
        break;
    case LEASE_LOCK:
        locked(s, a, now_ms);
        break;
    case LEASE_RELEASE:
        s->held = false;
        s->known = false;
        break;
    case LEASE_PUBLISH:
        s->published = true;
        s->published_ms = s->asked_ms;
        break;
    case LEASE_LIST:
        s->won = comes_first(s, self, a, now_ms);
        if (!s->won) {
            s->retry_ms = now_ms + LEASE_RETRY_MS;
            s->known = false;
        }
        break;
    default:
        break;
    }
}

void lease_answered(struct lease_state *s, const struct lease_self *self, const struct lease_answer *a, int64_t now_ms)
{
    bool lost = a->said == LEASE_LOST;
    s->back_ms = s->away && !lost ? now_ms : s->back_ms;
    s->away = lost;
    switch (a->said) {
    case LEASE_YES:
        granted(s, self, a, now_ms);
        return;
    case LEASE_NO:
        refused(s, now_ms);
        return;
    case LEASE_LOST:
        /* What may have changed the key is read again; the rest is asked again. The lock lasts as it did. */
        s->known = s->known && s->asked != LEASE_LOCK && s->asked != LEASE_RELEASE;
        s->why = "Consul does not answer";
        s->retry_ms = now_ms + LEASE_RETRY_MS;
        return;
    }
}
