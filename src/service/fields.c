#include "service/fields.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"

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
    {"user", FIELD_ID, AT(rq.user), .number = 1, .binary = 7, .http = OF_FILTER | OF_RECORDS | OF_WHY | OF_EXPOSURE,
     .grpc = OF_FILTER | OF_RECORDS | OF_WHY | OF_EXPOSURE | OF_HISTORY | OF_FORGET,
     .place = OF_FILTER | OF_UNSEEN | OF_RECORDS | OF_PLAYEDAT | OF_WHY | OF_EXPOSURE | OF_HISTORY | OF_FORGET,
     .needed = OF_FILTER | OF_RECORDS | OF_WHY | OF_EXPOSURE, .word = "user"},
    {"user", FIELD_ID, AT(rq.user), .number = 1, .binary = 7, .grpc = OF_MERGE, .place = OF_MERGE, .needed = OF_MERGE,
     .word = "from"},
    {"into", FIELD_ID, AT(rq.into), .number = 4, .binary = 8, .http = OF_MERGE, .grpc = OF_MERGE, .place = OF_MERGE,
     .needed = OF_MERGE, .word = "into"},
    {"forget", FIELD_FLAG, AT(rq.forget), .number = 5, .http = OF_MERGE, .grpc = OF_MERGE, .option = OF_MERGE,
     .word = "FORGET", .syntax = "[FORGET]"},
    {"users", FIELD_IDS, AT(users), GIVEN(n_users), .number = 1, .binary = 7, .http = OF_FILTER_MANY,
     .grpc = OF_FILTER_MANY, .needed = OF_FILTER_MANY, .room = ITEMS_MAX, .most = BATCH_USERS_MAX},
    {"item", FIELD_ID, AT(item), .number = 2, .binary = 8, .http = OF_WHY, .grpc = OF_WHY, .place = OF_WHY,
     .needed = OF_WHY, .word = "item"},
    {"items", FIELD_IDS, AT(rq.items), GIVEN(rq.n), .number = 2, .binary = 8,
     .http = OF_QUESTIONS | OF_RECORDS | OF_EXPOSURE | OF_POOL_SET | OF_POOL_POST,
     .grpc = OF_QUESTIONS | OF_RECORDS | OF_EXPOSURE | OF_FORGET | OF_CHANGES,
     .place = OF_UNSEEN | OF_RECORDS | OF_PLAYEDAT | OF_EXPOSURE | OF_FORGET | OF_POOL_SET | OF_POOL_ADD,
     .option = OF_FILTER, .needed = OF_UNSEEN | OF_RECORDS | OF_PLAYEDAT | OF_EXPOSURE | OF_POOL_SET | OF_POOL_ADD,
     .word = "ITEMS", .syntax = "ITEMS item [item ...]", .last = true},
    {"groups", FIELD_IDS, AT(rq.groups), GIVEN(rq.n_groups), .number = 16, .binary = 17,
     .http = OF_QUESTIONS | OF_DELIVERED, .grpc = OF_QUESTIONS | OF_RECORDS, .option = OF_FILTER | OF_DELIVERED,
     .word = "PAIRS", .syntax = "|PAIRS item group [item group ...]", .pairs = true, .last = true,
     .room = ITEMS_MAX + BATCH_USERS_MAX + EXCLUDE_MAX},
    {"item", FIELD_IDS, AT(rq.items), GIVEN(rq.n), .http = OF_FORGET}, /* of the query, again and again */
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
    {"policy", FIELD_TEXT, AT(rq.policy_name), .number = 15, .http = OF_QUESTIONS | OF_HASHES | OF_WHY,
     .grpc = OF_QUESTIONS | OF_WHY, .option = OF_FILTER | OF_WHY, .word = "POLICY", .syntax = "[POLICY name]"},
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
    {"relax", FIELD_FLAG, AT(rq.relax), .number = 18, .http = OF_QUESTIONS | OF_HASHES, .grpc = OF_QUESTIONS,
     .option = OF_FILTER, .word = "RELAX", .syntax = "[RELAX]"},
    {"all", FIELD_FLAG, AT(all), .number = 3, .grpc = OF_FORGET | OF_UNBLOCK},
    {"tag", FIELD_NUMBER, AT(tag), .number = 9, .grpc = OF_RECORDS},
    {"pool", FIELD_TEXT, AT(names[0]), .number = 1, .grpc = OF_CHANGES | OF_POOL_GET, .place = OF_CHANGES,
     .needed = OF_CHANGES | OF_POOL_GET, .word = "name"},
    {"rename", FIELD_TEXT, AT(names[1]), .number = 9, .http = OF_POOL_POST, .grpc = OF_CHANGES, .place = OF_POOL_RENAME,
     .needed = OF_POOL_RENAME, .word = "new_name"},
    {"from", FIELD_NUMBER, AT(from), .number = 2, .http = OF_POOL_GET, .grpc = OF_POOL_GET, .most = POOL_ITEMS_MAX},
    {"count", FIELD_NUMBER, AT(count), .number = 3, .http = OF_POOL_GET, .grpc = OF_POOL_GET, .least = 1,
     .most = ITEMS_MAX},
    {0},
};

