/* Any bytes as a blob of delivered items: refused, or a sound list that can be used like any other. A checksum and
 * zstd would keep a fuzzer out, so each input is also tried with its checksum set right, and as the payload of
 * a blob, plain and compressed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/hash.h"
#include "base/varint.h"
#include "fuzz.h"
#include "store/user/deliveries.h"

enum {
    SEED = 7,
    CHECKSUM = 4,
    ENTRIES = DELIVERED_MAX * DELIVERED_TIMES,
    LARGEST = DELIVERED_MAX * 256 + ENTRIES * 48 + 30
};

static struct delivered_codec codec;

static void check_list(const struct delivered *d)
{
    const struct store_delivery *list = d->list;
    CHECK(delivered_items(list, d->n) <= DELIVERED_MAX && d->n <= DELIVERED_MAX * DELIVERED_TIMES);
    for (size_t i = 0; i < d->n; i++) {
        CHECK(i == 0 || list[i].stamp <= list[i - 1].stamp);
        CHECK(list[i].item.len >= 1 && list[i].item.len <= 255);
        CHECK(list[i].hash == hash_id(SEED, list[i].item));
    }
}

/* What a flush does with a list that was read. */
static void check_rewrite(struct delivered *d, struct arena *arena)
{
    struct buf blob = {0};
    struct delivered again;
    const size_t n = d->n;
    delivered_unite(d, 100);
    CHECK(delivered_items(d->list, d->n) <= 100 && d->n <= n && (d->n > 0) == (n > 0));
    check_list(d);
    CHECK(delivered_pack(&codec, d, &blob) == 0);
    CHECK(delivered_unpack(&codec, blob.data, blob.len, SEED, arena, &again, NULL) == 0);
    CHECK(again.n == d->n);
    for (size_t i = 0; i < d->n; i++) {
        const struct store_delivery *a = &again.list[i], *b = &d->list[i];
        CHECK(a->stamp == b->stamp && a->hash == b->hash && slice_eq(a->item, b->item) && delivered_has(d, a));
    }
    buf_free(&blob);
}

static void try_blob(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct delivered d;
    struct err err = {0};
    int rc = delivered_unpack(&codec, data, size, SEED, &arena, &d, &err);
    CHECK(rc == 0 || rc == ERR_CORRUPT);
    CHECK(arena.bytes <= LARGEST + ENTRIES * sizeof *d.list + 2 * 1024 * 1024);
    if (rc == 0) {
        check_list(&d);
        check_rewrite(&d, &arena);
    } else {
        CHECK(err.code == ERR_CORRUPT && err.text[0] != '\0' && d.list == NULL && d.n == 0);
    }
    arena_free(&arena);
}

static void try_sealed(const uint8_t *bytes, size_t len)
{
    uint8_t *blob = malloc(len + CHECKSUM);
    CHECK(blob != NULL);
    memcpy(blob, bytes, len);
    uint64_t sum = hash_checksum(bytes, len);
    for (unsigned i = 0; i < CHECKSUM; i++) {
        blob[len + i] = (uint8_t)(sum >> (8 * i));
    }
    try_blob(blob, len + CHECKSUM);
    free(blob);
}

static void try_payload(const uint8_t *data, size_t size)
{
    size_t room = 1 + VARINT_MAX + ZSTD_compressBound(size);
    uint8_t *blob = malloc(room);
    CHECK(blob != NULL);
    blob[0] = 0x20;
    memcpy(blob + 1, data, size);
    try_sealed(blob, 1 + size);
    blob[0] = 0x21;
    size_t at = 1 + varint_put(blob + 1, size);
    size_t compressed = ZSTD_compress(blob + at, room - at, data, size, 1);
    CHECK(!ZSTD_isError(compressed));
    try_sealed(blob, at + compressed);
    free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_blob(data, size);
    if (size > CHECKSUM) {
        try_sealed(data, size - CHECKSUM);
    }
    if (size > 0) {
        try_payload(data, size);
    }
    return 0;
}
