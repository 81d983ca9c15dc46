/* Operations of a cluster that are waited for: by the nightly walk, and at the start. They end within the cluster's
 * time limit. */
#ifndef UNSEEN_STORE_RADOS_WAIT_H
#define UNSEEN_STORE_RADOS_WAIT_H

#include "store/rados/cluster.h"

/* done and owner are set here. */
enum cluster_result wait_read(const struct cluster_ops *ops, struct cluster *cluster, struct cluster_read *read);
enum cluster_result wait_write(const struct cluster_ops *ops, struct cluster *cluster, struct cluster_write *write);

#endif
