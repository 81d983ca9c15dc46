/* Background threads, whose single steps nothing waits for. They yield to any other thread at once, and keep a share of
 * a busy processor. */
#ifndef UNSEEN_BASE_BACKGROUND_H
#define UNSEEN_BASE_BACKGROUND_H

enum {
    BACKGROUND_SLICE_SHORT_MS = 20, /* a request waits for the whole of it, though */
    BACKGROUND_SLICE_LONG_MS = 100,
};

/* Makes the calling thread one. nice: 10 takes about a tenth of a processor that others want too. Between background
 * threads those with the short slice go first. Returns 0, or ERR_SYSTEM when the kernel refused a part of it; the
 * thread then goes on without that part. With a test clock nothing is asked of it. */
int background_enter(int nice, int slice_ms);

/* Gives the calling thread this slice and leaves its priority as it is: while it has much to do that nothing waits for,
 * threads that wake up for a moment go first, and it loses next to nothing. 0: the kernel's own again. Needs no right.
 * ERR_SYSTEM as above. */
int background_slice(int slice_ms);

#endif
