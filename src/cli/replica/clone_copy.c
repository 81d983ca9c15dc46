#include "cli/replica/clone_copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/plural.h"
#include "cli/lib/output.h"
#include "cli/lib/store_wait.h"
#include "replica/clone_mark.h"
#include "store/positions.h"

enum {
    PAGE_BYTES = 1024 * 1024,
    LIST_MAX = 1000, /* positions, or tombstones, of one reply */
    IMPORT_MAX = 512,
    PARTS = 1000 * 1000,
};

uint64_t clone_key_part(int64_t key)
{
    uint64_t above = (uint64_t)key + (UINT64_C(1) << 63); /* INT64_MIN is 0 */
    return above / (UINT64_MAX / PARTS);
}

int64_t clone_rate_wait_us(uint64_t bytes, uint64_t rate, int64_t elapsed_us)
{
    double due_us = rate > 0 ? (double)bytes / (double)rate * 1e6 : 0;
    return due_us > (double)elapsed_us ? (int64_t)due_us - elapsed_us : 0;
}

uint64_t clone_rate_read(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    static const char units[] = "KMGT";
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    int shift = 0;
    if (unit != NULL) {
        shift = 10 * (int)(unit - units + 1);
        end++;
        end += strncmp(end, "iB", 2) == 0 ? 2 : 0;
    }
    bool good = errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0' && n <= (UINT64_MAX >> 1) >> shift;
    return good ? (uint64_t)n << shift : 0;
}

static int malformed(const struct clone_copy *c, const char *what, struct err *err)
{
    return err_set(err, ERR_VERSION, "%s: the answer to REPLICA %s can't be read: is it another version?",
                   c->from->address, what);
}

/* --- positions --- */

int clone_copy_positions(struct clone_copy *c, struct err *err)
{
    static struct store_position list[LIST_MAX];
    char max[NUMBER_TEXT];
    char last[512];
    size_t rows = 0;
    struct slice words[] = {slice_str("REPLICA"), slice_str("POSITIONS"), number_text(LIST_MAX, max), {0}};
    const struct reply *reply;
    for (size_t n_words = 3;; n_words = 4) {
        int rc = other_node_call(c->from, words, n_words, &reply, err);
        if (rc < 0) {
            return rc;
        }
        if (reply->kind != REPLY_ARRAY || reply->n > LIST_MAX) {
            return malformed(c, "POSITIONS", err);
        }
        size_t n = 0;
        for (size_t i = 0; i < reply->n; i++) {
            const struct reply *row = &reply->items[i];
            struct store_position *p = &list[n];
            if (row->kind != REPLY_ARRAY || row->n != 2 || row->items[0].kind != REPLY_TEXT ||
                row->items[0].text.len > sizeof last || !reply_integer(&row->items[1], &p->next)) {
                return malformed(c, "POSITIONS", err);
            }
            p->source = row->items[0].text;
            n += !clone_is_own(p->source); /* how far that node came with others says nothing here */
        }
        if (n > 0 && (rc = store_wait_positions(c->to, list, n, err)) < 0) {
            return rc;
        }
        c->positions += n;
        if (reply->n == 0) {
            return 0;
        }
        struct slice source = reply->items[reply->n - 1].items[0].text;
        if ((n_words == 4 && slice_eq(source, words[3])) || (rows += reply->n) > 2 * (size_t)STORE_SOURCES_MAX) {
            return malformed(c, "POSITIONS", err); /* it doesn't move on */
        }
        memcpy(last, source.data, source.len);
        words[3] = slice_of(last, source.len);
    }
}

/* --- tombstones --- */

int clone_copy_tombstones(struct clone_copy *c, struct err *err)
{
    static struct tombstone list[LIST_MAX];
    char key[NUMBER_TEXT], item[NUMBER_TEXT], max[NUMBER_TEXT];
    struct slice words[] = {slice_str("REPLICA"), slice_str("TOMBSTONES"), {0}, {0}, number_text(LIST_MAX, max)};
    const struct reply *reply;
    struct tombstone last = {.key = INT64_MIN};
    for (size_t n_words = 2;; n_words = 5) {
        int rc = other_node_call(c->from, words, n_words, &reply, err);
        if (rc < 0) {
            return rc;
        }
        if (reply->kind != REPLY_ARRAY) {
            return malformed(c, "TOMBSTONES", err);
        }
        if (reply->n == 0) {
            return 0;
        }
        for (size_t at = 0; at < reply->n;) {
            size_t n = 0;
            for (; n < LIST_MAX && at < reply->n; n++, at++) {
                const struct reply *row = &reply->items[at];
                int64_t hash;
                if (row->kind != REPLY_ARRAY || row->n != 3 || !reply_integer(&row->items[0], &list[n].key) ||
                    !reply_integer(&row->items[1], &hash) || !reply_integer(&row->items[2], &list[n].at_ms)) {
                    return malformed(c, "TOMBSTONES", err);
                }
                list[n].item = (uint64_t)hash;
                list[n].id = 0;
                if ((n_words == 5 || n + at > 0) && !tombstone_is_behind(&list[n], &last)) {
                    return malformed(c, "TOMBSTONES", err);
                }
                last = list[n];
            }
            words[2] = number_text(list[n - 1].key, key);
            words[3] = number_text((int64_t)list[n - 1].item, item);
            if ((rc = store_wait_adopt(c->to, list, n, err)) < 0) {
                return rc;
            }
            c->tombstones += n;
        }
    }
}

