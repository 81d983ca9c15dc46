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

static bool good_id(struct slice id)
{
    return id.len - 1 < ID_MAX;
}

static bool check_name(struct resp_client *s, const char *what, struct slice id, enum outcome *refused)
{
    if (good_id(id)) {
        return true;
    }
    struct err err = {0};
    dedup_check_id(what, 0, id, &err);
    *refused = resp_client_refuse(s, "ERR %s", err.text);
    return false;
}

bool args_check_user(struct resp_client *s, struct slice user, enum outcome *refused)
{
    return check_name(s, "user", user, refused);
}

bool args_check_session(struct resp_client *s, struct slice name, enum outcome *refused)
{
    return check_name(s, "session", name, refused);
}

bool args_check_items(struct resp_client *s, const struct slice *items, size_t n, enum outcome *refused)
{
    struct err err;
    if (dedup_check_items(items, n, &err) < 0) {
        *refused = resp_client_refuse(s, "ERR %s", err.text);
        return false;
    }
    return true;
}

const uint64_t *args_hash(struct resp_client *s, const struct slice *items, size_t n, enum outcome *refused)
{
    struct worker *w = s->conn.worker;
    struct err err;
    if (dedup_hash_items(w->dedup, items, n, w->hashes, &err) < 0) {
        *refused = resp_client_refuse(s, "ERR %s", err.text);
        return NULL;
    }
    return w->hashes;
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
