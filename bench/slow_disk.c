/* Preloaded before the C library by bench/cold: a disk that takes SLOW_DISK_US longer for each read of what is not in
 * memory, as one across a network does. A read that may not wait begins nothing here. Linux 6.5. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CACHESTAT = 451 };

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool is_cached(int fd, off_t at, size_t n)
{
    const uint64_t range[2] = {(uint64_t)at, n};
    uint64_t pages[5] = {1};
    return syscall(CACHESTAT, fd, range, pages, 0) < 0 || pages[0] > 0;
}

ssize_t preadv2(int fd, const struct iovec *parts, int n, off_t at, int flags)
{
    if ((flags & RWF_NOWAIT) && !is_cached(fd, at, parts->iov_len)) {
        errno = EAGAIN;
        return -1;
    }
    return REAL(preadv2)(fd, parts, n, at, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int n, off64_t at, int flags)
{
    return preadv2(fd, parts, n, at, flags);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    const char *us = getenv("SLOW_DISK_US");
    if (us != NULL && !is_cached(fd, at, n)) {
        nanosleep(&(struct timespec){.tv_nsec = atol(us) * 1000}, NULL);
    }
    return REAL(pread)(fd, to, n, at);
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    return pread(fd, to, n, at);
}
