/* The log: one line an event, a level, a fixed message and name=value pairs, to standard error.
 *
 *   2026-11-21T10:00:00.000Z info flush done slot=2 users=1203 ms=41
 *   {"time":"2026-11-21T10:00:00.000Z","level":"info","message":"flush done","slot":2,"users":1203,"ms":41}
 *
 * The pairs are logfmt: a value that may hold anything stands in double quotes, with the escapes of JSON. When standard
 * error is the stream that $JOURNAL_STREAM names, time and level of the first form give way to the priority prefix that
 * journald reads (<6>), which the second one gets too. Any thread may log. A line is at most LOG_LINE bytes long: pairs
 * that don't fit are left out, and it ends with cut=true. Secrets are never given to it.
 *
 * A server never waits for who reads the log: after log_begin() lines go through a ring (base/log_ring.h). Other
 * commands write them at once.
 */
#ifndef UNSEEN_BASE_LOG_H
#define UNSEEN_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/figure.h"
#include "base/slice.h"

/* A message without fields is an ordinary one. */
#pragma GCC diagnostic ignored "-Wformat-zero-length"

enum { LOG_LINE = 2048 };
enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_format(enum log_format format);
void log_set_level(enum log_level level);
bool log_wants(enum log_level level); /* for what takes work to put together */

/* Starts the thread that writes: once, before other threads, with the signals blocked that they are to have blocked. */
int log_begin(struct err *err);

/* Says why the process ends ("unseen: TEXT"; as JSON, an error), and waits a moment until all that was logged is
 * written. */
void log_last(const char *text);

/* Of lines lost and waiting. */
void log_figures_each(figure_visit *visit, void *arg);

/* `fields` is a printf format of name=value pairs with a space between any two, or "". A value that may be empty, or
 * hold a space, "=", a quote or strange bytes goes through log_quote(). */
void log_write(enum log_level level, const char *message, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));

/* The last warnings and errors, newest first, to show them in the running service. text is the line as it was logged,
 * without time and level. Returns how many, at most max. Any thread. */
enum { LOG_RECENT = 32, LOG_RECENT_TEXT = 480 };
struct log_recent {
    int64_t at_ms;
    enum log_level level;
    char text[LOG_RECENT_TEXT];
};
int log_recent(struct log_recent *out, int max);

const char *log_level_name(enum log_level level);

/* Rate limit for messages: true at the first call, then at most once in ten seconds. All zero is a new one; any
 * thread. */
struct log_limit {
    _Atomic int64_t quiet_until_us;
};
bool log_again(struct log_limit *limit);

#define log_error(message, ...) log_write(LOG_LEVEL_ERROR, message, __VA_ARGS__)
#define log_warn(message, ...) log_write(LOG_LEVEL_WARN, message, __VA_ARGS__)
#define log_info(message, ...) log_write(LOG_LEVEL_INFO, message, __VA_ARGS__)
#define log_debug(message, ...) log_write(LOG_LEVEL_DEBUG, message, __VA_ARGS__)

/* The text in double quotes, cut at 200 bytes, with the escapes that logfmt and JSON have alike (\" \\ \n \r \t, and
 * \uNNNN for other control characters); a byte that is no UTF-8 is shown as the text \xNN. The result is in one of
 * eight buffers of the thread, so that one call may use several. */
const char *log_quote(struct slice text);
const char *log_quote_str(const char *text);

#endif
