#include "service/fields.h"

#include <stdio.h>
#include <string.h>

#define AT(member) .to = offsetof(struct asked, member)
#define GIVEN(member) .given = offsetof(struct asked, member)

enum {
    OF_RECORDS = OF_PLAYED | OF_DELIVERED,
    OF_SESSIONS = OF_BLOCK | OF_UNBLOCK,
    OF_CHANGES = OF_POOL_SET | OF_POOL_ADD | OF_POOL_RENAME | OF_POOL_DROP, /* of one message in unseen.proto */
    OF_QUESTIONS = OF_FILTER | OF_FILTER_MANY,
};

/* In the order in which what is expected is listed. */
const struct field request_fields[] = {
    {"user", FIELD_ID, AT(rq.user), .number = 1, .binary = 7, .http = OF_FILTER | OF_RECORDS | OF_WHY,
     .grpc = OF_FILTER | OF_RECORDS | OF_WHY | OF_HISTORY | OF_FORGET,
     .place = OF_FILTER | OF_UNSEEN | OF_RECORDS | OF_PLAYEDAT | OF_WHY | OF_HISTORY | OF_FORGET,
     .needed = OF_FILTER | OF_RECORDS | OF_WHY, .word = "user"},
    {"users", FIELD_IDS, AT(users), GIVEN(n_users), .number = 1, .binary = 7, .http = OF_FILTER_MANY,
     .grpc = OF_FILTER_MANY, .needed = OF_FILTER_MANY, .room = ITEMS_MAX, .most = BATCH_USERS_MAX},
    {"item", FIELD_ID, AT(item), .number = 2, .binary = 8, .http = OF_WHY, .grpc = OF_WHY, .place = OF_WHY,
     .needed = OF_WHY, .word = "item"},
    {"items", FIELD_IDS, AT(rq.items), GIVEN(rq.n), .number = 2, .binary = 8,
     .http = OF_QUESTIONS | OF_RECORDS | OF_POOL_SET | OF_POOL_POST,
     .grpc = OF_QUESTIONS | OF_RECORDS | OF_FORGET | OF_CHANGES,
     .place = OF_UNSEEN | OF_RECORDS | OF_PLAYEDAT | OF_FORGET | OF_POOL_SET | OF_POOL_ADD, .option = OF_FILTER,
     .needed = OF_UNSEEN | OF_RECORDS | OF_PLAYEDAT | OF_POOL_SET | OF_POOL_ADD, .word = "ITEMS",
     .syntax = "ITEMS item [item ...]", .last = true},
    {"at", FIELD_NUMBER, AT(rq.at_ms), GIVEN(rq.has_at), .number = 3, .http = OF_PLAYED, .grpc = OF_RECORDS,
     .place = OF_PLAYEDAT, .word = "unix_ms", .expected = "a whole number of milliseconds since 1970"},
    {"pools", FIELD_TEXTS, AT(rq.pools), GIVEN(rq.n_pools), .number = 9, .http = OF_QUESTIONS, .grpc = OF_QUESTIONS,
     .option = OF_FILTER, .word = "POOL", .syntax = "|POOL name [POOL name ...]", .last = true},
    {"pool_version", FIELD_TEXT, AT(rq.version), .number = 10, .http = OF_QUESTIONS, .grpc = OF_QUESTIONS | OF_POOL_GET,
     .option = OF_FILTER, .word = "VERSION", .syntax = "[VERSION v]", .last = true},
    {"seed", FIELD_TEXT, AT(rq.seed), .number = 12, .http = OF_HASHES, .grpc = OF_FILTER, .option = OF_FILTER,
     .word = "SEED", .syntax = "|SEED fingerprint", .last = true},
    {"hashes", FIELD_BYTES, AT(hashes), .number = 11, .grpc = OF_FILTER, .option = OF_FILTER, .word = "HASHES",
     .syntax = "HASHES hashes", .last = true},
    {"session", FIELD_TEXT, AT(rq.session), .number = 1, .http = OF_SESSIONS, .grpc = OF_SESSIONS, .place = OF_SESSIONS,
     .needed = OF_SESSIONS, .word = "session"},
    {"session", FIELD_TEXT, AT(rq.session), .number = 6, .http = OF_QUESTIONS | OF_HASHES | OF_WHY,
     .grpc = OF_QUESTIONS | OF_WHY, .option = OF_FILTER | OF_WHY, .hidden = OF_FILTER_MANY | OF_HASHES,
     .word = "SESSION", .syntax = "[SESSION id]"},
    {"ids", FIELD_IDS, AT(rq.items), GIVEN(rq.n), .number = 2, .binary = 8, .http = OF_SESSIONS, .grpc = OF_SESSIONS,
     .place = OF_SESSIONS, .needed = OF_BLOCK},
    {"exclude", FIELD_IDS, AT(rq.exclude), GIVEN(rq.n_exclude), .number = 13, .binary = 14, .http = OF_QUESTIONS,
     .grpc = OF_QUESTIONS, .option = OF_FILTER, .counted = true, .word = "EXCLUDE", .syntax = "[EXCLUDE n item ...]",
     .expected = "how many items follow, at least 1", .room = ITEMS_MAX + BATCH_USERS_MAX, .most = EXCLUDE_MAX},
    {"reply", FIELD_FORM, AT(rq.form), .number = 3, .http = OF_QUESTIONS | OF_HASHES, .grpc = OF_QUESTIONS,
     .option = OF_FILTER, .word = "REPLY", .syntax = "[REPLY ITEMS|INDEXES|BITMAP]",
     .expected = "ITEMS, INDEXES or BITMAP"},
    {"limit", FIELD_NUMBER, AT(rq.limit), GIVEN(rq.has_limit), .number = 4, .http = OF_QUESTIONS | OF_HASHES,
     .grpc = OF_QUESTIONS, .option = OF_FILTER, .word = "LIMIT", .syntax = "[LIMIT n]",
     .expected = "a whole number of at least 1", .least = 1},
    {"deliver", FIELD_FLAG, AT(rq.deliver), .number = 5, .http = OF_QUESTIONS | OF_HASHES, .grpc = OF_QUESTIONS,
     .option = OF_FILTER, .hidden = OF_FILTER_MANY | OF_HASHES, .word = "DELIVER", .syntax = "[DELIVER]"},
    {"all", FIELD_FLAG, AT(all), .number = 3, .grpc = OF_FORGET | OF_UNBLOCK},
    {"tag", FIELD_NUMBER, AT(tag), .number = 9, .grpc = OF_RECORDS},
    {"pool", FIELD_TEXT, AT(names[0]), .number = 1, .grpc = OF_CHANGES | OF_POOL_GET, .place = OF_CHANGES,
     .needed = OF_CHANGES | OF_POOL_GET, .word = "name"},
    {"rename", FIELD_TEXT, AT(names[1]), .number = 9, .http = OF_POOL_POST, .grpc = OF_CHANGES, .place = OF_POOL_RENAME,
     .needed = OF_POOL_RENAME, .word = "new_name"},
    {"from", FIELD_NUMBER, AT(from), .number = 2, .grpc = OF_POOL_GET},
    {"count", FIELD_NUMBER, AT(count), .number = 3, .grpc = OF_POOL_GET},
    {0},
};

