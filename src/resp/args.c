#include "resp/args.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/plural.h"

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

/* --- by the table --- */

/* Of one word. */
static bool read_one(struct resp_client *s, const struct field *f, struct slice arg, struct asked *asked,
                     enum outcome *refused)
{
    void *to = field_at(f, asked);
    bool good = true;
    switch (f->type) {
    case FIELD_FORM:
        good = fields_form(arg, true, to);
        break;
    case FIELD_NUMBER:
        good = *(bool *)field_given(f, asked) = arg_int(arg, to);
        break;
    case FIELD_FLAG:
        *(bool *)to = true;
        break;
    case FIELD_TEXTS: { /* too many are refused by their number */
        size_t *n = field_given(f, asked);
        asked->names[*n % POOLS_OF_A_QUESTION] = arg;
        *(const struct slice **)to = asked->names;
        ++*n;
        break;
    }
    default:
        *(struct slice *)to = arg;
        break;
    }
    if (!good) {
        *refused =
            resp_client_refuse(s, "ERR %s must be %s, got '%.*s'", f->word, f->expected, arg_shown(arg), arg.data);
    }
    return good;
}

static void read_rest(const struct field *f, const struct slice *args, size_t n, struct asked *asked)
{
    *(const struct slice **)field_at(f, asked) = args;
    *(size_t *)field_given(f, asked) = n;
}

const struct slice *args_pairs(struct resp_client *s, const struct slice *args, size_t n)
{
    struct service_loop *l = service_of(&s->conn);
    l->pairs = l->pairs != NULL ? l->pairs : malloc(PARSER_ARGS_MAX * sizeof *l->pairs);
    for (size_t i = 0; i < n && l->pairs != NULL; i++) {
        l->pairs[i] = args[2 * i];
        l->pairs[n + i] = args[2 * i + 1];
    }
    return l->pairs;
}

static bool read_pairs(struct resp_client *s, const struct field *f, const struct slice *args, size_t n,
                       struct asked *asked, enum outcome *refused)
{
    if (n == 0 || n % 2 != 0) {
        *refused = resp_client_refuse(s, "ERR behind %s stand an item and its group, again and again, got %zu word%s",
                                      f->word, n, plural(n));
        return false;
    }
    const struct slice *pairs = args_pairs(s, args, n / 2);
    if (pairs == NULL) {
        *refused = resp_client_refuse(s, "OOM out of memory");
        return false;
    }
    asked->rq.items = pairs;
    read_rest(f, pairs + n / 2, n / 2, asked);
    asked->rq.n = n / 2;
    return true;
}

static const struct field *find_option(unsigned of, struct slice word)
{
    const struct field *f = request_fields;
    while (f->name != NULL && ((f->option & of) == 0 || !arg_is(word, f->word))) {
        f++;
    }
    return f->name != NULL ? f : NULL;
}

static bool refuse_option(struct resp_client *s, unsigned of, struct slice arg, struct slice first,
                          enum outcome *refused)
{
    char words[FIELDS_TEXT];
    *refused =
        of == OF_MERGE
            ? resp_client_refuse(s, "ERR behind the users MERGE takes FORGET, got '%.*s'", arg_shown(arg), arg.data)
        : of == OF_WHY ? resp_client_refuse(s, "ERR behind the item WHY takes SESSION id and POLICY name, got '%.*s'",
                                            arg_shown(first), first.data)
                       : resp_client_refuse(s, "ERR unknown option '%.*s' of FILTER: expected %s", arg_shown(arg),
                                            arg.data, fields_words(of, words));
    return false;
}

/* "2 a b", from args[*i] on, which is left at the last. */
static bool read_counted(struct resp_client *s, const struct field *f, const struct slice *args, size_t n, size_t *i,
                         struct asked *asked, enum outcome *refused)
{
    int64_t count;
    if (!arg_int(args[*i], &count) || count < 1) {
        *refused = resp_client_refuse(s, "ERR %s must be %s, got '%.*s'", f->word, f->expected, arg_shown(args[*i]),
                                      args[*i].data);
        return false;
    }
    if ((uint64_t)count > n - *i - 1) {
        *refused = resp_client_refuse(s, "ERR %s says that %lld items follow, and %zu words do", f->word,
                                      (long long)count, n - *i - 1);
        return false;
    }
    read_rest(f, args + *i + 1, (size_t)count, asked);
    *i += (size_t)count;
    return true;
}

static bool read_options(struct resp_client *s, unsigned of, const struct slice *args, size_t n, size_t at,
                         struct asked *asked, enum outcome *refused)
{
    uint64_t given = 0; /* bits of rows */
    for (size_t i = at; i < n; i++) {
        const struct field *f = find_option(of, args[i]);
        if (f != NULL && f->pairs) {
            return read_pairs(s, f, args + i + 1, n - i - 1, asked, refused);
        }
        if (f != NULL && f->type == FIELD_IDS && !f->counted) {
            read_rest(f, args + i + 1, n - i - 1, asked);
            return true;
        }
        bool has_value = f != NULL && f->type != FIELD_FLAG;
        if (f == NULL || i + has_value >= n) {
            return refuse_option(s, of, args[i], args[at], refused);
        }
        uint64_t bit = (uint64_t)1 << (f - request_fields);
        if ((given & bit) != 0 && f->type != FIELD_TEXTS) {
            *refused = args_refuse_twice(s, f->word);
            return false;
        }
        given |= bit;
        i += has_value;
        if (f->counted ? !read_counted(s, f, args, n, &i, asked, refused) : !read_one(s, f, args[i], asked, refused)) {
            return false;
        }
    }
    return true;
}

bool args_read(struct resp_client *s, unsigned of, const struct slice *args, size_t n, size_t at, struct asked *asked,
               enum outcome *refused)
{
    const struct field *list = NULL;
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->place & of) == 0) {
            continue;
        }
        if (f->type == FIELD_IDS) {
            list = f;
        } else if (!read_one(s, f, args[at++], asked, refused)) {
            return false;
        }
    }
    if (list != NULL) {
        const struct field *pairs = n - at > 1 ? find_option(of, args[at]) : NULL; /* alone it is an item */
        if (pairs != NULL) {
            return read_pairs(s, pairs, args + at + 1, n - at - 1, asked, refused);
        }
        read_rest(list, args + at, n - at, asked);
        return true;
    }
    return read_options(s, of, args, n, at, asked, refused);
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
