#include "scenario.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void fail(const struct scenario *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", s->path, s->line);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n    %s\n", s->text);
    va_end(args);
    fflush(stderr);
    world_remove_folder(s->world.cfg.data);
    _exit(1);
}

int64_t parse_number(const struct scenario *s, const char *text)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        fail(s, "\"%s\" is not a number", text);
    }
    return n;
}

int64_t parse_duration(const struct scenario *s, const char *text)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
    char *end;
    long long n = strtoll(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (end != text && strcmp(end, units[i].name) == 0) {
            return n * units[i].ms;
        }
    }
    fail(s, "\"%s\" is not a duration such as 10s, 5min, 1h, 2d", text);
}

int64_t parse_time(const struct scenario *s, const char *text)
{
    if (strncmp(text, "now", 3) == 0) {
        return clock_wall_ms() + (text[3] ? parse_duration(s, text + 3) : 0);
    }
    struct tm tm = {0};
    int ms = 0, used = 0;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M", &tm);
    if (rest && *rest == ':') {
        rest = strptime(rest, ":%S", &tm);
    }
    if (rest && sscanf(rest, ".%3d%n", &ms, &used) == 1) {
        rest += used;
    }
    if (!rest || strcmp(rest, "Z") != 0) {
        fail(s, "\"%s\" is not a time such as 2026-11-21T10:00Z", text);
    }
    return (int64_t)timegm(&tm) * 1000 + ms;
}

void put_number(char *out, size_t size, const char *text, const char *name, int64_t number)
{
    out[0] = '\0';
    for (const char *at; (at = strstr(text, name)) != NULL; text = at + strlen(name)) {
        size_t len = strlen(out);
        snprintf(out + len, size - len, "%.*s%lld", (int)(at - text), text, (long long)number);
    }
    strncat(out, text, size - strlen(out) - 1);
}

/* \x and two hex digits become their byte. */
static void unescape(char *word)
{
    char *out = word;
    unsigned byte;
    while (*word) {
        if (sscanf(word, "\\x%2x", &byte) == 1 && byte != 0) {
            *out++ = (char)byte;
            word += 4;
        } else {
            *out++ = *word++;
        }
    }
    *out = '\0';
}

void split(const struct scenario *s, const char *text, int64_t i, struct words *w, struct buf *store)
{
    static size_t offsets[WORDS_MAX];
    buf_clear(store);
    w->n = 0;
    while (*text) {
        text += strspn(text, " \t");
        size_t len = strcspn(text, " \t");
        if (len == 0) {
            break;
        }
        char raw[LINE_SIZE], word[LINE_SIZE];
        memcpy(raw, text, len);
        raw[len] = '\0';
        text += len;
        if (i >= 0) {
            put_number(word, sizeof word, raw, "{i}", i);
        } else {
            strcpy(word, raw);
        }
        unescape(word);
        char *open = strchr(word, '[');
        int from = 0, to = 0, used = 0;
        if (!open || sscanf(open, "[%d-%d]%n", &from, &to, &used) != 2 || open[used] != '\0') {
            open = NULL;
            from = to = 0;
        } else {
            *open = '\0';
        }
        for (int k = from; k <= to; k++) {
            if (w->n == WORDS_MAX) {
                fail(s, "more than %d words", WORDS_MAX);
            }
            offsets[w->n++] = store->len;
            if (open) {
                buf_addf(store, "%s%d", word, k);
            } else {
                buf_addf(store, "%s", word);
            }
            buf_add(store, "", 1);
        }
    }
    for (int k = 0; k < w->n; k++) {
        w->word[k] = store->data + offsets[k];
    }
}

void need_words(const struct scenario *s, const struct words *w, int least)
{
    if (w->n < least) {
        fail(s, "\"%s\" needs at least %d words", w->word[0], least - 1);
    }
}

void add_word(struct scenario *s, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_addf(&s->out, "%s%s", s->out.len > 0 ? " " : "", text);
}
