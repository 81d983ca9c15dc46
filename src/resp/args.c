#include "resp/args.h"

#include <string.h>
#include <strings.h>

enum { SHOWN_MAX = 128 };

bool arg_int(struct slice arg, int64_t *out)
{
    size_t i = 0;
    bool negative = arg.len > 0 && arg.data[0] == '-';
    i += negative;
    if (i == arg.len || (arg.data[i] == '0' && arg.len > 1)) {
        return false;
    }
    int64_t value = 0;
    for (; i < arg.len; i++) {
        char c = arg.data[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, c - '0', &value)) {
            return false;
        }
    }
    /* Summed up below zero, where there is one number more. */
    if (!negative && value == INT64_MIN) {
        return false;
    }
    *out = negative ? value : -value;
    return true;
}

bool arg_is(struct slice arg, const char *word)
{
    return strlen(word) == arg.len && strncasecmp(arg.data, word, arg.len) == 0;
}

int arg_shown(struct slice arg)
{
    return (int)(arg.len < SHOWN_MAX ? arg.len : SHOWN_MAX);
}

enum outcome args_refuse_twice(struct resp_client *s, const char *option)
{
    return resp_client_refuse(s, "ERR %s is given twice", option);
}

bool client_set_text(char out[CLIENT_NAME_MAX], struct slice text)
{
    if (text.len >= CLIENT_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '!' || text.data[i] > '~') {
            return false;
        }
    }
    memcpy(out, text.data, text.len);
    out[text.len] = '\0';
    return true;
}
