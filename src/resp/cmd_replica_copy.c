/* REPLICA USERS, USER, TOMBSTONES and POSITIONS: pages of this folder, for one that becomes the same. */
#include <inttypes.h>
#include <string.h>

#include "replica/pages.h"
#include "replica/replica.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"
#include "store/codec/user_snapshot.h"
#include "store/positions.h"

struct page_deferred {
    struct deferred deferred;
    struct page page;
    char name[STORE_SOURCE_MAX];
};

static void on_read(struct page *page)
{
    deferred_done(page->owner);
}

static void free_page(struct deferred *deferred)
{
    page_end(&((struct page_deferred *)deferred)->page);
}

static enum outcome start(struct resp_client *s, const struct page *page, struct slice name,
                          void (*answer)(struct deferred *deferred, struct resp_client *s))
{
    struct replica *r = service_dedup(&s->conn)->replica;
    if (r == NULL) {
        return resp_client_lacks(s, "replicas");
    }
    struct page_deferred *t = deferred_new(sizeof *t, s, answer);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    t->deferred.free = free_page;
    t->page = *page;
    t->page.done = on_read;
    t->page.owner = t;
    memcpy(t->name, name.data, name.len);
    t->page.name = slice_of(t->name, name.len);
    pages_put(r->pages, &t->page);
    return OUTCOME_LATER;
}

/* NULL: it has failed, and that was written. */
static const struct page *read_page(struct deferred *deferred, struct resp_client *s)
{
    const struct page *page = &((struct page_deferred *)deferred)->page;
    if (page->err.code < 0) {
        resp_client_write_err(s, &page->err);
        return NULL;
    }
    return page;
}

static enum outcome refuse_number(struct resp_client *s, const char *what, struct slice arg)
{
    return resp_client_refuse(s, "ERR %s, got '%.*s'", what, arg_shown(arg), arg.data);
}

/* --- users --- */

/* As who asks can read it. */
static void write_user(struct resp_client *s, struct slice bytes)
{
    struct buf old = {0};
    struct err err;
    if (s->replica_protocol >= REPLICA_TIMES) {
        write_bulk(&s->writer, bytes);
    } else if (user_snapshot_without_times(&bytes, &old, &err) == 0) {
        write_bulk(&s->writer, bytes);
    } else {
        resp_client_write_err(s, &err);
    }
    buf_free(&old);
}

static void answer_users(struct deferred *deferred, struct resp_client *s)
{
    const struct page *page = read_page(deferred, s);
    if (page == NULL) {
        return;
    }
    write_array(&s->writer, 1 + page->users.n);
    if (page->users.ended) {
        write_null(&s->writer);
    } else {
        write_int(&s->writer, page->users.next);
    }
    for (size_t i = 0, from = 0, end; i < page->users.n; i++, from = end) {
        memcpy(&end, page->users.ends.data + i * sizeof end, sizeof end);
        write_user(s, slice_of(page->bytes.data + from, end - from));
    }
}

enum outcome cmd_replica_users(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t from, bytes;
    if (!arg_int(args[2], &from)) {
        return refuse_number(s, "a key is a whole number", args[2]);
    }
    if (!arg_int(args[3], &bytes) || bytes < 1 || bytes > PAGE_BYTES_MAX) {
        return refuse_number(s, "a page has 1 to 1048576 bytes", args[3]);
    }
    const struct page page = {.kind = PAGE_USERS, .users = {.from = from}, .bytes_max = (size_t)bytes};
    return start(s, &page, slice_of("", 0), answer_users);
}

static void answer_user(struct deferred *deferred, struct resp_client *s)
{
    const struct page *page = read_page(deferred, s);
    if (page != NULL && page->n == 1) {
        write_user(s, buf_slice(&page->bytes));
    } else if (page != NULL) {
        write_null(&s->writer);
    }
}

enum outcome cmd_replica_user(struct resp_client *s, const struct slice *args, size_t n)
{
    struct err err;
    int64_t protocol = s->replica_protocol;
    if (n > 4) {
        return resp_client_refuse(s, "ERR expected REPLICA USER user [protocol]");
    }
    if (dedup_check_id("user", 0, args[2], &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    if (n == 4 && !arg_int(args[3], &protocol)) {
        return refuse_number(s, "a protocol is a whole number", args[3]);
    }
    s->replica_protocol = protocol;
    const struct page page = {.kind = PAGE_USER};
    return start(s, &page, args[2], answer_user);
}

/* --- what staging.db has besides --- */

static void answer_tombstones(struct deferred *deferred, struct resp_client *s)
{
    const struct page *page = read_page(deferred, s);
    if (page == NULL) {
        return;
    }
    write_array(&s->writer, (size_t)page->n);
    for (int i = 0; i < page->n; i++) {
        write_array(&s->writer, 3);
        write_int(&s->writer, page->tombstones[i].key);
        write_int(&s->writer, (int64_t)page->tombstones[i].item);
        write_int(&s->writer, page->tombstones[i].at_ms);
    }
}

enum outcome cmd_replica_tombstones(struct resp_client *s, const struct slice *args, size_t n)
{
    struct page page = {.kind = PAGE_TOMBSTONES, .first = n == 2, .max = PAGE_LIST_MAX};
    int64_t key = 0, item = 0, max = PAGE_LIST_MAX;
    if (n != 2 && n != 5) {
        return resp_client_refuse(s, "ERR expected REPLICA TOMBSTONES [key item max]");
    }
    if (n == 5 && (!arg_int(args[2], &key) || !arg_int(args[3], &item))) {
        return refuse_number(s, "key and item are whole numbers", args[2]);
    }
    if (n == 5 && (!arg_int(args[4], &max) || max < 1 || max > PAGE_LIST_MAX)) {
        return refuse_number(s, "a page has 1 to 4096 tombstones", args[4]);
    }
    page.behind = (struct tombstone){.key = key, .item = (uint64_t)item};
    page.max = (int)max;
    return start(s, &page, slice_of("", 0), answer_tombstones);
}

static void answer_positions(struct deferred *deferred, struct resp_client *s)
{
    const struct page *page = read_page(deferred, s);
    if (page == NULL) {
        return;
    }
    write_array(&s->writer, (size_t)page->n);
    for (int i = 0; i < page->n; i++) {
        write_array(&s->writer, 2);
        write_bulk(&s->writer, page->positions[i].source);
        write_int(&s->writer, page->positions[i].next);
    }
}

enum outcome cmd_replica_positions(struct resp_client *s, const struct slice *args, size_t n)
{
    int64_t max;
    if (!arg_int(args[2], &max) || max < 1 || max > PAGE_LIST_MAX) {
        return refuse_number(s, "a page has 1 to 4096 positions", args[2]);
    }
    struct slice behind = n > 3 ? args[3] : slice_of("", 0);
    if (n > 4 || behind.len > STORE_SOURCE_MAX) {
        return resp_client_refuse(s, "ERR expected REPLICA POSITIONS max [source]");
    }
    const struct page page = {.kind = PAGE_POSITIONS, .first = n == 3, .max = (int)max};
    return start(s, &page, behind, answer_positions);
}
