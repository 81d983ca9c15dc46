/* Any bytes as a file of `unseen export`, and as a snapshot: refused, or sound. Checksums and zstd would keep a fuzzer
 * out, so each input is also tried as a snapshot with its checksum set right, and as what a file's blocks hold. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "cli/transfer/export_file.h"
#include "fuzz.h"
#include "store/codec/user_snapshot.h"

enum { SEED = 7, CHECKSUM = 4 };

struct input {
    const uint8_t *at;
    size_t left;
};

static int get(void *arg, void *bytes, size_t size, size_t *n, struct err *err)
{
    struct input *in = arg;
    (void)err;
    *n = size < in->left ? size : in->left;
    memcpy(bytes, in->at, *n);
    in->at += *n;
    in->left -= *n;
    return 0;
}

static int put(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)err;
    return buf_add(arg, bytes, len);
}

/* Returns how many users it has, or what refused it. */
static int64_t try_file(const void *data, size_t size)
{
    struct input in = {data, size};
    struct export_reader *r;
    struct export_head head;
    struct export_counts counts = {0};
    struct slice snapshot;
    struct err err = {0};
    int64_t users = 0;
    int rc = export_reader_new(get, &in, &head, &r, &err);
    if (rc == 0) {
        while ((rc = export_reader_next(r, &snapshot, &counts, &err)) == 1) {
            users++;
        }
        export_reader_free(r);
    }
    CHECK(rc == 0 || ((rc == ERR_CORRUPT || rc == ERR_INVALID || rc == ERR_VERSION || rc == ERR_NOMEM) &&
                      err.code == rc && err.text[0] != '\0'));
    CHECK(rc < 0 || counts.users == (uint64_t)users);
    return rc < 0 ? rc : users;
}

static void try_snapshot(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct buf again = {0};
    struct buf file = {0};
    struct user_snapshot snapshot;
    struct err err = {0};
    int rc = user_snapshot_decode(data, size, &arena, &snapshot, &err);
    CHECK(rc == 0 || ((rc == ERR_CORRUPT || rc == ERR_VERSION) && err.text[0] != '\0'));
    CHECK(arena.bytes <= 32 * size + 1024 * 1024);
    if (rc == 0) {
        CHECK(user_snapshot_encode(&snapshot, &again) == 0);
        CHECK(again.len == size && memcmp(again.data, data, size) == 0);
        /* With its key set right it travels. */
        snapshot.key = hash_user_key(SEED, snapshot.user);
        again.len = 0;
        CHECK(user_snapshot_encode(&snapshot, &again) == 0);
        const struct export_head head = {.seed = SEED, .shards = 1, .ranges = 1};
        struct export_counts counts;
        struct export_writer *w;
        CHECK(export_writer_new(put, &file, &head, &w, NULL) == 0);
        CHECK(export_writer_add(w, buf_slice(&again), NULL) == 0 && export_writer_end(w, &counts, NULL) == 0);
        export_writer_free(w);
        CHECK(try_file(file.data, file.len) == 1);
        CHECK(try_file(file.data, file.len - 1) == ERR_CORRUPT);
    }
    buf_free(&again);
    buf_free(&file);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_file(data, size);
    try_snapshot(data, size);
    if (size > CHECKSUM) {
        uint8_t *copy = malloc(size);
        CHECK(copy != NULL);
        memcpy(copy, data, size);
        uint64_t sum = hash_checksum(copy, size - CHECKSUM);
        for (unsigned i = 0; i < CHECKSUM; i++) {
            copy[size - CHECKSUM + i] = (uint8_t)(sum >> (8 * i));
        }
        try_snapshot(copy, size);
        free(copy);
    }
    return 0;
}
