#include "registry/lease_state.h"

#include <stdio.h>
#include <string.h>

const char *lease_ask_name(enum lease_ask ask)
{
    static const char *const names[] = {"rest",    "new session", "new entry", "renew",   "read", "lock",
                                        "release", "publish",     "list",      "promote", "end"};
    return names[ask];
}

void lease_state_begin(struct lease_state *s, enum config_failover failover, const struct lease_promises *promises,
                       const char *own)
{
    *s = (struct lease_state){.failover = failover, .promises = promises, .away = true, .why = "@ was not asked yet"};
    snprintf(s->own, sizeof s->own, "%s", own);
}

bool lease_has_lock(const struct lease_state *s)
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

/* This node took the lock to become primary, and no other has taken it since. */
static bool is_heir(const struct lease_state *s, const struct lease_self *self)
{
    return lease_has_lock(s) && s->readable && s->value.heir == self->node;
}

bool lease_is_own(const struct lease_state *s, const struct lease_self *self)
{
    const struct lease_value *v = &s->value;
    uint64_t led = v->heir == self->node ? v->next : v->term;
    return s->readable && v->node == self->node && led == self->term;
}

bool lease_is_recorded(const struct lease_state *s, const struct lease_self *self)
{
    return s->held && lease_has_lock(s) && s->readable && s->value.node == self->node && is_same_step(&s->value, self);
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
    const struct lease_promises *p = s->promises;
    bool given = session == &s->lock ? p->session : p->expires;
    bool due = session->id[0] == '\0' || now_ms - session->sent_ms >= LEASE_RENEW_MS;
    s->session = session;
    if (given) {
        return session->id[0] == '\0' ? make : due ? LEASE_RENEW : LEASE_REST;
    }
    if (due) { /* a name lives on: the write of the key that follows is the renewal */
        snprintf(session->id, sizeof session->id, "%s-%u", s->own, s->names);
        session->sent_ms = now_ms;
    }
    return LEASE_REST;
}

/* From when on the holder of the lock takes no writes, if its clock runs as this one. INT64_MAX: that can't be told. */
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

/* The server answers when the key has changed, and at until_ms at the latest, or soon; one that doesn't wait is asked
 * again and again. */
static enum lease_ask watch(struct lease_state *s, int64_t now_ms, int64_t until_ms)
{
    int64_t left = until_ms - now_ms;
    if (s->promises->poll_ms != 0) {
        int64_t due = s->read_ms + s->promises->poll_ms - now_ms;
        s->wait_ms = due < left ? due : left;
        if (s->wait_ms > 0) {
            return LEASE_REST;
        }
        s->wait_ms = 0;
        return LEASE_READ;
    }
    s->wait_ms = left < 1 ? 1 : left < LEASE_WATCH_MS ? left : LEASE_WATCH_MS;
    return LEASE_READ;
}

static const struct lease_names no_names = {.given = true};

static enum lease_ask lock(struct lease_state *s, const struct lease_value *wanted)
{
    uint64_t beat = s->value.beat + 1;
    s->session = &s->lock;
    s->wanted = *wanted;
    s->wanted.lease_ms = LEASE_MS;
    s->wanted.beat = beat;
    s->over = s->holder[0] != '\0' && strcmp(s->holder, s->lock.id) != 0;
    return LEASE_LOCK;
}

/* As the primary that this node is. */
static enum lease_ask lock_own(struct lease_state *s, const struct lease_self *self, bool in_step,
                               const struct lease_names *names)
{
    struct lease_value own = {.node = self->node, .term = self->term, .in_step = in_step, .names = *names};
    snprintf(own.address, sizeof own.address, "%s", self->address);
    return lock(s, &own);
}

/* To become the primary of a term that no other may have. */
static enum lease_ask lock_as_heir(struct lease_state *s, const struct lease_self *self)
{
    struct lease_value as_it_is = s->value;
    uint64_t next = as_it_is.heir != 0 && as_it_is.next > as_it_is.term ? as_it_is.next : as_it_is.term;
    as_it_is.next = (next > self->term ? next : self->term) + 1;
    as_it_is.heir = self->node;
    return lock(s, &as_it_is);
}

/* This primary comes before the one that the key is of, or is that, but another may be one of its term, or of a higher
 * one: it goes above that. */
static bool must_go_above(const struct lease_state *s, const struct lease_self *self)
{
    const struct lease_value *v = &s->value;
    if (!s->readable) {
        return false;
    }
    return v->heir == 0            ? v->node == self->node && v->term > self->term
           : v->heir == self->node ? v->next > self->term
                                   : v->next >= self->term;
}

static enum lease_ask cant_become_primary(struct lease_state *s, int64_t now_ms)
{
    return read_again(s, now_ms, "this node can't become primary");
}

/* With the lock, as the heir. */
static enum lease_ask succeed(struct lease_state *s)
{
    if (s->unfit) {
        s->session = &s->lock;
        return LEASE_RELEASE;
    }
    s->wanted = s->value;
    return LEASE_PROMOTE;
}

