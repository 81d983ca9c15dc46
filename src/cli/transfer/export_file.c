/* The layout, numbers little endian:
 *
 *   8    "UNSEENEX"
 *        then blocks:
 *   1      what: 'H' head (the first), 'U' users, 'E' end (the last; nothing follows)
 *   4      length as stored, S
 *   4      length of the plain bytes
 *   S      'U': one zstd frame of snapshots, each behind its length (varint); else the plain bytes
 *   8      checksum: XXH3 64 of the checksum before (of the first block: 0) and of this block up to here
 */
#include "cli/transfer/export_file.h"

#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/varint.h"
#include "cli/lib/output.h"
#include "store/codec/user_snapshot.h"

enum {
    VERSION_1 = 1,
    MAGIC = 8,
    SUM = 8,
    HEAD = 1 + 4 + 4,
    BLOCK_BYTES = 1024 * 1024,      /* of snapshots; a larger snapshot has a block of its own */
    BLOCK_MAX = 1024 * 1024 * 1024, /* more than any user has */
    SMALL_MAX = 64 * 1024,          /* of a head or an end */
    LEVEL = 3,
    READ_BYTES = 256 * 1024,
    PACKED_MAX = 8, /* by which zstd shrinks a user who is larger than a block: filters and hashes are noise */
};

static const char magic[MAGIC + 1] = "UNSEENEX";

static void put_fixed(struct buf *out, uint64_t v, int n)
{
    uint8_t bytes[8];
    for (int i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    buf_add(out, bytes, (size_t)n);
}

static void put_number(struct buf *out, uint64_t v)
{
    uint8_t bytes[VARINT_MAX];
    buf_add(out, bytes, varint_put(bytes, v));
}

static uint64_t fixed_at(const char *at, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) {
        v |= (uint64_t)(uint8_t)at[i] << (8 * i);
    }
    return v;
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory");
}

static void count(struct export_counts *c, const struct user_snapshot *p)
{
    c->users++;
    c->months += p->n_months;
    c->plays += p->n_plays;
    c->deliveries += p->deliveries.len > 0;
    c->exceptions += p->n_exceptions;
    c->damaged += p->n_damaged;
    c->migration_state += p->migration_state;
    c->forgotten += p->n_forgotten;
}

static void put_counts(struct buf *out, const struct export_counts *c)
{
    const uint64_t all[] = {c->users, c->months, c->plays, c->deliveries, c->exceptions, c->damaged};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        put_number(out, all[i]);
    }
}

void export_counts_json(struct json *j, const struct export_counts *counts)
{
    json_number(j, "users", (int64_t)counts->users);
    json_number(j, "months", (int64_t)counts->months);
    json_number(j, "staged_plays", (int64_t)counts->plays);
    json_number(j, "users_with_deliveries", (int64_t)counts->deliveries);
    json_number(j, "exceptions", (int64_t)counts->exceptions);
    json_number(j, "damaged", (int64_t)counts->damaged);
    json_number(j, "noted", (int64_t)counts->migration_state);
    json_number(j, "forgotten_items", (int64_t)counts->forgotten);
}

/* How much a block of users may hold that takes so many bytes in the file. */
static uint64_t plain_most(uint64_t stored)
{
    uint64_t most = PACKED_MAX * stored;
    return most < BLOCK_BYTES + VARINT_MAX ? BLOCK_BYTES + VARINT_MAX : most < BLOCK_MAX ? most : BLOCK_MAX;
}

/* --- writing --- */

struct export_writer {
    export_put *put;
    void *arg;
    uint64_t sum;
    struct buf plain, block;
    ZSTD_CCtx *zstd;
    struct arena arena;
    struct export_counts counts;
};

