#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int config_backup_root(const struct config *cfg, char *out, size_t size, struct err *err)
{
    char data[PATH_MAX] = "";
    const char *root = cfg->backup_root;
    if (strcmp(root, "none") == 0) {
        return err_set(err, ERR_INVALID, "backup_root is none: this server makes no backups");
    }
    if (root[0] == '\0' && realpath(cfg->data, data) == NULL) {
        return err_set(err, ERR_SYSTEM, "can't find the data folder %s: %s", cfg->data, strerror(errno));
    }
    int n = snprintf(out, size, "%s%s", root[0] != '\0' ? root : data, root[0] != '\0' ? "" : "-backups");
    return n >= 0 && (size_t)n < size ? 0 : err_set(err, ERR_INVALID, "the path of backup_root is too long");
}
