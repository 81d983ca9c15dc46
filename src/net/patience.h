/* How long a client of ours waits for a whole reply, or until a whole request is taken: so many ms, and beyond them for
 * each byte that has moved the time that it takes on the slowest line we are made for. So a peer that sends a byte now
 * and then ends as one that says nothing does, and a long transfer has the time it needs. Real time. */
#ifndef UNSEEN_NET_PATIENCE_H
#define UNSEEN_NET_PATIENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

enum { PATIENCE_KIB_A_SECOND = 16 };

/* Of what began at since_us (clock_real_us()), with so many bytes moved. 0 or less: it is too late. */
static inline int64_t patience_left_us(int64_t since_us, int ms, size_t moved)
{
    const int64_t for_bytes = (int64_t)moved * 1000000 / (PATIENCE_KIB_A_SECOND * 1024);
    return since_us + ms * (int64_t)1000 + for_bytes - clock_real_us();
}

/* ERR_SYSTEM of who was too late after some bytes have moved: "it sent", "reply". */
static inline int patience_lost(const char *address, const char *did, const char *what, size_t moved, int64_t since_us,
                                int ms, struct err *err)
{
    const bool seconds = ms % 1000 == 0;
    return err_set(err, ERR_SYSTEM,
                   "%s: %s %zu bytes of a %s in %lld s: all of it was expected within %d %s and a second more for "
                   "each %d KiB",
                   address, did, moved, what, (long long)((clock_real_us() - since_us) / 1000000),
                   seconds ? ms / 1000 : ms, seconds ? "s" : "ms", PATIENCE_KIB_A_SECOND);
}

#endif