static const char *join(const char *const *words, size_t n, const char *last, char out[FIELDS_TEXT])
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && len < FIELDS_TEXT; i++) {
        const char *between = i == 0 ? "" : i + 1 < n ? ", " : last;
        len += (size_t)snprintf(out + len, FIELDS_TEXT - len, "%s%s", between, words[i]);
    }
    return out;
}

const char *fields_expected(unsigned of, char out[FIELDS_TEXT])
{
    const char *names[FIELDS_MAX];
    size_t n = 0;
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->http & ~f->hidden & of) != 0) {
            names[n++] = f->name;
        }
    }
    return join(names, n, " and ", out);
}

/* Where it stands in RESP: by its place 0, a list behind those 1, an option 2, the candidates 3, and what takes all
 * that follows it 4; -1: it is not there. */
static int rank(const struct field *f, unsigned of)
{
    bool is_list = f->type == FIELD_IDS;
    return (f->place & of) != 0 ? is_list : (f->option & of) == 0 ? -1 : !f->last ? 2 : is_list ? 4 : 3;
}

const char *fields_words(unsigned of, char out[FIELDS_TEXT])
{
    const char *words[FIELDS_MAX];
    size_t n = 0;
    for (int r = 2; r <= 4; r++) {
        for (const struct field *f = request_fields; f->name != NULL; f++) {
            if (rank(f, of) == r) {
                words[n++] = f->word;
            }
        }
    }
    return join(words, n, " or ", out);
}

const char *fields_syntax(unsigned of, char out[FIELDS_SYNTAX])
{
    size_t len = 0;
    out[0] = '\0';
    for (int r = 0; r <= 3; r++) {
        for (const struct field *f = request_fields; f->name != NULL; f++) {
            int is = rank(f, of);
            if (is != r && (r != 3 || is != 4)) {
                continue;
            }
            char one[16], list[64];
            bool needed = (f->needed & of) != 0;
            snprintf(one, sizeof one, "%.*s", (int)strlen(f->name) - 1, f->name); /* "item" of "items" */
            snprintf(list, sizeof list, "%s%s[%s ...]", needed ? one : "", needed ? " " : "", one);
            const char *text = r == 0 ? f->word : r == 1 ? list : f->syntax;
            len +=
                (size_t)snprintf(out + len, FIELDS_SYNTAX - len, "%s%s", len == 0 || text[0] == '|' ? "" : " ", text);
        }
    }
    return out;
}

bool fields_form(struct slice text, bool any_case, enum question_form *form)
{
    for (enum question_form of = FORM_ITEMS; of < QUESTION_FORMS; of++) {
        const char *name = question_forms[of];
        bool is_it = text.len == strlen(name) && strncasecmp(text.data, name, text.len) == 0;
        if (any_case ? is_it : slice_eq(text, slice_str(name))) {
            *form = of;
            return true;
        }
    }
    return false;
}

void fields_complete(struct asked *asked)
{
    struct request *rq = &asked->rq;
    if (asked->hashes.data != NULL) {
        rq->hashed = true;
        rq->items = &asked->hashes;
        rq->n = asked->hashes.len / HASH_BYTES;
    }
    if (rq->kind == REQUEST_WHY) {
        rq->items = &asked->item;
        rq->n = 1;
    }
    if (rq->kind >= REQUEST_POOL_SET) {
        rq->pools = asked->names;
        rq->n_pools = rq->kind == REQUEST_POOL_RENAME ? 2 : 1;
    }
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
        if (f->least == 0 || f->to >= sizeof *rq || !is_given(f, rq)) {
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
