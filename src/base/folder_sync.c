#include "base/folder_sync.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int folder_sync(const char *folder, struct err *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result =
        fd >= 0 && fsync(fd) == 0 ? 0 : err_set(err, ERR_IO, "can't sync the folder %s: %s", folder, strerror(errno));
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

int folder_sync_name(const char *path, struct err *err)
{
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        strcpy(above, ".");
    } else {
        snprintf(above, sizeof above, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    }
    return folder_sync(above, err);
}
