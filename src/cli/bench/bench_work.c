#include "cli/bench/bench_work.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "cli/bench/bench_ids.h"
#include "cli/bench/bench_scan.h"
#include "net/client.h"

enum {
    CHUNK = 10000,                      /* plays of one PLAYEDAT */
    CANDIDATE = 5 + BENCH_ITEM_LEN + 2, /* bytes of one in a request */
    POOL_TEXT = 256,
    POOL_PIECE = 20000,                  /* items of one POOL ADD */
    SALT_DIGITS = 9,                     /* the last ones of an item's name */
    SALT_MAX = UINT32_MAX / BENCH_LISTS, /* a tag holds both */
};

/* A list of candidates, as the end of a request. */
struct list {
    struct buf body;
    size_t head;     /* bytes of body before the first candidate */
    char *items;     /* BENCH_ITEM_LEN bytes each */
    uint8_t *played; /* a bit each, most significant first */
    uint64_t unplayed;
};

/* A piece of a month's plays, as the end of a PLAYEDAT. */
struct chunk {
    struct buf body;
    uint32_t n;
};

struct bench_works {
    const struct bench_terms *terms;
    struct zipf zipf;
    struct list lists[BENCH_LISTS];
    char question[64], play[64]; /* what stands before the user */
    struct chunk *chunks;
    uint64_t n_chunks;
    _Atomic uint64_t prepared; /* commands handed out */
    struct bench_work pings, questions, plays, preparation;
};

static uint64_t choose_user(const struct bench_works *w, struct bench_source *source)
{
    return zipf_next(&w->zipf, &source->random) - 1;
}

/* --- pings --- */

static bool next_ping(const struct bench_work *work, struct bench_source *source, struct buf *out,
                      struct bench_request *request)
{
    (void)work;
    (void)source;
    (void)request;
    buf_add(out, "*1\r\n$4\r\nPING\r\n", 14);
    return true;
}

static bool check_ping(const struct bench_work *work, uint32_t tag, struct slice reply, struct bench_findings *findings)
{
    (void)work;
    (void)tag;
    (void)findings;
    return slice_eq(reply, slice_str("+PONG\r\n"));
}

/* --- plays --- */

static bool next_play(const struct bench_work *work, struct bench_source *source, struct buf *out,
                      struct bench_request *request)
{
    const struct bench_works *w = work->own;
    (void)request;
    buf_add(out, w->play, strlen(w->play));
    bench_add_user(out, w->terms->prefix, choose_user(w, source));
    bench_add_item(out, random_next(&source->random));
    return true;
}

static bool is_integer(struct slice reply, int64_t wanted)
{
    size_t at = 0;
    int64_t number;
    struct slice text;
    return bench_line(reply, &at, &number, &text) == ':' && number == wanted;
}

static bool check_play(const struct bench_work *work, uint32_t tag, struct slice reply, struct bench_findings *findings)
{
    (void)work;
    (void)tag;
    (void)findings;
    return is_integer(reply, 1);
}

/* --- preparation --- */

static bool next_preparation(const struct bench_work *work, struct bench_source *source, struct buf *out,
                             struct bench_request *request)
{
    struct bench_works *w = (struct bench_works *)(uintptr_t)work->own;
    uint64_t n = atomic_fetch_add_explicit(&w->prepared, 1, memory_order_relaxed);
    (void)source;
    if (n >= w->terms->users * w->n_chunks) {
        return false;
    }
    const struct chunk *chunk = &w->chunks[n / w->terms->users];
    buf_addf(out, "*%" PRIu32 "\r\n$8\r\nPLAYEDAT\r\n", chunk->n + 3);
    bench_add_user(out, w->terms->prefix, n % w->terms->users);
    request->body = buf_slice(&chunk->body);
    request->tag = chunk->n;
    return true;
}

static bool check_preparation(const struct bench_work *work, uint32_t tag, struct slice reply,
                              struct bench_findings *findings)
{
    (void)work;
    (void)findings;
    return is_integer(reply, tag);
}

