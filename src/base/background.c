/* Two things are asked of the kernel, for this thread alone: niceness, and a long time slice. A scheduler that picks by
 * deadlines (EEVDF, since Linux 6.6) gives a running thread most of its slice before a woken one gets the processor,
 * however nice it is: 3 ms, or a tick, which is longer than an fsync takes. But a thread with a shorter slice than the
 * running one doesn't wait (since Linux 6.12). So with a long slice here, threads that wake up for a moment go first,
 * also the kernel's own, on which an fsync depends. And this thread's share of a busy processor comes in longer pieces.
 * Older kernels ignore the slice. */
#include "base/background.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

/* As the kernel takes it; C libraries have it only lately. */
struct sched_attributes {
    uint32_t size;
    uint32_t policy; /* 0: the ordinary one */
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime: the slice, ns */
};

static int set(int nice, int slice_ms)
{
    struct sched_attributes attributes = {
        .size = sizeof attributes, .nice = nice, .runtime = (uint64_t)slice_ms * 1000000};
    return syscall(SYS_sched_setattr, 0, &attributes, 0) < 0 ? ERR_SYSTEM : 0;
}

int background_slice(int slice_ms)
{
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    return errno != 0 || sched_getscheduler(0) != SCHED_OTHER ? ERR_SYSTEM : set(nice, slice_ms);
}

int background_enter(int nice, int slice_ms)
{
    if (clock_is_test()) { /* a test waits for this thread: nice, it would hardly run where several servers work */
        return 0;
    }
    /* On Linux each thread has a priority of its own. The first call is what a strict sandbox may allow alone. */
    if (setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), nice) < 0) {
        return ERR_SYSTEM;
    }
    return set(nice, slice_ms);
}
