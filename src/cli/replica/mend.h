/* `unseen check --repair --from ADDRESS`: another node of the same seed has what could not be read here. */
#ifndef UNSEEN_CLI_REPLICA_MEND_H
#define UNSEEN_CLI_REPLICA_MEND_H

#include "cli/lib/progress.h"
#include "cli/replica/other_node.h"

struct mend {
    const struct config *cfg;
    const char *address, *user; /* the other node; its account or NULL */
    void (*did)(void *arg, const char *what);
    void *arg;
    struct progress *progress;
    struct other_node from;
};

/* Connects, and looks whether its plays are hashed as the folder's: ERR_SEED when not. Before anything is given up. */
int mend_open(struct mend *m, struct err *err);

/* All that repairs gave up, this one and earlier ones, as far as the other has it: united with what is here, then told
 * by did(). What staging has there is flushed first. An interrupted one is run again. Returns how many, or an error. */
int mend_losses(struct mend *m, struct err *err);

void mend_close(struct mend *m);

#endif