static void make_chunk(struct chunk *c, int64_t at_ms, uint64_t first, uint32_t n)
{
    char time[32];
    int len = snprintf(time, sizeof time, "%" PRId64, at_ms);
    c->n = n;
    buf_addf(&c->body, "$%d\r\n%s\r\n", len, time);
    for (uint32_t i = 0; i < n; i++) {
        bench_add_item(&c->body, bench_item_id(first + i));
    }
}

int bench_preparation(struct bench_works *w, const struct bench_work **work, struct err *err)
{
    const struct bench_terms *t = w->terms;
    uint64_t a_month = (t->plays_per_month + CHUNK - 1) / CHUNK;
    w->chunks = calloc(t->months * a_month + 1, sizeof *w->chunks);
    bool failed = w->chunks == NULL;
    int64_t now = clock_wall_ms();
    for (uint32_t m = 0; m < t->months && !failed; m++) {
        int64_t at = m == 0 ? now : month_start_ms(month_of_ms(now) - (int)m) + 1000;
        for (uint32_t done = 0; done < t->plays_per_month && !failed; done += CHUNK) {
            uint32_t n = t->plays_per_month - done < CHUNK ? t->plays_per_month - done : CHUNK;
            struct chunk *c = &w->chunks[w->n_chunks++];
            make_chunk(c, at, (uint64_t)m * t->plays_per_month + done, n);
            failed = c->body.failed;
        }
    }
    *work = &w->preparation;
    return failed ? err_set(err, ERR_NOMEM, "out of memory for the plays of users") : 0;
}

/* --- questions --- */

static bool is_played(const struct list *list, size_t i)
{
    return (list->played[i / 8] & (0x80 >> i % 8)) != 0;
}

static void write_salt(char out[SALT_DIGITS], uint32_t salt)
{
    for (int i = SALT_DIGITS - 1; i >= 0; i--, salt /= 10) {
        out[i] = (char)('0' + salt % 10);
    }
}

/* The list with never-played candidates that were not asked about yet: with other last digits. */
static void add_fresh(struct buf *out, const struct bench_terms *t, const struct list *list, uint32_t salt)
{
    char digits[SALT_DIGITS];
    size_t at = out->len + list->head + CANDIDATE - 2 - SALT_DIGITS;
    write_salt(digits, salt);
    if (buf_add(out, list->body.data, list->body.len) < 0) {
        return; /* the owner looks at out->failed */
    }
    for (uint32_t i = 0; i < t->candidates; i++, at += CANDIDATE) {
        if (!is_played(list, i)) {
            memcpy(out->data + at, digits, sizeof digits);
        }
    }
}

static void write_hash(char *at, uint64_t seed, const char item[BENCH_ITEM_LEN])
{
    const uint64_t hash = htole64(hash_id(seed, slice_of(item, BENCH_ITEM_LEN)));
    memcpy(at, &hash, sizeof hash);
}

/* The same of hashes. */
static void add_fresh_hashes(struct buf *out, const struct bench_terms *t, const struct list *list, uint32_t salt)
{
    size_t at = out->len + list->head;
    if (buf_add(out, list->body.data, list->body.len) < 0) {
        return;
    }
    for (uint32_t i = 0; i < t->candidates; i++, at += HASH_BYTES) {
        if (!is_played(list, i)) {
            char item[BENCH_ITEM_LEN];
            memcpy(item, list->items + (size_t)i * BENCH_ITEM_LEN, sizeof item);
            write_salt(item + BENCH_ITEM_LEN - SALT_DIGITS, salt);
            write_hash(out->data + at, t->seed, item);
        }
    }
}

