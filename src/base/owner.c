/* Of a file that SQLite has open only an O_PATH descriptor is made here: closing any other one would release the locks
 * that SQLite has on it. */
#include "base/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static void give(int folder, const char *name, const struct stat *to, const char *path)
{
    struct stat st;
    int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    /* A file with a second name may be any file of root's. */
    bool may = fstat(fd, &st) == 0 && st.st_uid == 0 &&
               (S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink == 1));
    if (may && fchownat(fd, "", to->st_uid, to->st_gid, AT_EMPTY_PATH) < 0) {
        log_warn("a file belongs to root, and its folder to another user", "file=%s uid=%ld error=%s",
                 log_quote_str(path), (long)to->st_uid, log_quote_str(strerror(errno)));
    }
    close(fd);
}

/* like NULL: the folder above. */
static void give_path(const char *path, const char *like)
{
    char above[PATH_MAX];
    struct stat to;
    if (geteuid() != 0) {
        return;
    }
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= sizeof above) {
        return;
    }
    memcpy(above, path, len);
    above[len] = '\0';
    char *slash = strrchr(above, '/');
    const char *name = slash != NULL ? slash + 1 : above;
    int folder = AT_FDCWD;
    if (slash != NULL) {
        char whole[PATH_MAX];
        snprintf(whole, sizeof whole, "%.*s", slash == above ? 1 : (int)(slash - above), above);
        folder = open(whole, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0) {
            return;
        }
    }
    bool known = like != NULL         ? stat(like, &to) == 0
                 : folder == AT_FDCWD ? stat(".", &to) == 0
                                      : fstat(folder, &to) == 0;
    if (known && to.st_uid != 0 && name[0] != '\0') {
        give(folder, name, &to, path);
    }
    if (folder != AT_FDCWD) {
        close(folder);
    }
}

void owner_as_folder(const char *path)
{
    give_path(path, NULL);
}

void owner_as(const char *path, const char *like)
{
    give_path(path, like);
}
