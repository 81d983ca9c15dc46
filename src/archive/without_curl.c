/* Replaces depot_s3.c in a build without libcurl. */
#include "archive/depot.h"

int depot_s3_open(const struct depot_order *order, struct depot **d, struct err *err)
{
    *d = NULL;
    return err_set(err, ERR_INVALID, "this unseen was built without libcurl and can't talk to %s", order->url);
}