static bool next_question(const struct bench_work *work, struct bench_source *source, struct buf *out,
                          struct bench_request *request)
{
    const struct bench_works *w = work->own;
    buf_add(out, w->question, strlen(w->question));
    bench_add_user(out, w->terms->prefix, choose_user(w, source));
    request->tag = (uint32_t)random_below(&source->random, BENCH_LISTS);
    const struct list *list = &w->lists[request->tag];
    if (w->terms->verify && !w->terms->pools && source->serial % BENCH_FRESH == 0) {
        uint32_t salt = 1 + (uint32_t)random_below(&source->random, SALT_MAX);
        request->tag += salt * BENCH_LISTS;
        (w->terms->hashes ? add_fresh_hashes : add_fresh)(out, w->terms, list, salt);
    } else {
        request->body = buf_slice(&list->body);
    }
    return true;
}

/* A reply that shows `shown` candidates, of which `wrong` were played, hides the rest of those that were not. Only
 * fresh ones count. */
static void find(struct bench_findings *f, const struct list *list, uint32_t salt, uint64_t shown, uint64_t wrong)
{
    if (salt > 0) {
        f->unplayed += list->unplayed;
        f->hidden += list->unplayed - (shown - wrong);
    }
    f->shown += wrong;
}

static bool check_bitmap(const struct bench_terms *t, const struct list *list, uint32_t salt, struct slice reply,
                         struct bench_findings *findings)
{
    size_t at = 0, bytes = (t->candidates + 7) / 8;
    int64_t number;
    struct slice bits;
    if (bench_line(reply, &at, &number, &bits) != '$' || bits.len != bytes) {
        return false;
    }
    if (t->verify) {
        uint64_t shown = 0, wrong = 0;
        for (size_t i = 0; i < bytes; i++) {
            unsigned byte = (unsigned char)bits.data[i];
            shown += (unsigned)__builtin_popcount(byte);
            wrong += (unsigned)__builtin_popcount(byte & list->played[i]);
        }
        find(findings, list, salt, shown, wrong);
        return wrong == 0;
    }
    return true;
}

/* Whether a reply's item is the i-th candidate. digits: of the never-played ones, NULL: they are as in the list. */
static bool is_candidate(const struct list *list, size_t i, const char *digits, struct slice item)
{
    const char *name = list->items + i * BENCH_ITEM_LEN;
    size_t same = digits == NULL || is_played(list, i) ? BENCH_ITEM_LEN : BENCH_ITEM_LEN - SALT_DIGITS;
    return memcmp(name, item.data, same) == 0 &&
           (same == BENCH_ITEM_LEN || memcmp(digits, item.data + same, SALT_DIGITS) == 0);
}

/* Items or indexes, which must come in the order asked. */
static bool check_array(const struct bench_terms *t, const struct list *list, uint32_t salt, struct slice reply,
                        struct bench_findings *findings)
{
    char digits[SALT_DIGITS];
    write_salt(digits, salt);
    size_t at = 0, i = 0;
    int64_t n, number;
    struct slice text;
    if (bench_line(reply, &at, &n, &text) != '*' || n < 0 || n > t->candidates) {
        return false;
    }
    uint64_t wrong = 0;
    for (int64_t k = 0; t->verify && k < n; k++) {
        char type = bench_line(reply, &at, &number, &text);
        if (t->form == BENCH_INDEXES) {
            if (type != ':' || number < (int64_t)i || number >= t->candidates) {
                return false;
            }
            i = (size_t)number;
        } else {
            if (type != '$' || text.len != BENCH_ITEM_LEN) {
                return false;
            }
            while (i < t->candidates && !is_candidate(list, i, salt > 0 ? digits : NULL, text)) {
                i++;
            }
            if (i == t->candidates) {
                return false;
            }
        }
        wrong += is_played(list, i++);
    }
    if (t->verify) {
        find(findings, list, salt, (uint64_t)n, wrong);
    }
    return wrong == 0;
}

/* Of a pool: an array of it and the answer. */
static bool skip_version(struct slice *reply)
{
    size_t at = 0;
    int64_t n;
    struct slice text;
    bool good = bench_line(*reply, &at, &n, &text) == '*' && n == 2 && bench_line(*reply, &at, &n, &text) == '$';
    *reply = slice_of(reply->data + at, reply->len - at);
    return good;
}