static int write_block(struct export_writer *w, char what, struct err *err)
{
    struct buf *b = &w->block;
    size_t room = what == 'U' ? ZSTD_compressBound(w->plain.len) : w->plain.len;
    buf_clear(b);
    put_fixed(b, w->sum, SUM);
    buf_add(b, &what, 1);
    put_fixed(b, 0, 4);
    put_fixed(b, w->plain.len, 4);
    if (buf_reserve(b, room + SUM) < 0) {
        return out_of_memory(err);
    }
    size_t stored = w->plain.len;
    if (what != 'U') {
        buf_add(b, w->plain.data, w->plain.len);
    } else {
        stored = ZSTD_compressCCtx(w->zstd, b->data + b->len, room, w->plain.data, w->plain.len, LEVEL);
        if (ZSTD_isError(stored)) {
            return err_set(err, ERR_NOMEM, "can't compress: %s", ZSTD_getErrorName(stored));
        }
        if (w->plain.len > plain_most(stored)) { /* nor would it be read again */
            return err_set(err, ERR_CORRUPT, "a user of %zu bytes shrinks to %zu, which no real one does", w->plain.len,
                           stored);
        }
        b->len += stored;
    }
    for (int i = 0; i < 4; i++) {
        b->data[SUM + 1 + i] = (char)(stored >> (8 * i));
    }
    w->sum = hash_checksum(b->data, b->len);
    put_fixed(b, w->sum, SUM);
    buf_clear(&w->plain);
    return w->put(w->arg, b->data + SUM, b->len - SUM, err);
}

static int write_head(struct export_writer *w, const struct export_head *head, struct err *err)
{
    struct buf *out = &w->plain;
    uint64_t error_bits;
    size_t len = strnlen(head->program, sizeof head->program - 1);
    memcpy(&error_bits, &head->error_rate, sizeof error_bits);
    put_fixed(out, VERSION_1, 1);
    put_fixed(out, len, 1);
    buf_add(out, head->program, len);
    put_fixed(out, head->seed, 8);
    put_fixed(out, (uint64_t)head->created_ms, 8);
    put_fixed(out, error_bits, 8);
    const uint64_t numbers[] = {head->retention, head->window, head->delivered_max, head->shard,
                                head->shards,    head->range,  head->ranges};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put_number(out, numbers[i]);
    }
    if (out->failed) {
        return out_of_memory(err);
    }
    int rc = w->put(w->arg, magic, MAGIC, err);
    return rc < 0 ? rc : write_block(w, 'H', err);
}

int export_writer_new(export_put *put, void *arg, const struct export_head *head, struct export_writer **writer,
                      struct err *err)
{
    struct export_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return out_of_memory(err);
    }
    w->put = put;
    w->arg = arg;
    w->zstd = ZSTD_createCCtx();
    int rc = w->zstd == NULL ? out_of_memory(err) : write_head(w, head, err);
    if (rc < 0) {
        export_writer_free(w);
        return rc;
    }
    *writer = w;
    return 0;
}

int export_writer_add(struct export_writer *w, struct slice bytes, struct err *err)
{
    struct user_snapshot snapshot;
    arena_reset(&w->arena);
    int rc = user_snapshot_decode(bytes.data, bytes.len, &w->arena, &snapshot, err);
    if (rc == 0 && bytes.len > BLOCK_MAX - VARINT_MAX) {
        rc = err_set(err, ERR_INVALID, "a user has %zu bytes, more than a file takes", bytes.len);
    }
    if (rc == 0 && w->plain.len > 0 && w->plain.len + bytes.len > BLOCK_BYTES) {
        rc = write_block(w, 'U', err);
    }
    if (rc < 0) {
        return rc;
    }
    count(&w->counts, &snapshot);
    put_number(&w->plain, bytes.len);
    buf_add(&w->plain, bytes.data, bytes.len);
    return w->plain.failed ? out_of_memory(err) : 0;
}

int export_writer_end(struct export_writer *w, struct export_counts *counts, struct err *err)
{
    int rc = w->plain.len > 0 ? write_block(w, 'U', err) : 0;
    if (rc < 0) {
        return rc;
    }
    *counts = w->counts;
    put_counts(&w->plain, &w->counts);
    return w->plain.failed ? out_of_memory(err) : write_block(w, 'E', err);
}

void export_writer_free(struct export_writer *w)
{
    if (w != NULL) {
        ZSTD_freeCCtx(w->zstd);
        buf_free(&w->plain);
        buf_free(&w->block);
        arena_free(&w->arena);
        free(w);
    }
}

/* --- reading --- */

struct export_reader {
    export_get *get;
    void *arg;
    uint64_t at, sum, seed;
    int64_t last_key;
    struct buf block; /* the sum before, head, what is stored, and its sum */
    struct buf plain; /* of users */
    size_t plain_at;
    ZSTD_DCtx *zstd;
    struct arena arena;
    struct export_counts counts;
};

static int damaged(const struct export_reader *r, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "the file is damaged: %s in the block that ends at byte %llu", what,
                   (unsigned long long)r->at);
}

