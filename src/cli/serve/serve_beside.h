/* What may take long before a server is ready, done on a thread of its own: so that SIGTERM and SIGINT are heard
 * meanwhile, however the work hangs. */
#ifndef UNSEEN_CLI_SERVE_SERVE_BESIDE_H
#define UNSEEN_CLI_SERVE_SERVE_BESIDE_H

#include "base/err.h"

struct beside {
    int (*work)(void *arg, struct err *err);
    void (*told)(void *arg, int number); /* at the first signal, on the caller's thread; the work goes on */
    void *arg;
};

/* Blocks until the work has ended. The caller has both signals blocked. Returns what the work did, or an error. */
int serve_beside(const struct beside *b, struct err *err);

#endif