static bool check_question(const struct bench_work *work, uint32_t tag, struct slice reply,
                           struct bench_findings *findings)
{
    const struct bench_works *w = work->own;
    const struct list *list = &w->lists[tag % BENCH_LISTS];
    uint32_t salt = tag / BENCH_LISTS;
    if (w->terms->pools && w->terms->form != BENCH_ITEMS && !skip_version(&reply)) {
        return false;
    }
    return w->terms->form == BENCH_BITMAP ? check_bitmap(w->terms, list, salt, reply, findings)
                                          : check_array(w->terms, list, salt, reply, findings);
}

static void pool_name(const struct bench_terms *t, uint64_t number, char out[POOL_TEXT])
{
    snprintf(out, POOL_TEXT, "%.200s:list:%" PRIu64, t->prefix, number);
}

/* The end of a request that names it. */
static void add_pool(struct buf *body, const struct bench_terms *t, uint64_t number)
{
    char name[POOL_TEXT], limit[16];
    pool_name(t, number, name);
    buf_addf(body, "$4\r\nPOOL\r\n$%zu\r\n%s\r\n", strlen(name), name);
    if (t->limit > 0) {
        int len = snprintf(limit, sizeof limit, "%" PRIu32, t->limit);
        buf_addf(body, "$5\r\nLIMIT\r\n$%d\r\n%s\r\n%s", len, limit, t->deliver ? "$7\r\nDELIVER\r\n" : "");
    }
}

static int make_pool(const struct bench_works *w, size_t number, struct client *client, struct err *err)
{
    const struct bench_terms *t = w->terms;
    char name[POOL_TEXT];
    static struct slice words[3 + POOL_PIECE];
    const struct reply *reply;
    int rc = 0;
    pool_name(t, number, name);
    words[0] = slice_str("POOL");
    words[2] = slice_str(name);
    for (uint32_t at = 0; at < t->candidates && rc == 0;) {
        size_t n = 3;
        words[1] = slice_str(at == 0 ? "SET" : "ADD");
        for (; at < t->candidates && n < 3 + POOL_PIECE; at++) {
            words[n++] = slice_of(w->lists[number].items + (size_t)at * BENCH_ITEM_LEN, BENCH_ITEM_LEN);
        }
        rc = client_call(client, words, n, &reply, err);
    }
    return rc;
}

int bench_make_pools(const struct bench_works *w, const char *address, const char *password, struct err *err)
{
    struct client *client = NULL;
    int rc = client_connect(address, password, &client, err);
    for (size_t i = 0; i < BENCH_LISTS && rc == 0; i++) {
        rc = make_pool(w, i, client, err);
    }
    if (client != NULL) {
        client_close(client);
    }
    return rc;
}

int bench_read_seed(struct bench_terms *terms, const char *address, const char *password, struct err *err)
{
    struct client *client = NULL;
    const struct reply *reply;
    const struct slice word = slice_str("SEED");
    int rc = client_connect(address, password, &client, err);
    if (rc == 0) {
        rc = client_call(client, &word, 1, &reply, err);
    }
    if (rc == 0) {
        const struct reply *hash = reply_field(reply, "hash"), *seed = reply_field(reply, "seed");
        char text[17], *end = NULL;
        bool known = hash != NULL && hash->kind == REPLY_TEXT && slice_eq(hash->text, slice_str(HASH_NAME)) &&
                     seed != NULL && seed->kind == REPLY_TEXT && seed->text.len == 16;
        if (known) {
            memcpy(text, seed->text.data, 16);
            text[16] = '\0';
            terms->seed = strtoull(text, &end, 16);
        }
        rc = known && *end == '\0' ? 0 : err_set(err, ERR_VERSION, "the server hashes in a way that is not known here");
    }
    if (client != NULL) {
        client_close(client);
    }
    return rc;
}

