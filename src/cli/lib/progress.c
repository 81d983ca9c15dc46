#include "cli/lib/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    REDRAW_US = 100 * 1000,
    GUESS_AFTER_US = 1000 * 1000, /* the time left is a wild guess before */
    BAR_MIN = 10,
    BAR_MAX = 40,
    WIDTH_MAX = 200,
};

void progress_begin(struct progress *p, const char *label, bool quiet)
{
    const char *term = getenv("TERM");
    bool able = isatty(STDERR_FILENO) && (term == NULL || strcmp(term, "dumb") != 0);
    *p = (struct progress){.label = label, .shown = able && !quiet, .began_us = clock_figures_us()};
}

static void left_text(char *out, size_t size, uint64_t done, uint64_t total, int64_t elapsed_us)
{
    out[0] = '\0';
    if (done > 0 && done < total && elapsed_us >= GUESS_AFTER_US) {
        double seconds = (double)elapsed_us / 1e6 * (double)(total - done) / (double)done;
        unsigned long long s = (unsigned long long)(seconds < 1e9 ? seconds : 1e9);
        snprintf(out, size, "  %llu:%02llu left", s / 60, s % 60);
    }
}

void progress_line(char *out, size_t out_size, size_t width, const char *label, uint64_t done, uint64_t total,
                   int64_t elapsed_us, const char *note)
{
    size_t size = width < out_size ? width + 1 : out_size;
    if (total == 0) {
        snprintf(out, size, "%s  %s", label, note);
        return;
    }
    done = done < total ? done : total;
    double part = (double)done / (double)total;
    char tail[256], left[64];
    left_text(left, sizeof(left), done, total, elapsed_us);
    snprintf(tail, sizeof(tail), "%3d%%  %s%s", (int)(part * 100), note, left);
    size_t around = strlen(label) + strlen(tail) + 4; /* " [" and "] " */
    size_t room = size - 1 > around ? size - 1 - around : 0;
    if (room < BAR_MIN) {
        snprintf(out, size, "%s %s", label, tail);
        return;
    }
    char bar[BAR_MAX + 1];
    size_t wide = room < BAR_MAX ? room : BAR_MAX;
    size_t full = (size_t)(part * (double)wide);
    memset(bar, ' ', wide);
    memset(bar, '=', full);
    if (full < wide) {
        bar[full] = '>';
    }
    bar[wide] = '\0';
    snprintf(out, size, "%s [%s] %s", label, bar, tail);
}

/* One write, so that nothing comes between. There is nowhere to say that a progress bar can't be written. */
static void put(const char *text, size_t len)
{
    if (write(STDERR_FILENO, text, len) < 0) {
        return;
    }
}

void progress_show(struct progress *p, uint64_t done, uint64_t total, const char *note, ...)
{
    if (!p->shown) {
        return;
    }
    int64_t now = clock_figures_us();
    if (p->drawn_us != 0 && now - p->drawn_us < REDRAW_US) {
        return;
    }
    p->drawn_us = now;
    struct winsize window;
    size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
    char text[128];
    va_list args;
    va_start(args, note);
    vsnprintf(text, sizeof(text), note, args);
    va_end(args);
    char line[WIDTH_MAX + 8];
    line[0] = '\r';
    progress_line(line + 1, WIDTH_MAX, width - 1, p->label, done, total, p->known ? 0 : now - p->began_us, text);
    strcat(line, "\033[K");
    put(line, strlen(line));
}

static void wipe(struct progress *p)
{
    static const char line[] = "\r\033[K";
    if (p->drawn_us != 0) {
        put(line, sizeof(line) - 1);
    }
    p->drawn_us = 0;
}

void progress_say(struct progress *p, const char *line, ...)
{
    va_list args;
    if (p != NULL) {
        wipe(p);
    }
    va_start(args, line);
    vfprintf(stderr, line, args);
    va_end(args);
}

void progress_end(struct progress *p)
{
    wipe(p);
    p->shown = false;
}