/* Appends exactly len bytes to the buffer, as they come, so that a length that lies costs nothing. */
static int get_exactly(struct export_reader *r, struct buf *out, size_t len, struct err *err)
{
    while (len > 0) {
        size_t n = len < READ_BYTES ? len : READ_BYTES;
        if (buf_reserve(out, n) < 0) {
            return out_of_memory(err);
        }
        int rc = r->get(r->arg, out->data + out->len, n, &n, err);
        if (rc < 0) {
            return rc;
        }
        if (n == 0) {
            return err_set(err, ERR_CORRUPT, "the file is cut off after %llu bytes", (unsigned long long)r->at);
        }
        out->len += n;
        r->at += n;
        len -= n;
    }
    return 0;
}

/* The next block into r->block: what is stored begins at SUM + HEAD. */
static int read_block(struct export_reader *r, char *what, size_t *stored, size_t *plain, struct err *err)
{
    struct buf *b = &r->block;
    buf_clear(b);
    put_fixed(b, r->sum, SUM);
    if (b->failed) {
        return out_of_memory(err);
    }
    int rc = get_exactly(r, b, HEAD, err);
    if (rc < 0) {
        return rc;
    }
    *what = b->data[SUM];
    *stored = (size_t)fixed_at(b->data + SUM + 1, 4);
    *plain = (size_t)fixed_at(b->data + SUM + 5, 4);
    bool users = *what == 'U';
    if ((!users && *what != 'H' && *what != 'E') || *stored > (users ? ZSTD_COMPRESSBOUND(*plain) : SMALL_MAX) ||
        (!users && *plain != *stored)) {
        return damaged(r, "a broken head", err);
    }
    uint64_t most = users ? plain_most(*stored) : SMALL_MAX;
    if (*plain > most) {
        return err_set(
            err, ERR_CORRUPT,
            "the file is damaged: the block at byte %llu announces %zu bytes from %zu, expected at most %llu",
            (unsigned long long)(r->at - HEAD), *plain, *stored, (unsigned long long)most);
    }
    rc = get_exactly(r, b, *stored + SUM, err);
    if (rc < 0) {
        return rc;
    }
    r->sum = hash_checksum(b->data, b->len - SUM);
    return r->sum == fixed_at(b->data + b->len - SUM, SUM) ? 0 : damaged(r, "a wrong checksum", err);
}

/* Numbers of a head or an end. */
static bool get_numbers(const char **at, const char *end, uint64_t **out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t used = varint_get((const uint8_t *)*at, (const uint8_t *)end, out[i]);
        if (used == 0) {
            return false;
        }
        *at += used;
    }
    return true;
}

static int read_head(struct export_reader *r, struct export_head *head, struct err *err)
{
    char what;
    size_t len;
    int rc = read_block(r, &what, &len, &len, err);
    if (rc < 0) {
        return rc;
    }
    const char *at = r->block.data + SUM + HEAD;
    const char *end = at + len;
    if (what != 'H' || len < 1) {
        return damaged(r, "no head", err);
    }
    if (*at != VERSION_1) {
        return err_set(err, ERR_VERSION, "the file has version %u, this program reads version 1", (uint8_t)*at);
    }
    size_t program = len > 1 ? (uint8_t)at[1] : 0;
    if (program >= sizeof head->program || len < 2 + program + 24) {
        return damaged(r, "a broken head", err);
    }
    *head = (struct export_head){0};
    memcpy(head->program, at + 2, program);
    at += 2 + program;
    head->seed = fixed_at(at, 8);
    head->created_ms = (int64_t)fixed_at(at + 8, 8);
    uint64_t error_bits = fixed_at(at + 16, 8);
    memcpy(&head->error_rate, &error_bits, sizeof error_bits);
    at += 24;
    uint64_t *numbers[] = {&head->retention, &head->window, &head->delivered_max, &head->shard,
                           &head->shards,    &head->range,  &head->ranges};
    if (!get_numbers(&at, end, numbers, sizeof numbers / sizeof *numbers) || at != end) {
        return damaged(r, "a broken head", err);
    }
    r->seed = head->seed;
    return 0;
}

