/* The fields of requests: one table, for all operations and all edges. RESP reads its options and arguments by it, HTTP
 * its bodies, gRPC its messages, a batch knows from it what is of one user alone, COMMAND DOCS is made of it, and
 * tests/unit/test_fields.c compares it with unseen.proto, openapi.json and docs/commands.md.
 *
 * How a field is added, say a flag FRESH of FILTER:
 * - a member of struct request (`bool fresh`), and a row here: {"fresh", FIELD_FLAG, AT(rq.fresh), its number in
 *   unseen.proto, .http = OF_FILTER, .grpc = OF_FILTER, .option = OF_FILTER, .word = "FRESH", .syntax = "[FRESH]"}.
 * Every edge reads it from then on, refuses it by its name where its type is wrong, keeps it while a request is late,
 * and lists it among what it expected.
 * - what it means, where questions are asked (ask.c); what it excludes (check.c).
 * - its line in unseen.proto, openapi.json and docs/commands.md, which the test asks for; good values and, of RESP, bad
 *   ones in tests/e2e/test_fields.py, which then writes what each edge answers into tests/data/fields.
 * A new type is a member of enum field_type, and a case in each of the three readers: http/json.c, resp/args.c and
 * grpc/message.c. */
#ifndef UNSEEN_SERVICE_FIELDS_H
#define UNSEEN_SERVICE_FIELDS_H

#include "dedup/pools.h"
#include "service/batch.h"
#include "service/request.h"

/* Operations, as bits. */
enum {
    OF_FILTER = 1 << 0,
    OF_FILTER_MANY = 1 << 1,
    OF_HASHES = 1 << 2, /* FILTER, where the query of a URL has its options */
    OF_UNSEEN = 1 << 3, /* and SEEN */
    OF_PLAYED = 1 << 4,
    OF_PLAYEDAT = 1 << 5,
    OF_DELIVERED = 1 << 6,
    OF_WHY = 1 << 7,
    OF_HISTORY = 1 << 8,
    OF_FORGET = 1 << 9,
    OF_BLOCK = 1 << 10,
    OF_UNBLOCK = 1 << 11,
    OF_POOL_SET = 1 << 12,
    OF_POOL_ADD = 1 << 13,
    OF_POOL_POST = 1 << 14, /* HTTP's, which adds or renames */
    OF_POOL_RENAME = 1 << 15,
    OF_POOL_DROP = 1 << 16,
    OF_POOL_LIST = 1 << 17,
    OF_POOL_GET = 1 << 18,
    OF_EXPOSURE = 1 << 19,
    OF_MERGE = 1 << 20,
};

enum field_type {
    FIELD_ID,     /* of a user or an item: struct slice. Any bytes; in protobuf a string, or bytes as binary_NAME */
    FIELD_IDS,    /* struct slice *, and how many behind it, at `given` */
    FIELD_TEXT,   /* a name: struct slice, data NULL: not given */
    FIELD_TEXTS,  /* as ids */
    FIELD_BYTES,  /* as a text; not in JSON */
    FIELD_FORM,   /* enum question_form */
    FIELD_NUMBER, /* int64_t, and a bool at `given` unless that is 0 */
    FIELD_FLAG,   /* bool */
};

/* What an edge has read. */
struct asked {
    struct request rq; /* the first: what is in it has the same offset in both */
    const struct slice *users;
    size_t n_users;
    struct slice item;                       /* of WHY */
    struct slice hashes;                     /* rq.items points to it where rq.hashed */
    struct slice names[POOLS_OF_A_QUESTION]; /* room for pools; of a change: its name, and the new one */
    uint64_t from, count, tag;
    bool all;
};

struct field {
    const char *name; /* in JSON and protobuf */
    enum field_type type;
    size_t to, given;       /* offsets in struct asked */
    uint8_t number, binary; /* in protobuf, and that of binary_NAME; 0: it has none */
    unsigned http, grpc;    /* the operations that have it there, */
    unsigned place, option; /* and in RESP: by its place, or behind its word */
    unsigned needed;        /* that are refused without it (http), or show it so (place) */
    unsigned hidden;        /* that read it only to refuse it */
    const char *since;      /* which release has it; NULL: the first. docs/commands.md says it */
    bool counted;           /* a list of RESP: its word, how many follow, and they */
    bool pairs;             /* a list of RESP: each of its words stands behind an item, both behind its word */
    bool last;              /* RESP lists it behind the other options */
    const char *word;       /* RESP's; NULL: it is not there */
    const char *syntax;     /* of an option. What begins with '|' stands there instead of what is before it */
    const char *expected;   /* a form or number in RESP: "LIMIT must be ..., got '0'" */
    size_t room;            /* where a list of JSON and protobuf stands in the loop's room for ids, */
    size_t most;            /* and how many it has at most there; 0: ITEMS_MAX. Of a number in a query: the largest */
    int64_t least;          /* of a number; 0: any */
};

enum { FIELDS_SLICES = 2 * ITEMS_MAX + BATCH_USERS_MAX + EXCLUDE_MAX }; /* that room */

/* The last row has no name. */
extern const struct field request_fields[];

static inline void *field_at(const struct field *f, struct asked *asked)
{
    return (char *)asked + f->to;
}

static inline void *field_given(const struct field *f, struct asked *asked)
{
    return (char *)asked + f->given;
}

static inline void field_set_number(const struct field *f, struct asked *asked, int64_t value, bool given)
{
    *(int64_t *)field_at(f, asked) = value;
    if (f->given != 0) {
        *(bool *)field_given(f, asked) = given;
    }
}

/* "items", "indexes" or "bitmap". */
bool fields_form(struct slice text, bool any_case, enum question_form *form);

/* "user, items and at": what the operation expects over HTTP. */
enum { FIELDS_TEXT = 160, FIELDS_MAX = 64 /* rows: a bit of each says what was given */ };
const char *fields_expected(unsigned of, char out[FIELDS_TEXT]);

/* "SESSION, LIMIT, POOL or ITEMS": which words it expects in RESP. */
const char *fields_words(unsigned of, char out[FIELDS_TEXT]);

/* "user [SESSION id] ITEMS item [item ...]": what stands behind its name in RESP. */
enum { FIELDS_SYNTAX = 512 };
const char *fields_syntax(unsigned of, char out[FIELDS_SYNTAX]);

/* What was read becomes what is asked: hashes and the item of WHY are items, names are those of a pool that changes. */
void fields_complete(struct asked *asked);

/* The name of a field that was read to be refused; NULL: none. */
const char *fields_hidden(unsigned of, const struct request *rq);

/* Rules of one field alone: 0, or ERR_INVALID. */
int fields_check(const struct request *rq, struct err *err);

/* The i-th text of a request beside its lists, from 0 on; NULL: there are no more. What keeps a request, or finds its
 * bytes at another place, goes through them. */
enum { FIELDS_TEXTS = 8 }; /* at most */
struct slice *fields_text(struct request *rq, size_t i);

#endif
