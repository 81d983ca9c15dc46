/* What the parts of the module share. */
#ifndef UNSEEN_STORE_RADOS_MODULE_LIBRADOS_IMPL_H
#define UNSEEN_STORE_RADOS_MODULE_LIBRADOS_IMPL_H

#include <rados/librados.h>

#include "store/rados/cluster.h"

struct cluster {
    rados_t rados;
    rados_ioctx_t io;
    int64_t pool;
};

/* ERR_LATE or ERR_IO. code: a negative errno. */
int librados_failed(struct err *err, int code, const char *what);

/* --- librados_blocking.c: as struct cluster_ops has them --- */

int librados_lock(struct cluster *c, const char *object, const char *cookie, int seconds, struct err *err);
int librados_unlock(struct cluster *c, const char *object, const char *cookie, struct err *err);
int librados_command(struct cluster *c, const char *json, char **text, size_t *len, struct err *err);
int librados_list(struct cluster *c, size_t i, size_t n, struct cluster_listing **listing, struct err *err);
int librados_list_next(struct cluster_listing *l, size_t max, void (*name)(void *arg, const char *object), void *arg,
                       struct err *err);
void librados_list_end(struct cluster_listing *l);

#endif
