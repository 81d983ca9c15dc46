/* Where `unseen load` puts users: a data folder that no server has open, a pool of Ceph, or a running server. The same
 * snapshots, the same rules (store_ops.import). One thread. */
#ifndef UNSEEN_CLI_TRANSFER_LOAD_TARGET_H
#define UNSEEN_CLI_TRANSFER_LOAD_TARGET_H

#include "base/slice.h"
#include "cli/lib/progress.h"
#include "config/config.h"

struct load_target;

/* Called for each snapshot once it is durable. What a server or a store was too busy for (ERR_BUSY) is tried again,
 * until nothing could be loaded for ten minutes; what a server had not answered when it went away is sent to it when it
 * is back, for up to a minute (cli/lib/pipeline.h). */
typedef void load_imported(void *arg, struct slice snapshot, int verdict);

/* to: the server's address; NULL: the folder of cfg, or its server. A folder without plays adopts the seed; else
 * another seed is ERR_SEED. begin_new: for data_folder_open(). A pool that isn't ready for plays is made so, with the
 * seed. Staged plays of a folder are flushed first. progress: what is drawn meanwhile; NULL: nothing is told. cfg is
 * changed and must outlive the target. */
int load_target_open(struct config *cfg, const char *to, bool begin_new, uint64_t seed, load_imported *imported,
                     void *arg, struct progress *progress, struct load_target **target, struct err *err);

/* Copies the snapshot. */
int load_target_add(struct load_target *t, struct slice snapshot, struct err *err);
int load_target_end(struct load_target *t, struct err *err); /* all are durable */
void load_target_close(struct load_target *t);

#endif