/* --- users --- */

struct page {
    struct buf bytes;
    struct buf ends; /* size_t each */
    size_t n;
    int64_t next;
    bool ended;
};

static int ask_page(struct clone_copy *c, int64_t from, struct err *err)
{
    char key[NUMBER_TEXT], bytes[NUMBER_TEXT];
    const struct slice words[] = {slice_str("REPLICA"), slice_str("USERS"), number_text(from, key),
                                  number_text(PAGE_BYTES, bytes)};
    return other_node_ask(c->from, words, 4, err);
}

/* Copies the page out of the reply, so that the next one can come meanwhile. */
static int read_page(struct clone_copy *c, struct page *page, struct err *err)
{
    const struct reply *reply;
    int rc = other_node_answer(c->from, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n == 0 ||
        (reply->items[0].kind != REPLY_NULL && !reply_integer(&reply->items[0], &page->next))) {
        return malformed(c, "USERS", err);
    }
    page->ended = reply->items[0].kind == REPLY_NULL;
    page->n = reply->n - 1;
    buf_clear(&page->bytes);
    buf_shrink(&page->bytes, (size_t)2 * PAGE_BYTES);
    buf_clear(&page->ends);
    for (size_t i = 1; i < reply->n; i++) {
        const struct reply *snapshot = &reply->items[i];
        if (snapshot->kind != REPLY_TEXT) {
            return malformed(c, "USERS", err);
        }
        size_t end = page->bytes.len + snapshot->text.len;
        if (buf_add(&page->bytes, snapshot->text.data, snapshot->text.len) < 0 ||
            buf_add(&page->ends, &end, sizeof end) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for a page of users");
        }
    }
    return 0;
}

static int import_page(struct clone_copy *c, const struct page *page, struct err *err)
{
    struct slice list[IMPORT_MAX];
    uint8_t verdicts[IMPORT_MAX];
    const size_t *ends = (const size_t *)(const void *)page->ends.data;
    size_t from = 0;
    for (size_t at = 0; at < page->n;) {
        size_t n = 0;
        for (; n < IMPORT_MAX && at < page->n; n++, at++) {
            list[n] = slice_of(page->bytes.data + from, ends[at] - from);
            from = ends[at];
        }
        int rc = store_wait_import(c->to, list, n, verdicts, err);
        if (rc < 0) {
            return rc;
        }
        for (size_t i = 0; i < n; i++) {
            if (verdicts[i] == IMPORT_CROWDED) {
                return err_set(err, ERR_CORRUPT, "a user of %s could not be taken over: a month has too many parts",
                               c->from->address);
            }
        }
        c->users += n;
    }
    c->bytes += page->bytes.len;
    return 0;
}

int clone_copy_mark(struct clone_copy *c, int64_t mark, struct err *err)
{
    char name[CLONE_MARK_TEXT];
    const struct store_position position = {slice_str(clone_mark_name(c->from->node, name)), mark};
    int rc = store_wait_positions(c->to, &position, 1, err);
    if (rc == 0) {
        c->mark = mark;
    }
    return rc;
}

static void show(const struct clone_copy *c)
{
    char users[OUTPUT_TEXT], size[OUTPUT_TEXT], speed[OUTPUT_TEXT];
    int64_t elapsed_us = clock_real_us() - c->began_us;
    double seconds = elapsed_us > 0 ? (double)elapsed_us / 1e6 : 1;
    progress_show(c->progress, clone_key_part(c->mark) - c->began, PARTS - c->began, "%s user%s  %s  %s/s",
                  count_text(c->users, users), plural(c->users), size_text(c->bytes, size),
                  size_text((uint64_t)((double)c->bytes / seconds), speed));
}

static void rest(int64_t us)
{
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&left, &left) < 0 && errno == EINTR) {
    }
}

int clone_copy_users(struct clone_copy *c, struct err *err)
{
    struct page page = {0};
    if (c->began_us == 0) {
        c->began_us = clock_real_us();
        c->began = clone_key_part(c->mark);
        c->began = c->began < PARTS ? c->began : PARTS - 1;
    }
    int rc = ask_page(c, c->mark, err);
    while (rc == 0 && !page.ended && (rc = read_page(c, &page, err)) == 0) {
        if (!page.ended && page.next <= c->mark) {
            rc = malformed(c, "USERS", err);
            break;
        }
        rest(clone_rate_wait_us(c->bytes, c->rate, clock_real_us() - c->began_us));
        if (!page.ended &&
            ((rc = ask_page(c, page.next, err)) < 0 || (rc = pipeline_push(c->from->pipeline, err)) < 0)) {
            break; /* sent: it comes while this page is imported */
        }
        rc = import_page(c, &page, err);
        /* The highest key is the mark's end: there the page before comes again, and no more. */
        if (rc == 0 && !page.ended && page.next != CLONE_MARK_ENDED) {
            rc = clone_copy_mark(c, page.next, err);
        }
        show(c);
    }
    buf_free(&page.bytes);
    buf_free(&page.ends);
    return rc < 0 ? rc : 0;
}
