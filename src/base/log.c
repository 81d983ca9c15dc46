#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log_ring.h"

enum {
    QUOTE_BYTES = 200,
    QUOTE_BUFFERS = 8,
    LIMIT_US = 10 * 1000 * 1000,
};

static const char *const names[] = {"error", "warn", "info", "debug"};
static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};

static atomic_int max_level = LOG_LEVEL_INFO;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool to_journal;

/* The last warnings and errors: a ring. */
static pthread_mutex_t recent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct log_recent recent[LOG_RECENT];
static unsigned recent_n; /* ever */

/* journald says which stream is its own; one that was redirected since is not. */
static void find_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    to_journal = stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
                 fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_set_level(enum log_level level)
{
    atomic_store(&max_level, (int)level);
}

bool log_again(struct log_limit *limit)
{
    int64_t now = clock_stopwatch_us() + 1; /* never 0, which is "not yet" */
    int64_t until = atomic_load_explicit(&limit->quiet_until_us, memory_order_relaxed);
    /* Of threads that come at once one is let through. */
    return (until == 0 || now >= until) &&
           atomic_compare_exchange_strong(&limit->quiet_until_us, &until, now + LIMIT_US);
}

bool log_wants(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

const char *log_level_name(enum log_level level)
{
    return names[level];
}

static void keep_recent(enum log_level level, const char *text, size_t len)
{
    pthread_mutex_lock(&recent_lock);
    struct log_recent *r = &recent[recent_n++ % LOG_RECENT];
    r->at_ms = clock_wall_ms();
    r->level = level;
    snprintf(r->text, sizeof r->text, "%.*s", (int)len, text);
    pthread_mutex_unlock(&recent_lock);
}

int log_recent(struct log_recent *out, int max)
{
    int n = 0;
    pthread_mutex_lock(&recent_lock);
    for (unsigned i = recent_n; i > 0 && recent_n - i < LOG_RECENT && n < max; i--) {
        out[n++] = recent[(i - 1) % LOG_RECENT];
    }
    pthread_mutex_unlock(&recent_lock);
    return n;
}

void log_hide_ids(char *text)
{
    static const char *const fields[] = {" user=", " item=", " key="};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        for (char *at = text; (at = strstr(at, fields[i])) != NULL;) {
            at += strlen(fields[i]);
            char *end = at + strcspn(at, " ");
            if (*at == '"') {
                for (end = at + 1; *end != '\0' && *end != '"'; end++) {
                    end += *end == '\\' && end[1] != '\0';
                }
                end += *end == '"';
            }
            if (end > at) {
                *at++ = '-';
                memmove(at, end, strlen(end) + 1);
            }
        }
    }
}

/* Returns the line's length with its newline. *text_at: where time and level end. */
static size_t compose(char line[LOG_LINE + 1], size_t *text_at, enum log_level level, const char *message,
                      const char *fields, va_list args)
{
    int n;
    if (to_journal) {
        n = snprintf(line, LOG_LINE, "%s%s", priorities[level], message);
    } else {
        char time[TIME_TEXT];
        n = snprintf(line, LOG_LINE, "%s %s %s", time_text(clock_wall_ms(), time), names[level], message);
    }
    size_t len = n < 0 ? 0 : (size_t)n;
    *text_at = len - strlen(message);
    if (fields[0] != '\0' && len < LOG_LINE - 2) {
        line[len++] = ' ';
        n = vsnprintf(line + len, LOG_LINE - len, fields, args);
        len += n < 0 ? 0 : (size_t)n;
    }
    if (len >= LOG_LINE) {
        len = LOG_LINE - 1;
        memcpy(line + len - 3, "...", 3);
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c < 0x20 || c == 0x7f) {
            line[i] = '?';
        }
    }
    line[len++] = '\n';
    return len;
}

void log_write(enum log_level level, const char *message, const char *fields, ...)
{
    if (!log_wants(level)) {
        return;
    }
    pthread_once(&once, find_journal);

    char line[LOG_LINE + 1]; /* and the newline in place of the final NUL */
    size_t text_at;
    va_list args;
    va_start(args, fields);
    size_t len = compose(line, &text_at, level, message, fields, args);
    va_end(args);
    if (level <= LOG_LEVEL_WARN) {
        keep_recent(level, line + text_at, len - 1 - text_at);
    }
    if (!log_ring_put(line, len) && write(STDERR_FILENO, line, len) < 0) {
        return; /* there is nowhere left to say so */
    }
}

static size_t compose_note(char *line, const char *fields, ...)
{
    size_t text_at;
    va_list args;
    va_start(args, fields);
    size_t len = compose(line, &text_at, LOG_LEVEL_WARN, "lines of the log were lost, nothing took them", fields, args);
    va_end(args);
    return len;
}

static size_t note_lost(char *line, uint64_t lines)
{
    return compose_note(line, "lines=%" PRIu64, lines);
}

int log_begin(struct err *err)
{
    pthread_once(&once, find_journal);
    return log_ring_begin(note_lost, err);
}

void log_last(const char *text)
{
    char line[LOG_RING_LINE];
    int n = snprintf(line, sizeof line, "%s\n", text);
    size_t len = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
    line[len - 1] = '\n';
    if (!log_ring_put(line, len) && write(STDERR_FILENO, line, len) < 0) {
        return;
    }
    log_ring_flush();
}

void log_figures_each(figure_visit *visit, void *arg)
{
    static const struct figure lost = {"log_lines_lost", "log_lines_lost_total", FIGURE_COUNTER,
                                       "Lines of the log that were lost, since nothing read it."};
    static const struct figure waiting = {"log_bytes_waiting", "log_waiting_bytes", FIGURE_GAUGE,
                                          "What is logged and not written yet, since nothing reads it."};
    struct log_ring_state state;
    log_ring_look(&state);
    visit(arg, &lost, state.lost);
    visit(arg, &waiting, state.waiting);
}

const char *log_quote(struct slice text)
{
    static _Thread_local char buffers[QUOTE_BUFFERS][4 * QUOTE_BYTES + sizeof "\"...\""];
    static _Thread_local unsigned next;
    static const char hex[] = "0123456789abcdef";

    char *start = buffers[next++ % QUOTE_BUFFERS];
    char *out = start;
    size_t n = text.len < QUOTE_BYTES ? text.len : QUOTE_BYTES;
    *out++ = '"';
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            *out++ = (char)c;
        } else {
            *out++ = '\\';
            *out++ = 'x';
            *out++ = hex[c >> 4];
            *out++ = hex[c & 15];
        }
    }
    if (n < text.len) {
        memcpy(out, "...", 3);
        out += 3;
    }
    *out++ = '"';
    *out = '\0';
    return start;
}

const char *log_quote_str(const char *text)
{
    return text == NULL ? "\"\"" : log_quote(slice_str(text));
}
