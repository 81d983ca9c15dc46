/* Preloaded in front of the C library: a disk that is frozen while the file named by FROZEN_DISK exists. It is read in
 * vain by whoever reads what that file names: the end of a path, such as "history.db". A read that may not wait fails
 * like one of a page that is not in memory; any other waits until the disk is thawed. With "~" before a folder all of
 * it hangs: what is written or synced there waits, too. With "!" before the path the disk is broken instead: what is
 * read, written or synced there fails with EIO. FROZEN_DISK_UNTOLD: it can't tell what is in memory, like tmpfs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

enum state { WELL, FROZEN, HUNG, BROKEN };

static enum state state_of(int fd)
{
    char wanted[256] = "", link[64], path[4096];
    const char *switch_file = getenv("FROZEN_DISK");
    int file = switch_file != NULL ? open(switch_file, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return WELL;
    }
    ssize_t n = read(file, wanted, sizeof wanted - 1);
    close(file);
    bool hangs = n > 0 && wanted[0] == '~';
    ssize_t from = n > 0 && (hangs || wanted[0] == '!');
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (hangs) {
        return strncmp(path, wanted + 1, strlen(wanted + 1)) == 0 ? HUNG : WELL;
    }
    bool named = n > from && len >= n - from && memcmp(path + len - (n - from), wanted + from, (size_t)(n - from)) == 0;
    return !named ? WELL : from > 0 ? BROKEN : FROZEN;
}

static bool is_broken(int fd)
{
    bool broken = state_of(fd) == BROKEN;
    errno = broken ? EIO : errno;
    return broken;
}

static bool is_frozen(int fd)
{
    enum state state = state_of(fd);
    return state == FROZEN || state == HUNG;
}

static void wait_for_thaw(int fd)
{
    while (is_frozen(fd)) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

ssize_t preadv2(int fd, const struct iovec *parts, int n, off_t at, int flags)
{
    if (is_broken(fd)) {
        return -1;
    }
    if (flags & RWF_NOWAIT) {
        if (getenv("FROZEN_DISK_UNTOLD") != NULL) {
            errno = EOPNOTSUPP;
            return -1;
        }
        if (is_frozen(fd)) {
            errno = EAGAIN;
            return -1;
        }
    } else {
        wait_for_thaw(fd);
    }
    return REAL(preadv2)(fd, parts, n, at, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int n, off64_t at, int flags)
{
    return preadv2(fd, parts, n, at, flags);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    wait_for_thaw(fd);
    return is_broken(fd) ? -1 : REAL(pread)(fd, to, n, at);
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    return pread(fd, to, n, at);
}

/* What is written to a disk that only reads in vain stays in memory. */
static void wait_to_write(int fd)
{
    while (state_of(fd) == HUNG) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    wait_to_write(fd);
    return is_broken(fd) ? -1 : REAL(pwrite)(fd, from, n, at);
}

ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at)
{
    return pwrite(fd, from, n, at);
}

int fsync(int fd)
{
    wait_to_write(fd);
    return is_broken(fd) ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    wait_to_write(fd);
    return is_broken(fd) ? -1 : REAL(fdatasync)(fd);
}
