/* Failover by a lock: what is to be asked next, and what follows from an answer. Pure: time and answers are
 * arguments, so that every order of them can be tested. lease.h does the asking, of one of the servers of lock.h, which
 * says what they must have. What follows is told of Consul. A kind whose holders are no sessions (lease_promises) has
 * less of it: there a name that the process has made up holds the lock, nothing but a write of the key frees it, and
 * that write is the whole renewal.
 *
 * The lock is the key unseen/NAME/primary. The primary takes writes only while it holds that, and until
 * `until_ms` at most: LEASE_MS from before it asked for the last renewal, on the monotonic clock. A renewal is both:
 * the session's, and then a write of the key itself, by "lock, if the key is as I read it", which gives it a new index:
 * a number in the value grows with each (beat), since Consul counts no write that changes nothing.
 *
 * Why no two take writes. Let W be the last write of the key by the primary P, and i the index that W gave it; P takes
 * none from LEASE_MS after it has sent W. Another node R gets the lock in one of two ways:
 *
 *   - It takes it over: in one transaction "the key is at i; delete it; lock it". R asks for that LEASE_MS and
 *     LEASE_MARGIN_MS after the answer in which it first *read* that the key is at i (seen_ms). No node reads i before
 *     Consul has carried W out, so that was later than W was sent, whatever the two clocks say. P takes no writes by
 *     then, if its clock counts LEASE_MS while R's counts LEASE_MARGIN_MS more: it may run a quarter slower. Had P
 *     written the key meanwhile, it would be at i no more, and nothing happens; if P writes it afterwards, it is P who
 *     finds another index. Both are decided by Consul's log, so no order of requests, late ones and lost answers too,
 *     makes both succeed. R counts from where index and session are as they were: a Consul that has lost its data gives
 *     indexes again, but no session. The value says how long the lease is (lease_ms): a key without that is of an older
 *     version, which renews its session alone, and is never taken over.
 *   - The lock is free, since P's session has ended: by its TTL, which is longer than LEASE_MS and counts from a
 *     renewal that P has sent before W or, if W was refused, after the one that its lease counts from; or by something
 *     else (its node's check, an operator): then Consul keeps the key locked for LEASE_LOCK_DELAY_MS, which is longer,
 *     too. Or P has let it go: it took no writes any more when it asked for that.
 *   - There is no key: Consul has lost its data, and with them the lock delay. Then an old primary knows nothing of P.
 *     No replica takes a key that isn't there. A primary does so at once while the lease that it had lasts, since
 * no other has had the lock since, and if it has never met another node; else LEASE_MS and LEASE_MARGIN_MS after it
 * has first read that there is none: W was before that.
 *
 * How long it takes. R waits at Consul for the key to change, so seen_ms is a moment after W. Whose seq is highest is
 * compared within the margin: the vacancy begins LEASE_MS after seen_ms. So R has the lock 10 s after W, which P
 * writes each LEASE_RENEW_MS: 6.7 to 10 s after P is gone.
 *
 * That the key stays as it is says nothing of P while Consul is away: P may be waiting for it, as R is. So R gives all
 * others LEASE_RETURN_MS from when it is answered again: more than a request of P's that hangs, and the next one. No
 * part of the proof, but an outage of Consul replaces no healthy primary.
 *
 * Of those that may be promoted one that would refuse plays comes last, however far it is: with failover = in-step all
 * have what was acknowledged. With lossy what is further counts for more. Alone it is promoted all the same: it answers
 * forgets, and plays once it has room.
 *
 * With failover = in-step a primary answers no write before all replicas that the key names have it (replica/ack.h),
 * and only one that is named, has followed that node, and has reached the seq beside the names, is promoted. Who lacks
 * something waits, whatever the others do: those that are named may be away for a moment, and are furthest.
 *
 * R takes the lock before its folder is a primary's, and may die in between, for good. So it takes it as the heir: the
 * key stays the old primary's in all it says, who has all that was acknowledged too, and names R and the term that R is
 * going to (next). Under such a key no node takes writes, R neither. R's folder becomes the primary's of that term;
 * then the key becomes R's, and R takes writes. So as long as there is an heir nothing was acknowledged since the key
 * was the old primary's alone, whatever the heir's folder is, and a lock that is free again, or whose heir is silent,
 * is as it was before: of the replicas that are named one is taken, the heir after a new start is one of them, and the
 * old primary may be first. So may one that the heir has fenced, or led on, before it was gone: a replica counts by
 * what it has of the old primary, and the old primary has all of its own (lease_look_back()). Each goes to a term above
 * `next`, since the folder of any heir before may be a primary's of that term, also of one whose promotion failed; so
 * the old primary becomes its own heir. An heir that comes back with such a folder, and finds the key as it left it,
 * takes the lock and is the primary. If another has led since, its term is lower.
 *
 * Where holders are names, indexes that a server gives again, having lost its data or gone back to a copy of them, are
 * the danger: index and holder may then be as R has seen them, though P has written since. So a process that finds the
 * key at a lower index than before, or no key any more, takes another name.
 *
 * What is written to the key is written by "lock, if the key is as I read it": a request that was lost on its way, and
 * comes after all, changes nothing once the key was written since. A node that doesn't know how a request ended reads.
 */
