/* The folder that a clone makes: what it is before, how it begins again, and how it takes the place of a stale one. */
#ifndef UNSEEN_CLI_REPLICA_CLONE_FOLDER_H
#define UNSEEN_CLI_REPLICA_CLONE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "store/node.h"

enum clone_found {
    CLONE_EMPTY,   /* nothing was ever recorded here */
    CLONE_OLD,     /* no user was copied yet, and there are some: of an old primary that has sent what it alone had */
    CLONE_BEGUN,   /* a clone of the node that node.leader names */
    CLONE_REPLICA, /* a whole one: it is healed by another folder beside it */
};

/* What an open folder is. ERR_INVALID: it is, or was, a primary's, and the text says so. */
int clone_folder_look(struct store *store, const char *folder, enum clone_found *found, struct store_node *node,
                      struct err *err);

/* Of a folder that no process has open, the database; what else is in it stays. */
int clone_folder_empty(const char *folder, struct err *err);

/* How many bytes the database of a folder has, and how many more its disk takes; 0: not known. */
void clone_folder_room(const char *folder, uint64_t *has, uint64_t *room);

/* The folder `made`, beside it, becomes `folder`; at each moment one of both is there. The database of the old one is
 * deleted, the rest of it is taken along. */
int clone_folder_swap(const char *folder, const char *made, struct err *err);

#endif
