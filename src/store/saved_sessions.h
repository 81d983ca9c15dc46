/* The capability `sessions`: they outlive a restart. Without it they end with the server, as they would soon anyway. */
#ifndef UNSEEN_STORE_SAVED_SESSIONS_H
#define UNSEEN_STORE_SAVED_SESSIONS_H

#include "store/store.h"

/* A scroll session as the store keeps it over a restart (dedup/sessions.h). */
struct store_session {
    struct slice name;
    struct slice ids;
    int64_t used_ms; /* wall time of its last use */
};

struct store_sessions_ops {
    /* Sessions over a restart. keep: replaces what is kept by what next() gives until it returns false; take: gives all
     * that is kept to each(), and forgets it, so that a crash brings no old state back. Each blocks, is one
     * transaction, and calls back on a thread of the store. */
    int (*keep)(struct store *s, bool (*next)(void *arg, struct store_session *out), void *arg, struct err *err);
    int (*take)(struct store *s, void (*each)(void *arg, const struct store_session *kept), void *arg, struct err *err);
};

#endif
