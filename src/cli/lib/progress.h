/* A progress bar on standard error; silent when that is no terminal.
 *
 *   import [===========>              ]  45%  1,234,567 events  0:12 left
 *
 * Owned by one thread. Between progress_begin() and progress_end() nothing is printed but by progress_say().
 */
#ifndef UNSEEN_CLI_LIB_PROGRESS_H
#define UNSEEN_CLI_LIB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    const char *label;
    bool shown;
    bool known; /* the note says how long it will take, so no estimate is made */
    int64_t began_us;
    int64_t drawn_us; /* 0: not yet */
};

/* quiet: show nothing, whatever standard error is. */
void progress_begin(struct progress *p, const char *label, bool quiet);

/* Draws at most ten times a second. total 0: not known. The note (a printf format) says more than a percentage. */
void progress_show(struct progress *p, uint64_t done, uint64_t total, const char *note, ...)
    __attribute__((format(printf, 4, 5)));

/* A line of its own on standard error (a printf format, with its end). p NULL: no bar is drawn. */
void progress_say(struct progress *p, const char *line, ...) __attribute__((format(printf, 2, 3)));

void progress_end(struct progress *p); /* wipes it */

/* The line as it is drawn, at most width characters (< out_size). Pure, for progress_show() and tests. */
void progress_line(char *out, size_t out_size, size_t width, const char *label, uint64_t done, uint64_t total,
                   int64_t elapsed_us, const char *note);

#endif
