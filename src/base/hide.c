#include "base/hide.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether the word that ends before `at` is one that ids follow. */
static bool follows_name(const char *text, const char *at)
{
    static const char *const names[] = {"user", "item", "key", "object", "session", "is"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);
        if ((size_t)(at - text) >= len && memcmp(at - len, names[i], len) == 0) {
            return at - len == text || !(isalnum((unsigned char)at[-(long)len - 1]) || at[-(long)len - 1] == '_');
        }
    }
    return false;
}

/* Where the string ends that begins with so many backslashes and a quote. A string in a string has one backslash before
 * its quotes, one in that three, then seven. So a character of it that is escaped has twice as many and two more. */
static char *end_of_quoted(char *at, size_t backslashes)
{
    size_t run = 0;
    for (at += backslashes + 1; *at != '\0'; at++) {
        if (*at == '"' && run % (2 * (backslashes + 1)) == backslashes) {
            return at + 1;
        }
        run = *at == '\\' ? run + 1 : 0;
    }
    return at;
}

void hide_ids(char *text)
{
    for (char *at = text; (at = strpbrk(at, " =")) != NULL;) {
        bool field = *at == '=';
        bool named = follows_name(text, at);
        at++;
        if (!named) {
            continue;
        }
        size_t backslashes = strspn(at, "\\");
        char *end = at[backslashes] == '"' ? end_of_quoted(at, backslashes) : field ? at + strcspn(at, " \"\\") : at;
        if (end > at) {
            *at++ = '-';
            memmove(at, end, strlen(end) + 1);
        }
    }
}

void hide_ids_copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
    hide_ids(out);
}
