#include "archive/depot.h"

#include <string.h>

static int open_kind(const struct depot_order *order, struct depot **d, struct err *err)
{
    if (strncmp(order->url, DEPOT_FILE "/", strlen(DEPOT_FILE "/")) == 0) {
        return depot_file_open(order, d, err);
    }
    if (strncmp(order->url, DEPOT_S3, strlen(DEPOT_S3)) == 0) {
        return depot_s3_open(order, d, err);
    }
    return err_set(err, ERR_INVALID, "an archive is file:///path of a folder, or s3://bucket/prefix, not \"%s\"",
                   order->url);
}

int depot_open(const struct depot_order *order, struct depot **d, struct err *err)
{
    *d = NULL;
    int rc = open_kind(order, d, err);
    if (rc == 0) {
        (*d)->keys = order->keys;
    }
    return rc;
}

void depot_close(struct depot *d)
{
    if (d != NULL) {
        d->ops->close(d);
    }
}
