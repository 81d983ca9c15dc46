/* `unseen check --repair --from ADDRESS`: another node of the same seed has what could not be read here. */
#ifndef UNSEEN_CLI_REPLICA_MEND_H
#define UNSEEN_CLI_REPLICA_MEND_H

#include "cli/lib/progress.h"
#include "cli/replica/other_node.h"
#include "store/store.h"

struct mend {
    const struct config *cfg;
    const char *address, *user; /* the other node; its account or NULL */
    void (*did)(void *arg, const char *what);
    void *arg;
    struct progress *progress;
    bool force; /* also from one that lacks some of it */
    struct other_node from;
    bool checked;    /* that it is level */
    char doubt[512]; /* what it may lack all the same; "": nothing */
};

/* Connects, and looks whether its plays are hashed as the folder's: ERR_SEED when not; and whether it has all that the
 * folder has: ERR_STALE when not. Before anything is given up, unless the folder can't be opened before that. */
int mend_open(struct mend *m, struct err *err);

/* Whether the other one has all that this folder has acknowledged: ERR_STALE when not. m->doubt: what can't be told. */
int mend_check_level(struct mend *m, struct store *store, struct err *err);

/* All that repairs gave up, this one and earlier ones, as far as the other has it: united with what is here, then told
 * by did(). What staging has there is flushed first. An interrupted one is run again. Returns how many, or an error. */
int mend_losses(struct mend *m, struct err *err);

void mend_close(struct mend *m);

#endif