#ifndef UNSEEN_REGISTRY_LEASE_STATE_H
#define UNSEEN_REGISTRY_LEASE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

enum {
    LEASE_TTL_MS = 10 * 1000, /* the least that Consul takes; it may wait for twice as long */
    LEASE_RENEW_MS = LEASE_TTL_MS / 3,
    LEASE_MARGIN_MS = 2500, /* for writes that are under way, and clocks that run unevenly */
    LEASE_MS = LEASE_TTL_MS - LEASE_MARGIN_MS,
    LEASE_LOCK_DELAY_MS = 10 * 1000,    /* more than the lease */
    LEASE_PUBLISH_MS = 5 * 1000,        /* a replica says how far it is */
    LEASE_ELECTION_MS = 2 * 1000,       /* a vacancy waits so long for all replicas to say it again */
    LEASE_ELECTION_LAST_MS = 20 * 1000, /* failover = lossy: and so long for those that don't */
    LEASE_RETURN_MS = 5 * 1000,         /* and so long for the primary, when Consul was away */
    LEASE_UNFIT_MS = 10 * 1000,         /* who can't become primary leaves it to others so long */
    LEASE_WATCH_MS = 2 * 1000,
    LEASE_RETRY_MS = 500,
    LEASE_SESSION = 64,
    LEASE_NAME = 40,
    LEASE_ADDRESS = 320, /* as CONFIG_TEXT */
    LEASE_RIVALS_MAX = 16,
};

enum lease_ask {
    LEASE_REST,        /* for wait_ms */
    LEASE_NEW_SESSION, /* `session`: for the lock, behaviour release */
    LEASE_NEW_ENTRY,   /* `session`: for the entry of a replica, behaviour delete */
    LEASE_RENEW,       /* `session` */
    LEASE_READ,        /* the key; Consul waits for it to change from `index`, for wait_ms at most (0: it doesn't) */
    LEASE_LOCK,        /* the key, if it is still at `index` (0: not there), with `session`; writes `wanted`; `over`:
                        * also if another session has it */
    LEASE_RELEASE,     /* the key, with `session` */
    LEASE_PUBLISH,     /* its seq, for that `vacancy`, with `session` */
    LEASE_LIST,        /* what replicas have published */
    LEASE_PROMOTE,     /* this node, to wanted.next */
    LEASE_END,         /* `session`, as this node stops */
    LEASE_ASKS,
};
const char *lease_ask_name(enum lease_ask ask);

/* What the server of the lock does by itself (lock.h). */
struct lease_promises {
    bool session; /* it gives sessions, and frees the lock when its holder's ends */
    bool expires; /* it gives sessions for entries, and drops an entry when its session ends; else one that has not
                   * changed for LEASE_TTL_MS counts as gone */
    int poll_ms;  /* it doesn't wait for the key to change: who waits for that reads so often. 0: it waits */
};

/* The replicas that have all that was acknowledged; each has all up to seq of the primary's, too. */
struct lease_names {
    bool given; /* false: by a version that names none; then any that follows may have all */
    int n;
    uint64_t nodes[LEASE_RIVALS_MAX];
    uint64_t seq;
};

/* The key's content. */
struct lease_value {
    uint64_t node, term;
    char address[LEASE_ADDRESS];
    bool in_step; /* a replica has all that was acknowledged */
    struct lease_names names;
    uint64_t lease_ms; /* it takes no writes so long after it has asked for its last write of the key; 0: it renews its
                        * session alone */
    uint64_t beat;     /* one more with each write; 0: of a version that doesn't */
    uint64_t heir; /* it took the lock to become the primary of the term `next`, and takes no writes yet; all else is
                    * the old primary's. 0: none */
    uint64_t next;
};

/* Who this node is, at each question. */
struct lease_self {
    bool primary;
    bool alone; /* it has met no other node: none can have replaced it */
    uint64_t node, term;
    uint64_t leader, seq; /* replica: it has all up to seq of that node */
    uint64_t named;       /* the node that the key names, which is told; no primary: it has all of that, */
    bool has_named;
    uint64_t named_seq; /* up to there. That node may be itself */
    bool refuses;       /* replica: it would refuse plays: no room on its disk, or in its memory, or a broken disk */
    const char *address;
    bool in_step; /* primary: what is to be recorded */
    struct lease_names names;
};

