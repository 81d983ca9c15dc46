/* Where the lock is kept, as the options say, and with which secret it is asked for. */
#ifndef UNSEEN_REGISTRY_LOCK_PLACE_H
#define UNSEEN_REGISTRY_LOCK_PLACE_H

#include "config/config.h"
#include "registry/agent.h"
#include "registry/lock.h"

enum { LOCK_URLS_MAX = 9 };

struct lock_place {
    const struct config *cfg;
    const struct lock_kind *kind;
    struct lock_group group;
    struct agent_tls tls;
    char urls[LOCK_URLS_MAX][CONFIG_TEXT];
    int n, at; /* the one that is asked */
    char space[CONFIG_TEXT], ca[CONFIG_TEXT], token_file[CONFIG_TEXT];
    bool logged_in;
    char secret[LOCK_SECRET]; /* "": none */
};

/* ERR_INVALID, ERR_SYSTEM: in-cluster, but this is no pod's environment, and what was expected. It points to itself. */
int lock_place_init(const struct config *cfg, struct lock_place *place, struct err *err);

/* Before each request: what may have changed is read. ERR_SYSTEM: the token's file can't be. */
int lock_place_refresh(struct lock_place *place, struct err *err);
/* Whether the secret has to be asked for first (lock_login). */
bool lock_place_needs_login(const struct lock_place *place);

/* There was no answer that says anything: the next server is asked, and the secret is asked for again. */
void lock_place_failed(struct lock_place *place);

#endif