/* A list of words, while it is written: the last one waits for what stands before it. */
struct words {
    char *out;
    size_t len;
    const char *last;
};

static void add_word(struct words *w, const char *word, const char *between)
{
    if (w->last != NULL && w->len < FIELDS_TEXT) {
        w->len += (size_t)snprintf(w->out + w->len, FIELDS_TEXT - w->len, "%s%s", w->last, between);
    }
    w->last = word;
}

static const char *end_words(struct words *w, const char *between)
{
    if (w->len > 2) {
        w->len -= 2; /* the comma */
        w->len += (size_t)snprintf(w->out + w->len, FIELDS_TEXT - w->len, "%s", between);
    }
    snprintf(w->out + w->len, FIELDS_TEXT - w->len, "%s", w->last);
    return w->out;
}

const char *fields_expected(unsigned of, char out[FIELDS_TEXT])
{
    struct words w = {.out = out, .last = NULL};
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->http & ~f->hidden & of) != 0) {
            add_word(&w, f->name, ", ");
        }
    }
    return end_words(&w, " and ");
}

/* Options before what is asked about, and of that the list which takes all that follows it at the end. */
static int rank(const struct field *f)
{
    return !f->last ? 0 : f->type != FIELD_IDS ? 1 : 2;
}

const char *fields_words(unsigned of, char out[FIELDS_TEXT])
{
    struct words w = {.out = out, .last = NULL};
    for (int r = 0; r < 3; r++) {
        for (const struct field *f = request_fields; f->name != NULL; f++) {
            if ((f->option & of) != 0 && rank(f) == r) {
                add_word(&w, f->word, ", ");
            }
        }
    }
    return end_words(&w, " or ");
}

