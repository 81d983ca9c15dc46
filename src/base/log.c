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
    MESSAGE_MAX = 320, /* as of an error; longer ones are cut */
    ESCAPE = 8,        /* bytes that one character takes at most */
    LIMIT_US = 10 * 1000 * 1000,
};

static const char *const names[] = {"error", "warn", "info", "debug"};
static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};

static atomic_int max_level = LOG_LEVEL_INFO, format = LOG_FORMAT_LOGFMT;
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

void log_set_format(enum log_format as)
{
    atomic_store(&format, (int)as);
}

void log_set_level(enum log_level level)
{
    atomic_store(&max_level, (int)level);
}

bool log_again(struct log_limit *limit)
{
    int64_t now = clock_real_us() + 1; /* never 0, which is "not yet" */
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

/* Control bytes, also those above 0x7f, and characters that turn the direction of what follows: a terminal would obey
 * them. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

static uint32_t character(const char *text, size_t len)
{
    const unsigned char *t = (const unsigned char *)text;
    uint32_t c = len == 1 ? t[0] : len == 2 ? t[0] & 0x1fu : len == 3 ? t[0] & 0xfu : t[0] & 7u;
    for (size_t i = 1; i < len; i++) {
        c = c << 6 | (t[i] & 0x3fu);
    }
    return c;
}

/* The character that the text begins with, as it stands between double quotes in logfmt and in JSON alike. A byte that
 * is not UTF-8 becomes \\xNN: the text \xNN. Returns how many bytes of the text those are; *n: of out. */
static size_t escape(const char *text, size_t len, char out[ESCAPE], size_t *n)
{
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *at;
    size_t used = utf8_len(text, len);
    if (used == 0) {
        *n = (size_t)snprintf(out, ESCAPE, "\\\\x%02x", (unsigned char)*text);
        return 1;
    }
    uint32_t c = character(text, used);
    if (*text != '\0' && (at = strchr(plain, *text)) != NULL) {
        out[0] = '\\';
        out[1] = letters[at - plain];
        *n = 2;
    } else if (is_control(c)) {
        *n = (size_t)snprintf(out, ESCAPE, "\\u%04" PRIx32, c);
    } else {
        memcpy(out, text, used);
        *n = used;
    }
    return used;
}

/* --- a line --- */

struct line {
    char *text;
    size_t len, most; /* at most of bytes, without the newline and what ends the line */
};

static bool line_has_room(const struct line *l, size_t n)
{
    return n <= l->most - l->len;
}

static bool line_add(struct line *l, const char *text, size_t n)
{
    if (!line_has_room(l, n)) {
        return false;
    }
    memcpy(l->text + l->len, text, n);
    l->len += n;
    return true;
}

static bool line_adds(struct line *l, const char *text)
{
    return line_add(l, text, strlen(text));
}

static bool line_quote(struct line *l, struct slice text)
{
    char out[ESCAPE];
    bool fits = line_adds(l, "\"");
    for (size_t i = 0, n; i < text.len && fits;) {
        i += escape(text.data + i, text.len - i, out, &n);
        fits = line_add(l, out, n);
    }
    return line_adds(l, "\"") && fits;
}

/* Ids in hexadecimal and versions are text, also those that look like a number: a name has one type. */
static bool is_text(struct slice name)
{
    static const char *const texts[] = {"seed",   "node",    "run",        "replica", "version",
                                        "sqlite", "libuv",   "xxhash",     "zstd",    "http_parser",
                                        "llhttp", "jansson", "librdkafka", "librados"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (slice_eq(name, slice_str(texts[i]))) {
            return true;
        }
    }
    return false;
}

/* A number as JSON has them; what else stands without quotes is text there. */
static bool is_number(struct slice t)
{
    size_t i = t.len > 0 && t.data[0] == '-', whole = i;
    while (i < t.len && t.data[i] >= '0' && t.data[i] <= '9') {
        i++;
    }
    if (i == whole || (t.data[whole] == '0' && i > whole + 1)) {
        return false;
    }
    size_t point = i;
    if (i < t.len && t.data[i] == '.') {
        for (i++; i < t.len && t.data[i] >= '0' && t.data[i] <= '9'; i++) {
        }
    }
    return i == t.len && i != point + 1;
}

/* A field as it was formatted: name=value. */
struct field {
    struct slice whole, name, value;
    bool quoted;
};

/* Returns whether there is one, and all of it. */
static bool next_field(const char **at, struct field *f)
{
    const char *start = *at + strspn(*at, " "), *equals = strpbrk(start, " =");
    if (equals == NULL || *equals != '=') {
        *at = start;
        return false;
    }
    const char *end = equals + 1;
    f->quoted = *end == '"';
    if (f->quoted) {
        for (end++; *end != '\0' && *end != '"'; end++) {
            end += *end == '\\' && end[1] != '\0';
        }
        if (*end == '\0') {
            return false;
        }
        end++;
    } else {
        end += strcspn(end, " ");
    }
    f->name = slice_of(start, (size_t)(equals - start));
    f->value = slice_of(equals + 1, (size_t)(end - equals - 1));
    f->whole = slice_of(start, (size_t)(end - start));
    *at = end;
    return true;
}

/* Whole or not at all. */
static bool line_field(struct line *l, const struct field *f, enum log_format as)
{
    size_t before = l->len;
    bool fits;
    if (as == LOG_FORMAT_LOGFMT) {
        fits = line_adds(l, " ") && line_add(l, f->whole.data, f->whole.len);
    } else {
        fits = line_adds(l, ",") && line_quote(l, f->name) && line_adds(l, ":") &&
               (f->quoted || (is_number(f->value) && !is_text(f->name)) ? line_add(l, f->value.data, f->value.len)
                                                                        : line_quote(l, f->value));
    }
    if (!fits) {
        l->len = before;
    }
    return fits;
}

static void line_head(struct line *l, enum log_format as, enum log_level level, const char *message)
{
    char time[TIME_TEXT];
    if (to_journal) {
        line_adds(l, priorities[level]);
    }
    if (as == LOG_FORMAT_JSON) {
        line_adds(l, "{\"time\":\"");
        line_adds(l, time_text(clock_wall_ms(), time));
        line_adds(l, "\",\"level\":\"");
        line_adds(l, names[level]);
        line_adds(l, "\",\"message\":");
        line_quote(l, slice_of(message, strnlen(message, MESSAGE_MAX)));
        return;
    }
    if (!to_journal) {
        line_adds(l, time_text(clock_wall_ms(), time));
        line_adds(l, " ");
        line_adds(l, names[level]);
        line_adds(l, " ");
    }
    line_add(l, message, strnlen(message, MESSAGE_MAX));
}

/* Returns the line's length with its newline. */
static size_t compose(char out[LOG_LINE], enum log_level level, const char *message, const char *fields)
{
    static const char cut[] = ",\"cut\":true}\n"; /* the longest end */
    enum log_format as = (enum log_format)atomic_load_explicit(&format, memory_order_relaxed);
    struct line l = {out, 0, LOG_LINE - sizeof cut};
    struct field f;
    bool whole = true;
    line_head(&l, as, level, message);
    while (whole && next_field(&fields, &f)) {
        whole = line_field(&l, &f, as);
    }
    whole = whole && *fields == '\0';
    l.most = LOG_LINE;
    if (!whole) {
        line_adds(&l, as == LOG_FORMAT_JSON ? ",\"cut\":true" : " cut=true");
    }
    line_adds(&l, as == LOG_FORMAT_JSON ? "}\n" : "\n");
    return l.len;
}

static void keep_recent(enum log_level level, const char *message, const char *fields)
{
    pthread_mutex_lock(&recent_lock);
    struct log_recent *r = &recent[recent_n++ % LOG_RECENT];
    struct line l = {r->text, 0, sizeof r->text - 1};
    r->at_ms = clock_wall_ms();
    r->level = level;
    line_add(&l, message, strnlen(message, MESSAGE_MAX));
    if (fields[0] != '\0') {
        line_adds(&l, " ");
        line_add(&l, fields, strnlen(fields, l.most - l.len));
    }
    r->text[l.len] = '\0';
    pthread_mutex_unlock(&recent_lock);
}

static void put(const char *line, size_t len)
{
    if (!log_ring_put(line, len) && write(STDERR_FILENO, line, len) < 0) {
        return; /* there is nowhere left to say so */
    }
}

void log_write(enum log_level level, const char *message, const char *fields, ...)
{
    if (!log_wants(level)) {
        return;
    }
    pthread_once(&once, find_journal);

    char line[LOG_LINE], text[2 * LOG_LINE];
    va_list args;
    va_start(args, fields);
    vsnprintf(text, sizeof text, fields, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c; /* of what should have been quoted */
    }
    if (level <= LOG_LEVEL_WARN) {
        keep_recent(level, message, text);
    }
    put(line, compose(line, level, message, text));
}

static size_t note_lost(char *line, uint64_t lines)
{
    char text[32];
    snprintf(text, sizeof text, "lines=%" PRIu64, lines);
    return compose(line, LOG_LEVEL_WARN, "lines of the log were lost, nothing took them", text);
}

int log_begin(struct err *err)
{
    pthread_once(&once, find_journal);
    return log_ring_begin(note_lost, err);
}

void log_last(const char *text)
{
    char line[LOG_LINE];
    size_t len;
    if (atomic_load(&format) == LOG_FORMAT_JSON) {
        pthread_once(&once, find_journal);
        len = compose(line, LOG_LEVEL_ERROR, text, "");
    } else {
        struct line l = {line, 0, LOG_LINE};
        line_adds(&l, "unseen: ");
        line_add(&l, text, strnlen(text, LOG_LINE / 2));
        line_adds(&l, "\n");
        len = l.len;
    }
    put(line, len);
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
    static _Thread_local char buffers[QUOTE_BUFFERS][ESCAPE * QUOTE_BYTES + sizeof "\"...\""];
    static _Thread_local unsigned next;

    char *start = buffers[next++ % QUOTE_BUFFERS], piece[ESCAPE];
    struct line l = {start, 0, sizeof buffers[0] - 1};
    line_adds(&l, "\"");
    size_t i = 0, n, used;
    while (i < text.len && i + (used = escape(text.data + i, text.len - i, piece, &n)) <= QUOTE_BYTES) {
        line_add(&l, piece, n);
        i += used;
    }
    line_adds(&l, i < text.len ? "...\"" : "\"");
    start[l.len] = '\0';
    return start;
}

const char *log_quote_str(const char *text)
{
    return text == NULL ? "\"\"" : log_quote(slice_str(text));
}