struct lease_rival {
    uint64_t node, leader, seq, vacancy;
    bool refuses;
    uint64_t index; /* of its entry, where entries don't expire */
};

/* Since when an entry was seen as it is. */
struct lease_heard {
    uint64_t node, index;
    int64_t seen_ms;
};

enum lease_said {
    LEASE_LOST, /* no answer, or one that says nothing: it may have been carried out, or still be */
    LEASE_YES,
    LEASE_NO, /* refused: the session is gone, the key has changed, another holds the lock */
};

struct lease_answer {
    enum lease_said said;
    char session[LEASE_SESSION]; /* a new one; READ: who holds the lock, "": none */
    uint64_t index;              /* READ, LOCK: of the key; 0: it isn't there */
    char mark[LEASE_SESSION];    /* READ, LOCK: of this key, and of none that is made after it; "": the kind has none */
    bool readable;               /* READ: value is what the key holds */
    struct lease_value value;
    int n; /* LIST */
    struct lease_rival rivals[LEASE_RIVALS_MAX];
};

struct lease_session {
    char id[LEASE_SESSION]; /* "": none */
    int64_t sent_ms;        /* when the last renewal that succeeded was asked for */
};

struct lease_state {
    enum config_failover failover;
    const struct lease_promises *promises;
    char own[LEASE_NAME]; /* what holds the lock for this process where there are no sessions, */
    unsigned names;       /* with the number of times that the server had lost what it had */
    struct lease_session lock, entry;
    bool known; /* the key was read, and nothing that may have changed it was lost since */
    bool held;  /* the lock was ours then, and writes may be taken under it */
    char holder[LEASE_SESSION], mark[LEASE_SESSION];
    uint64_t index;
    bool readable;
    struct lease_value value; /* of the key */
    int64_t read_ms;
    int64_t seen_ms;  /* when it was first known to be at `index`, locked by `holder` */
    int64_t beat_ms;  /* when the last write of the key that succeeded was asked for */
    int64_t until_ms; /* while it is held, */
    int64_t had_ms;   /* and as it was when it was held last */
    bool over;        /* LOCK: its holder is silent, and loses it */
    int64_t retry_ms;
    bool away;       /* Consul, as of the last request */
    int64_t back_ms; /* when it was no more */

    bool published;
    int64_t published_ms;
    uint64_t vacancy; /* the key's index while none holds it, or its holder is silent; 0: it is held */
    int64_t vacant_ms;
    bool won; /* against all that have published for it */
    bool ran; /* for the lock that it has: it took that as a replica, or as one that was fenced before */
    int n_heard;
    struct lease_heard heard[LEASE_RIVALS_MAX]; /* as of the last LIST */

    bool unfit;       /* its promotion failed: it lets the lock go, and publishes that it has nothing, */
    int64_t unfit_ms; /* since then */

    enum lease_ask asked;
    int64_t asked_ms;
    struct lease_session *session;
    struct lease_value wanted; /* LOCK writes it, PROMOTE goes to its `next` */
    int64_t wait_ms;
    const char *why; /* no writes are taken, or none is promoted; '@': the server's name. NULL: all is well */
};

/* own: hex digits and '-', of this process alone; sessions that the server gives don't need it. */
void lease_state_begin(struct lease_state *s, enum config_failover failover, const struct lease_promises *promises,
                       const char *own);

/* Under an heir a node counts as one that follows whom the key names, if it has followed that. Called before a
 * question, once self is known. */
void lease_look_back(const struct lease_state *s, struct lease_self *self);
/* What to ask now; its arguments are in s: session, index, wanted, vacancy, wait_ms. */
enum lease_ask lease_next(struct lease_state *s, const struct lease_self *self, int64_t now_ms);
/* What came of it. */
void lease_answered(struct lease_state *s, const struct lease_self *self, const struct lease_answer *a, int64_t now_ms);

/* Whether this node, if it is primary, may take writes at that moment. */
bool lease_may_write(const struct lease_state *s, int64_t now_ms);
/* Whether the lock is this node's, as of the last answer. */
bool lease_has_lock(const struct lease_state *s);
/* Whether what the key says of who is in step is of this node, as the primary that it is. */
bool lease_is_own(const struct lease_state *s, const struct lease_self *self);
/* Whether the key says of who is in step what this node wants it to, and will until this node changes that. */
bool lease_is_recorded(const struct lease_state *s, const struct lease_self *self);
/* Whether the key names a primary that comes before this node: a higher term, or the same and a higher node. */
bool lease_is_overruled(const struct lease_state *s, const struct lease_self *self);

#endif