static void add_syntax(char *out, size_t *len, const char *format, const char *word)
{
    bool joined = *len == 0 || format[0] == '|';
    *len += (size_t)snprintf(out + *len, FIELDS_SYNTAX - *len, joined ? "" : " ");
    *len += (size_t)snprintf(out + *len, FIELDS_SYNTAX - *len, format, word, word);
}

const char *fields_syntax(unsigned of, char out[FIELDS_SYNTAX])
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->place & of) != 0 && f->type != FIELD_IDS) {
            add_syntax(out, &len, "%s", f->word);
        }
    }
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->place & of) != 0 && f->type == FIELD_IDS) {
            char one[16];
            snprintf(one, sizeof one, "%.*s", (int)strlen(f->name) - 1, f->name);
            add_syntax(out, &len, (f->needed & of) != 0 ? "%s [%s ...]" : "[%s ...]", one);
        }
    }
    for (int last = 0; last < 2; last++) {
        for (const struct field *f = request_fields; f->name != NULL; f++) {
            if ((f->option & of) != 0 && f->last == last) {
                add_syntax(out, &len, f->syntax, "");
            }
        }
    }
    return out;
}

bool fields_form(struct slice text, enum question_form *form)
{
    for (enum question_form of = FORM_ITEMS; of < QUESTION_FORMS; of++) {
        if (slice_eq(text, slice_str(question_forms[of]))) {
            *form = of;
            return true;
        }
    }
    return false;
}

static bool is_text(const struct field *f)
{
    return f->type == FIELD_ID || f->type == FIELD_TEXT;
}

static bool is_given(const struct field *f, const struct request *rq)
{
    const void *to = (const char *)rq + f->to, *given = (const char *)rq + f->given;
    switch (f->type) {
    case FIELD_IDS:
    case FIELD_TEXTS:
        return *(const size_t *)given > 0;
    case FIELD_NUMBER:
        return *(const bool *)given;
    case FIELD_FLAG:
        return *(const bool *)to;
    case FIELD_FORM:
        return *(const enum question_form *)to != FORM_ITEMS;
    default:
        return ((const struct slice *)to)->data != NULL;
    }
}

const char *fields_hidden(unsigned of, const struct request *rq)
{
    const struct field *f = request_fields;
    while (f->name != NULL && ((f->hidden & of) == 0 || !is_given(f, rq))) {
        f++;
    }
    return f->word;
}

int fields_check(const struct request *rq, struct err *err)
{
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if (f->least == 0 || !is_given(f, rq)) {
            continue;
        }
        int64_t value = *(const int64_t *)(const void *)((const char *)rq + f->to);
        if (value < f->least) {
            return err_set(err, ERR_INVALID, "%s must be %s, got '%lld'", f->word, f->expected, (long long)value);
        }
    }
    return 0;
}

struct slice *fields_text(struct request *rq, size_t i)
{
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        bool is_own = is_text(f) && f->to < sizeof *rq && (f == request_fields || f[-1].to != f->to);
        if (is_own && i-- == 0) {
            return (struct slice *)(void *)((char *)rq + f->to);
        }
    }
    return NULL;
}