static enum lease_ask next_of_primary(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    s->vacancy = 0;
    s->published = s->ran = false;
    enum lease_ask ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
    if (ask != LEASE_REST) {
        return ask;
    }
    /* The session may live on when the lock doesn't: the key was released or deleted. */
    if (!s->known || (!lease_has_lock(s) && s->read_ms < s->lock.sent_ms)) {
        s->wait_ms = 0;
        return LEASE_READ;
    }
    if (lease_is_overruled(s, self)) {
        return read_again(s, now_ms, "another node is primary, as @ has it");
    }
    if (is_heir(s, self) && s->value.next > self->term) {
        return succeed(s);
    }
    if (s->index == 0 && now_ms < absent_from(s, self, now_ms)) {
        return read_again(s, now_ms, "@ has lost who had the lock: another node may take writes for a moment");
    }
    const struct lease_value *v = &s->value;
    if (!lease_has_lock(s)) {
        if (s->holder[0] != '\0' && now_ms < free_from(s)) {
            return read_again(s, now_ms, "another session holds the lock in @");
        }
        if (must_go_above(s, self)) {
            return s->unfit ? cant_become_primary(s, now_ms) : lock_as_heir(s, self);
        }
        /* A node that has acknowledged alone doesn't know it after a restart: what the key said of this node stays, and
         * of any other it says nothing. */
        bool was_in_step = lease_is_own(s, self) && v->in_step;
        return lock_own(s, self, was_in_step, was_in_step ? &v->names : &no_names);
    }
    if (!s->readable || v->node != self->node || v->term != self->term || v->heir != 0 ||
        strcmp(v->address, self->address) != 0 || !is_same_step(v, self) || s->beat_ms < s->lock.sent_ms) {
        return lock_own(s, self, self->in_step, &self->names);
    }
    return rest(s, s->lock.sent_ms + LEASE_RENEW_MS - now_ms, NULL);
}

static enum lease_ask publish(struct lease_state *s)
{
    s->session = &s->entry;
    return LEASE_PUBLISH;
}

static enum lease_ask take(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    enum lease_ask ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
    s->ran = true;
    return ask != LEASE_REST ? ask : lock_as_heir(s, self);
}

void lease_look_back(const struct lease_state *s, struct lease_self *self)
{
    const struct lease_value *v = &s->value;
    bool counts = s->known && s->readable && v->heir != 0 && self->term <= v->next; /* no other has led since */
    if (!self->primary && self->has_named && counts) {
        self->leader = v->node;
        self->seq = self->named_seq;
    }
}

/* Why this replica may not be promoted without what others may have. NULL: it may. */
static const char *what_lacks(const struct lease_state *s, const struct lease_self *self)
{
    const struct lease_value *v = &s->value;
    bool led = self->leader == self->node; /* the old primary, fenced: all that it has acknowledged is here */
    if (!led && !v->in_step) {
        return "the primary is gone and was out of step: no replica is promoted by itself";
    }
    if (self->leader != v->node) {
        return "the primary is gone, and this node did not follow it";
    }
    return (!led && !is_named(&v->names, self->node)) || self->seq < v->names.seq
               ? "the primary is gone, and this replica lacks some of what it has acknowledged"
               : NULL;
}

/* The lock is free, or who holds it is silent. */
static enum lease_ask elect(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    if (!s->readable) {
        return read_again(s, now_ms, "the key in @ is not one of Unseen's");
    }
    if (s->unfit) {
        return cant_become_primary(s, now_ms);
    }
    const char *lacks = s->failover != FAILOVER_LOSSY ? what_lacks(s, self) : NULL;
    if (lacks != NULL) {
        return read_again(s, now_ms, lacks);
    }
    if (self->leader == 0) {
        return read_again(s, now_ms, "the primary is gone, and this node has followed no other");
    }
    int64_t ends = later(s->vacant_ms + LEASE_ELECTION_MS, free_from(s));
    if (now_ms < ends) {
        return watch(s, now_ms, ends);
    }
    return s->won ? take(s, self, now_ms) : LEASE_LIST;
}

static enum lease_ask next_of_replica(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    enum lease_ask ask;
    if (lease_has_lock(s)) { /* for a promotion; or this node was the primary, or its own heir, and was fenced */
        bool fenced = self->leader == 0 || self->leader == self->node;
        if (!is_heir(s, self) || (fenced && !s->ran)) { /* who has fenced it may be there, and comes first */
            s->session = &s->lock;
            return LEASE_RELEASE;
        }
        ask = keep_session(s, &s->lock, LEASE_NEW_SESSION, now_ms);
        return ask != LEASE_REST ? ask : succeed(s);
    }
    ask = keep_session(s, &s->entry, LEASE_NEW_ENTRY, now_ms);
    if (ask != LEASE_REST) {
        return ask;
    }
    s->wait_ms = 0;
    if (!s->known) {
        return LEASE_READ;
    }
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
        return read_again(s, now_ms, "no primary has been in @ yet");
    }
    s->why = NULL;
    return watch(s, now_ms, silent_from(s));
}