int export_reader_new(export_get *get, void *arg, struct export_head *head, struct export_reader **reader,
                      struct err *err)
{
    struct export_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return out_of_memory(err);
    }
    r->get = get;
    r->arg = arg;
    r->last_key = INT64_MIN;
    r->zstd = ZSTD_createDCtx();
    int rc = r->zstd == NULL ? out_of_memory(err) : get_exactly(r, &r->block, MAGIC, err);
    if (rc == ERR_CORRUPT || (rc == 0 && memcmp(r->block.data, magic, MAGIC) != 0)) {
        rc = err_set(err, ERR_INVALID, "this is no file of `unseen export`: it doesn't begin with %s", magic);
    }
    if (rc < 0 || (rc = read_head(r, head, err)) < 0) {
        export_reader_free(r);
        return rc;
    }
    *reader = r;
    return 0;
}

static int unpack_users(struct export_reader *r, size_t stored, size_t plain, struct err *err)
{
    const char *from = r->block.data + SUM + HEAD;
    buf_clear(&r->plain);
    buf_shrink(&r->plain, 16 * BLOCK_BYTES);
    if (ZSTD_getFrameContentSize(from, stored) != plain || ZSTD_findFrameCompressedSize(from, stored) != stored) {
        return damaged(r, "a broken frame", err);
    }
    if (buf_reserve(&r->plain, plain + 1) < 0) {
        return out_of_memory(err);
    }
    if (ZSTD_decompressDCtx(r->zstd, r->plain.data, plain, from, stored) != plain) {
        return damaged(r, "a broken frame", err);
    }
    r->plain.len = plain;
    r->plain_at = 0;
    return 0;
}

static int read_end(struct export_reader *r, size_t len, struct export_counts *counts, struct err *err)
{
    struct export_counts c = {0};
    uint64_t *numbers[] = {&c.users, &c.months, &c.plays, &c.deliveries, &c.exceptions, &c.damaged};
    const char *at = r->block.data + SUM + HEAD;
    const char *end = at + len;
    if (!get_numbers(&at, end, numbers, sizeof numbers / sizeof *numbers) || at != end) {
        return damaged(r, "a broken end", err);
    }
    c.migration_state = r->counts.migration_state;
    c.forgotten = r->counts.forgotten;
    if (memcmp(&c, &r->counts, sizeof c) != 0) {
        return damaged(r, "other counts than those of its users", err);
    }
    char more;
    size_t n;
    int rc = r->get(r->arg, &more, 1, &n, err);
    if (rc == 0 && n > 0) {
        rc = err_set(err, ERR_CORRUPT, "the file is damaged: something follows its end at byte %llu",
                     (unsigned long long)r->at);
    }
    *counts = c;
    return rc;
}

static int next_snapshot(struct export_reader *r, struct slice *out, struct err *err)
{
    const uint8_t *at = (const uint8_t *)r->plain.data + r->plain_at;
    const uint8_t *end = (const uint8_t *)r->plain.data + r->plain.len;
    uint64_t len = 0;
    size_t used = varint_get(at, end, &len);
    if (used == 0 || len > (size_t)(end - at) - used) {
        return damaged(r, "a broken length of a user", err);
    }
    *out = slice_of((const char *)at + used, (size_t)len);
    r->plain_at += used + (size_t)len;
    struct user_snapshot snapshot;
    arena_reset(&r->arena);
    int rc = user_snapshot_decode(out->data, out->len, &r->arena, &snapshot, err);
    if (rc < 0) {
        return rc;
    }
    if (snapshot.key != hash_user_key(r->seed, snapshot.user)) {
        return damaged(r, "a user of another seed", err);
    }
    if (snapshot.key < r->last_key) {
        return damaged(r, "a user out of order", err);
    }
    r->last_key = snapshot.key;
    count(&r->counts, &snapshot);
    return 1;
}

int export_reader_next(struct export_reader *r, struct slice *snapshot, struct export_counts *counts, struct err *err)
{
    while (r->plain_at == r->plain.len) {
        char what;
        size_t stored;
        size_t plain;
        int rc = read_block(r, &what, &stored, &plain, err);
        if (rc < 0) {
            return rc;
        }
        if (what == 'E') {
            return read_end(r, stored, counts, err);
        }
        rc = what == 'U' ? unpack_users(r, stored, plain, err) : damaged(r, "a second head", err);
        if (rc < 0) {
            return rc;
        }
    }
    return next_snapshot(r, snapshot, err);
}

void export_reader_free(struct export_reader *r)
{
    if (r != NULL) {
        ZSTD_freeDCtx(r->zstd);
        buf_free(&r->block);
        buf_free(&r->plain);
        arena_free(&r->arena);
        free(r);
    }
}
