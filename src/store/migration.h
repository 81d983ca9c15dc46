/* The capability `migration`: the store remembers users whose plays still stand in another system (src/legacy/). */
#ifndef UNSEEN_STORE_MIGRATION_H
#define UNSEEN_STORE_MIGRATION_H

#include "base/arena.h"
#include "store/store.h"

enum store_note {
    MIGRATION_NONE,
    MIGRATION_WAITING,
    MIGRATION_DONE,  /* all is taken over */
    MIGRATION_LEFT,  /* it can't be, because of a problem that is listed */
    MIGRATION_ENDED, /* by FORGET: what the other system has is not wanted */
    MIGRATION_STATES,
};

enum store_notes_kind {
    MIGRATION_ADD,      /* users: noted, unless they are already; those who were forgotten only when `forgotten_too` */
    MIGRATION_MARK,     /* users: become `state`, unless ended */
    MIGRATION_AGAIN,    /* all that are done or left wait again, a part of them at a time, see `more`; problems are
                         * forgotten
                         */
    MIGRATION_PROBLEMS, /* keys of the other system that can't be taken over, and what is wrong with them */
    MIGRATION_PAUSE,    /* remembers `paused` */
};

struct store_problem {
    struct slice key, what;
    int64_t at_ms; /* when it was noted */
};

/* A change of notes, one transaction. Owned by the store until done(). */
struct store_migration_change {
    struct store_call call; /* first; its error, done(), owner */
    enum store_notes_kind kind;
    const struct slice *users; /* MIGRATION_ADD, MIGRATION_MARK */
    const struct store_problem *problems;
    size_t n; /* of either; a thousand or two at most: writes wait for the transaction */
    enum store_note state;
    bool paused, forgotten_too;
    uint64_t changed;   /* how many users, or new problems */
    uint64_t forgotten; /* MIGRATION_ADD: how many were left as they are because they were forgotten */
    uint64_t more;      /* MIGRATION_AGAIN: where the next call goes on; 0 first, and at the end */
};

/* Where a walk through the waiting users stands. All zero: before the first. */
struct store_migration_walk {
    uint64_t at;
    bool ended;
};

struct store_migration_counts {
    uint64_t all, waiting, done, left, ended; /* users */
    uint64_t problems;                        /* that are listed; at most STORE_PROBLEMS_MAX */
    bool paused;
};

enum { STORE_PROBLEMS_MAX = 10000 };

struct store_migration_ops {
    /* Notes (above). note: durable when done() is called. of: any thread, by key; a user who was forgotten stays
     * MIGRATION_ENDED. read: the next waiting ones, up to max, their ids in the arena; returns how
     * many, none only at the end. They come about in the order in which history keeps its users, so that those who are
     * taken over together touch few of its pages; who is noted meanwhile may be missed, and isn't in the next walk.
     * problems: the newest; returns how many. */
    void (*note)(struct store *s, struct store_migration_change *users_to_migrate);
    enum store_note (*of)(struct store *s, int64_t key);
    void (*state)(struct store *s, struct store_migration_counts *out);
    int (*read)(struct store_reader *reader, struct store_migration_walk *walk, struct slice *users, int max,
                struct arena *arena, struct err *err);
    int (*problems)(struct store_reader *reader, struct store_problem *out, int max, struct arena *arena,
                    struct err *err);
};

#endif