enum lease_ask lease_next(struct lease_state *s, const struct lease_self *self, int64_t now_ms)
{
    s->asked_ms = now_ms;
    s->session = NULL;
    if (s->unfit && now_ms - s->unfit_ms >= LEASE_UNFIT_MS) {
        s->unfit = s->published = false;
    }
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

/* Whether writes may be taken, and until when, as of the last question. */
static void settle(struct lease_state *s)
{
    s->held = lease_has_lock(s) && !(s->readable && s->value.heir != 0);
    s->until_ms = s->held ? (s->beat_ms < s->lock.sent_ms ? s->beat_ms : s->lock.sent_ms) + LEASE_MS : 0;
    s->had_ms = s->held ? s->until_ms : s->had_ms;
}

static void read_key(struct lease_state *s, const struct lease_answer *a, int64_t now_ms)
{
    if (!s->promises->session && a->index < s->index) {
        s->names++;
        snprintf(s->lock.id, sizeof s->lock.id, "%s-%u", s->own, s->names);
    }
    bool same = a->index == s->index && strcmp(a->session, s->holder) == 0;
    s->seen_ms = same && s->seen_ms != 0 ? s->seen_ms : now_ms;
    s->known = true;
    s->index = a->index;
    s->readable = a->readable;
    s->value = a->value;
    s->read_ms = s->asked_ms;
    snprintf(s->holder, sizeof s->holder, "%s", a->session);
    snprintf(s->mark, sizeof s->mark, "%s", a->mark);
    settle(s);
}

static void locked(struct lease_state *s, const struct lease_answer *a, int64_t now_ms)
{
    if (a->index == s->index) { /* no node sees that it was written */
        s->known = false;
        return;
    }
    s->beat_ms = s->asked_ms;
    struct lease_answer now = {.index = a->index, .readable = true, .value = s->wanted};
    snprintf(now.session, sizeof now.session, "%s", s->lock.id);
    snprintf(now.mark, sizeof now.mark, "%s", a->mark);
    read_key(s, &now, now_ms);
}

/* Whether it comes before this node: one that would take plays (in step), the highest seq of the old primary, one that
 * would take plays (lossy), the highest node. */
static bool comes_before(const struct lease_state *s, const struct lease_self *self, const struct lease_rival *r)
{
    uint64_t mine = self->leader == s->value.node ? self->seq : 0, theirs = r->leader == s->value.node ? r->seq : 0;
    bool in_step = s->failover != FAILOVER_LOSSY;
    if (in_step && (r->leader != s->value.node || theirs < s->value.names.seq)) {
        return false; /* it waits */
    }
    if (in_step && r->refuses != self->refuses) {
        return self->refuses;
    }
    return theirs != mine ? theirs > mine : r->refuses != self->refuses ? self->refuses : r->node > self->node;
}

/* A replica says each LEASE_PUBLISH_MS how far it is, if the server can be reached. */
static bool is_gone(const struct lease_state *s, const struct lease_heard *h, int64_t now_ms)
{
    return !s->promises->expires && now_ms - later(h->seen_ms, s->back_ms) >= LEASE_TTL_MS;
}

static void hear(struct lease_state *s, const struct lease_answer *a, int64_t now_ms)
{
    struct lease_heard before[LEASE_RIVALS_MAX];
    int n = s->n_heard;
    memcpy(before, s->heard, sizeof before);
    s->n_heard = a->n;
    for (int i = 0; i < a->n; i++) {
        struct lease_heard *h = &s->heard[i];
        *h = (struct lease_heard){.node = a->rivals[i].node, .index = a->rivals[i].index, .seen_ms = now_ms};
        for (int k = 0; k < n; k++) {
            h->seen_ms = before[k].node == h->node && before[k].index == h->index ? before[k].seen_ms : h->seen_ms;
        }
    }
}

/* One that has not published for this vacancy may be further than it has said. */
static bool comes_first(struct lease_state *s, const struct lease_self *self, const struct lease_answer *a,
                        int64_t now_ms)
{
    bool patient =
        (s->failover == FAILOVER_IN_STEP && s->promises->expires) || now_ms - s->vacant_ms < LEASE_ELECTION_LAST_MS;
    for (int i = 0; i < a->n; i++) {
        const struct lease_rival *r = &a->rivals[i];
        if (r->node == self->node || is_gone(s, &s->heard[i], now_ms) ||
            (s->failover != FAILOVER_LOSSY && !is_named(&s->value.names, r->node))) {
            continue;
        }
        if (r->vacancy != s->vacancy && patient) {
            s->why = "the primary is gone, and another replica has not said how far it is";
            return false;
        }
        if (r->vacancy == s->vacancy && comes_before(s, self, r)) {
            s->why = "the primary is gone, and another replica comes first";
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
        s->unfit = true;
        s->unfit_ms = now_ms;
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
        hear(s, a, now_ms);
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
        s->why = "@ does not answer";
        s->retry_ms = now_ms + LEASE_RETRY_MS;
        return;
    }
}