static bool make_list(const struct bench_terms *t, struct list *list, uint64_t number, struct random *random)
{
    static const char *const words[] = {"$5\r\nITEMS", "$7\r\nINDEXES", "$6\r\nBITMAP"};
    uint64_t plays = (uint64_t)t->plays_per_month * t->months;
    uint64_t list_plays = plays;
    list->items = malloc((size_t)t->candidates * BENCH_ITEM_LEN);
    list->played = calloc(1, (t->candidates + 7) / 8);
    if (list->items == NULL || list->played == NULL) {
        return false;
    }
    buf_addf(&list->body, "$5\r\nREPLY\r\n%s\r\n", words[t->form]);
    if (t->pools) {
        add_pool(&list->body, t, number);
    } else if (t->hashes) {
        buf_addf(&list->body, "$4\r\nSEED\r\n$8\r\n%08" PRIx32 "\r\n$6\r\nHASHES\r\n$%zu\r\n",
                 hash_seed_fingerprint(t->seed), (size_t)t->candidates * HASH_BYTES);
    } else {
        buf_addf(&list->body, "$5\r\nITEMS\r\n");
    }
    list->head = list->body.len;
    for (uint32_t i = 0; i < t->candidates; i++) {
        bool played = random_below(random, 100) < t->seen_percent && list_plays > 0;
        uint64_t n = BENCH_NEVER_PLAYED + number * t->candidates + i;
        if (played && t->pools) { /* where an item stands once, and the position counts */
            n = --list_plays;
        } else if (played) {
            n = random_below(random, plays);
        }
        uint64_t id = bench_item_id(n);
        char *item = list->items + (size_t)i * BENCH_ITEM_LEN;
        bench_write_item(item, id);
        if (t->hashes) {
            char hash[HASH_BYTES];
            write_hash(hash, t->seed, item);
            buf_add(&list->body, hash, sizeof hash);
        } else if (!t->pools) {
            bench_add_item(&list->body, id);
        }
        if (played) {
            list->played[i / 8] |= (uint8_t)(0x80 >> i % 8);
        } else {
            list->unplayed++;
        }
    }
    if (t->hashes) {
        buf_add(&list->body, "\r\n", 2);
    }
    return !list->body.failed;
}

int bench_works_new(const struct bench_terms *terms, struct bench_works **works, struct err *err)
{
    struct bench_works *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    w->terms = terms;
    w->pings = (struct bench_work){"pings", 1, w, next_ping, check_ping};
    w->questions = (struct bench_work){"questions", 1, w, next_question, check_question};
    w->plays = (struct bench_work){"plays", 1, w, next_play, check_play};
    w->preparation = (struct bench_work){"preparation", 1, w, next_preparation, check_preparation};
    zipf_init(&w->zipf, terms->users, terms->skew);
    uint32_t words = terms->deliver  ? 9
                     : terms->pools  ? terms->limit > 0 ? 8 : 6
                     : terms->hashes ? 8
                                     : terms->candidates + 5;
    snprintf(w->question, sizeof w->question, "*%" PRIu32 "\r\n$6\r\nFILTER\r\n", words);
    snprintf(w->play, sizeof w->play, "*3\r\n$6\r\nPLAYED\r\n");
    struct random random = {1};
    for (uint64_t i = 0; i < BENCH_LISTS; i++) {
        if (!make_list(terms, &w->lists[i], i, &random)) {
            bench_works_free(w);
            return err_set(err, ERR_NOMEM, "out of memory for %" PRIu32 " candidates", terms->candidates);
        }
    }
    *works = w;
    return 0;
}

void bench_works_free(struct bench_works *w)
{
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < BENCH_LISTS; i++) {
        buf_free(&w->lists[i].body);
        free(w->lists[i].items);
        free(w->lists[i].played);
    }
    for (uint64_t i = 0; i < w->n_chunks; i++) {
        buf_free(&w->chunks[i].body);
    }
    free(w->chunks);
    free(w);
}

const struct bench_work *bench_pings(const struct bench_works *w)
{
    return &w->pings;
}

const struct bench_work *bench_questions(const struct bench_works *w)
{
    return &w->questions;
}

const struct bench_work *bench_plays(const struct bench_works *w)
{
    return &w->plays;
}
