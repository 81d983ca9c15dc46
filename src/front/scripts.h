/* The scripts of the front (layout.h), in Lua: each is done as a whole or not at all. Keys are given as such; nothing
 * newer than Redis 6.0 is used. Those that write begin with the epoch, and answer FENCED, without a change, where
 * another one is there, or GONE where there is no meta.
 *
 * A user's keys of another type, or with a revision that lies ahead of the feed, are as good as lost: the user is stale
 * until their state has come again.
 *
 * READ     keys meta, w, t; argument: how many events at most. Answers meta, w (HGETALL each), t (ZRANGE WITHSCORES),
 * or in place of t how many it has, when those are more. BEGIN    keys meta; arguments: the epoch that was read (0:
 * there was no meta), the new one, seed, node, run, evicted, term, 1 when it takes over
 * whatever term stands there; and, to begin again: to, at. Answers OK; GONE; or FENCED and the term: that of another
 * node with the same seed is higher. CLEARED
 * keys meta, and others; arguments: epoch, 1 when nothing is left. Removes the others. EVENTS   keys meta, d, then w
 * and t of each user; arguments: epoch, old to, new to, at, where the user begins in the name of w (from 1), then of
 * each user: how many events, and of each kind, seq, member: "e" an event, "f" the user is forgotten, "s" something
 * that events can't say. Events that the state has are passed over. Answers OK and how many users are in d; or MOVED
 * and what `to` is. STATES   keys meta, d, then w and t of each user; arguments: epoch, old walk, new walk ("": none is
 * moved, "full": that was the last), then of each user: the id, revision, how many words, and the words of HSET. Each
 *          replaces an older state, and what it has is removed from t; but one that could not be read (b) leaves what
 *          is good there. Answers OK, or MOVED.
 */
#ifndef UNSEEN_FRONT_SCRIPTS_H
#define UNSEEN_FRONT_SCRIPTS_H

enum front_script {
    FRONT_READ,
    FRONT_BEGIN,
    FRONT_CLEARED,
    FRONT_EVENTS,
    FRONT_STATES,
    FRONT_SCRIPTS,
};

const char *front_script_text(enum front_script script);

#endif
