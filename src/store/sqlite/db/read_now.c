#include "store/sqlite/db/read_now.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* By Linux 6.5; its headers may be older than the kernel. */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

struct cachestat_range {
    uint64_t off, len;
};
struct cachestat_pages {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static _Thread_local struct read_now *current; /* NULL: reads wait */

/* A part of a page is enough to try. */
static bool is_cached(int fd, off_t at, size_t n)
{
    static _Atomic bool can_tell = true;
    struct cachestat_range range = {(uint64_t)at, n};
    struct cachestat_pages pages;
    if (!atomic_load_explicit(&can_tell, memory_order_relaxed)) {
        return true;
    }
    if (syscall(SYS_cachestat, fd, &range, &pages, 0) < 0) {
        atomic_store(&can_tell, errno == EINTR);
        return true;
    }
    return pages.cached > 0;
}

static ssize_t miss(void)
{
    current->missed = true;
    errno = EAGAIN;
    return -1;
}

/* The errors are those that SQLite makes SQLITE_CORRUPT of: SQLITE_IOERR_CORRUPTFS in its os_unix.c. */
static ssize_t told(struct read_now *r, ssize_t got)
{
    r->failed = r->failed || (got < 0 && (errno == EIO || errno == ENXIO || errno == ERANGE));
    return got;
}

/* Less than was asked for is either the end of the file or of what is in memory. Which of both, the disk may say. */
static ssize_t read_at(int fd, void *to, size_t n, off_t at)
{
    struct read_now *r = current;
    if (r == NULL) {
        return pread(fd, to, n, at);
    }
    if (r->unsupported) {
        return told(r, pread(fd, to, n, at));
    }
    if (r->look_first && !is_cached(fd, at, n)) {
        return miss();
    }
    struct iovec part = {to, n};
    ssize_t got = preadv2(fd, &part, 1, at, RWF_NOWAIT);
    if (got == (ssize_t)n) {
        return got;
    }
    if (got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)) {
        r->unsupported = true;
        return told(r, pread(fd, to, n, at));
    }
    if (got < 0 && errno != EAGAIN) {
        return told(r, got);
    }
    return r->may_wait ? told(r, pread(fd, to, n, at)) : miss();
}

void read_now_install(void)
{
    /* SQLite is built to use one of both, and has no function for the other. */
    static const char *const calls[] = {"pread", "pread64"};
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    for (size_t i = 0; vfs != NULL && vfs->iVersion >= 3 && i < sizeof calls / sizeof *calls; i++) {
        if (vfs->xGetSystemCall(vfs, calls[i]) != NULL) {
            vfs->xSetSystemCall(vfs, calls[i], (sqlite3_syscall_ptr)read_at);
        }
    }
}

void read_now_begin(struct read_now *r)
{
    r->missed = r->failed = false;
    current = r;
}

void read_now_end(void)
{
    current = NULL;
}

bool read_now_wanted(void)
{
    return current != NULL && !current->may_wait;
}

void read_now_miss(void)
{
    current->missed = true;
}

bool read_now_missed(void)
{
    return current != NULL && current->missed;
}
