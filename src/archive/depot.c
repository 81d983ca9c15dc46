#include "archive/depot.h"

#include <string.h>

static const char file_scheme[] = "file://";

int depot_open(const char *url, bool make, struct depot **d, struct err *err)
{
    size_t n = sizeof file_scheme - 1;
    *d = NULL;
    if (strncmp(url, file_scheme, n) != 0 || url[n] != '/') {
        return err_set(err, ERR_INVALID, "an archive is file:///path of a folder, not \"%s\"", url);
    }
    return depot_file_open(url + n, make, d, err);
}

void depot_close(struct depot *d)
{
    if (d != NULL) {
        d->ops->close(d);
    }
}
