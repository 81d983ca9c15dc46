/* What a server logs, on its way to standard error: who logs puts a line into a ring and goes on, and a thread writes.
 * So nothing that answers waits for the reader of the log, be it stopped, a disk that is full, or a pipe that is gone.
 *
 * Lines that find the ring full are counted and lost. Once half of it is free again, a line in their place says how
 * many they were. A write that fails is tried again until it succeeds, with what stands behind it: a reader that comes
 * back, or a disk that has room again, gets all that the ring holds.
 *
 * When the process ends, by exit(), a signal for a fault, or abort(), it waits a moment for the thread.
 */
#ifndef UNSEEN_BASE_LOG_RING_H
#define UNSEEN_BASE_LOG_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    LOG_RING_BYTES = 256 * 1024,
    LOG_RING_LINE = 4096, /* no line is longer: a write of so many bytes to a pipe is never mixed with another's */
    LOG_RING_FLUSH_MS = 1000,
};

/* Writes the line that says that so many were lost. Returns its length, at most LOG_RING_LINE. */
typedef size_t log_ring_note(char *out, uint64_t lines);

/* Starts the thread, which ends with the process. Once; before other threads, with the signals blocked that they are
 * to have blocked. ERR_SYSTEM: it can't be started. */
int log_ring_begin(log_ring_note *note, struct err *err);

/* A line with its newline. False: the ring has not begun. Any thread. */
bool log_ring_put(const char *line, size_t len);

/* Waits until all is written, but no longer than LOG_RING_FLUSH_MS, and not while writing fails. Any thread; a handler
 * of a signal too. */
void log_ring_flush(void);

struct log_ring_state {
    uint64_t lost;    /* lines, ever */
    uint64_t waiting; /* bytes that are not written yet */
};
void log_ring_look(struct log_ring_state *out);

#endif
