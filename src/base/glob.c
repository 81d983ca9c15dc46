#include "base/glob.h"

#include <ctype.h>

static int low(char c)
{
    return tolower((unsigned char)c);
}

/* One of a set, which begins behind its '['. *end is set behind the ']'; one that is missing is no error. */
static bool set_fits(const char *at, const char *stop, int c, const char **end)
{
    bool inverted = at < stop && *at == '^', found = false;
    at += inverted;
    while (at < stop && *at != ']') {
        if (*at == '\\' && stop - at > 1) {
            at++;
        }
        int from = low(*at), to = from;
        if (stop - at > 2 && at[1] == '-' && at[2] != ']') {
            to = low(at[2]);
            at += 2;
        }
        at++;
        found = found || (from <= to ? from <= c && c <= to : to <= c && c <= from);
    }
    *end = at < stop ? at + 1 : stop;
    return found != inverted;
}

/* Whether one byte fits what stands at `at`, which is no '*'. *end is set behind it. */
static bool byte_fits(const char *at, const char *stop, int c, const char **end)
{
    if (*at == '[') {
        return set_fits(at + 1, stop, c, end);
    }
    if (*at == '\\' && stop - at > 1) {
        at++;
    } else if (*at == '?') {
        *end = at + 1;
        return true;
    }
    *end = at + 1;
    return low(*at) == c;
}

/* Where something does not fit, only the last '*' may take a byte more: what the ones before it took was as good as
 * anything, so none of them is tried again. */
bool glob_fits(struct slice pattern, struct slice text)
{
    const char *p = pattern.data, *p_end = p + pattern.len;
    const char *t = text.data, *t_end = t + text.len;
    const char *star = NULL, *taken = NULL; /* behind the last '*', and up to where it reaches */
    while (t < t_end) {
        const char *next = NULL;
        if (p < p_end && *p == '*') {
            star = ++p;
            taken = t;
        } else if (p < p_end && byte_fits(p, p_end, low(*t), &next)) {
            p = next;
            t++;
        } else if (star != NULL) {
            p = star;
            t = ++taken;
        } else {
            return false;
        }
    }
    while (p < p_end && *p == '*') {
        p++;
    }
    return p == p_end;
}
