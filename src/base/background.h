/* Background threads: those whose work nobody waits for step by step. They give way to any other thread at once, and
 * keep a share of the processor when all of it is wanted. */
#ifndef UNSEEN_BASE_BACKGROUND_H
#define UNSEEN_BASE_BACKGROUND_H

enum {
    BACKGROUND_SLICE_SHORT_MS = 20, /* somebody waits for the whole of it, though */
    BACKGROUND_SLICE_LONG_MS = 100,
};

/* Makes the calling thread one. nice: 10 takes about a tenth of a processor that others want too. Between background
 * threads those with the short slice go first. Returns 0, or ERR_SYSTEM: it then runs beside the others as far as that
 * was refused. */
int background_enter(int nice, int slice_ms);

#endif
