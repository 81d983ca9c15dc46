/* How long a client of ours waits for a whole reply, or until a whole request is taken: so many ms, and beyond them for
 * each byte that has moved the time that it takes on the slowest line we are made for. So a peer that sends a byte now
 * and then ends as one that says nothing does, and a long transfer has the time it needs. Real time. */
#ifndef UNSEEN_NET_PATIENCE_H
#define UNSEEN_NET_PATIENCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

enum { PATIENCE_KIB_A_SECOND = 16 };

/* Of what began at since_us (clock_stopwatch_us()), with so many bytes moved. 0 or less: it is too late. */
static inline int64_t patience_left_us(int64_t since_us, int ms, size_t moved)
{
    const int64_t for_bytes = (int64_t)moved * 1000000 / (PATIENCE_KIB_A_SECOND * 1024);
    return since_us + ms * (int64_t)1000 + for_bytes - clock_stopwatch_us();
}

#endif
