/* Finds where a reply ends, without building anything: for a load generator, which reads few replies.
 *
 * It is given all bytes of a reply so far, again each time they grow (and perhaps move), and reads each line once.
 * RESP2 and RESP3. */
#ifndef UNSEEN_CLI_BENCH_BENCH_SCAN_H
#define UNSEEN_CLI_BENCH_BENCH_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

/* All zero: a new reply. */
struct bench_scan {
    size_t at;    /* scanned so far */
    size_t skip;  /* bytes of a string that have not come yet */
    int64_t left; /* values still to come behind the one at hand */
    bool begun;
};

enum { BENCH_SCAN_BAD = -1, BENCH_SCAN_MORE = 0, BENCH_SCAN_DONE = 1 };

/* BENCH_SCAN_DONE: the reply is the first scan->at bytes; zero the scan for the next. */
int bench_scan(struct bench_scan *scan, const char *data, size_t len);

/* Walks over a whole reply's lines: returns the type at *at, the number behind it (0 where there is none) in *number
 * and a string's bytes in *text, and moves on. An aggregate's values follow as lines of their own. */
char bench_line(struct slice reply, size_t *at, int64_t *number, struct slice *text);

#endif
