/* Any bytes as a month filter: refused, or a sound filter that can be used like any other. As the checksum would keep
 * a fuzzer out, each input is decoded a second time with its checksum set right, and as a short blob a third time. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "filter/codec_impl.h"
#include "filter/filter.h"
#include "filter/probe.h"
#include "fuzz.h"

enum { SMALL_PARTS = FILTER_PARTS_MAX * FILTER_ANY_N * sizeof(uint32_t) };

/* The first hash that has the position. */
static uint64_t hash_of(const struct filter_part *part, uint64_t position)
{
    uint64_t first = ((position << 32) + part->m - 1) / part->m;
    uint64_t grain = part->coarse ? 1U << FILTER_GRAIN : 1;
    return (first + grain - 1) / grain * grain << 32;
}

static void check_parts(const struct filter *f)
{
    uint64_t items = 0;
    CHECK(f->n_parts <= FILTER_PARTS_MAX);
    for (unsigned i = 0; i < f->n_parts; i++) {
        const struct filter_part *part = &f->parts[i];
        CHECK(!part->fine || (part->m == FILTER_LIVE_M && part->tails != NULL && part->n_open <= part->n));
        CHECK(part->m >= 1 && part->m <= FILTER_LIVE_M >> (part->coarse ? FILTER_GRAIN : 0) && part->n >= 1);
        for (uint32_t j = 0; j < part->n; j++) {
            CHECK(part->positions[j] < part->m);
            CHECK(j == 0 || part->positions[j - 1] < part->positions[j]);
        }
        items += (uint64_t)part->n + part->n_open;
    }
    CHECK(filter_items(f) == items);
    CHECK(filter_error(f) >= 0 && filter_error(f) <= 1);
}

/* A scan hands over what a decode keeps. */
struct expected {
    const struct filter *filter;
    unsigned begun; /* parts */
};

static void see(void *arg, const struct filter_part *scanned, uint32_t before, const uint32_t *positions, uint32_t n)
{
    struct expected *e = arg;
    if (e->filter == NULL) {
        return; /* it's going to be refused */
    }
    e->begun += before == 0;
    CHECK(e->begun <= e->filter->n_parts);
    const struct filter_part *part = &e->filter->parts[e->begun - 1];
    CHECK(part->m == scanned->m && part->coarse == scanned->coarse && before < part->n && n <= part->n - before);
    CHECK(part->fine == scanned->fine && (!part->fine || memcmp(part->tails, scanned->tails, part->n) == 0));
    CHECK(memcmp(part->positions + before, positions, n * sizeof *positions) == 0);
}

static void check_scan(const uint8_t *data, size_t size, int rc, const struct filter *f)
{
    struct expected e = {.filter = rc == 0 ? f : NULL};
    struct filter scanned;
    CHECK(filter_scan(data, size, see, &e, &scanned, NULL) == rc);
    CHECK(rc != 0 ||
          (scanned.n_parts == f->n_parts && e.begun == f->n_parts && filter_items(&scanned) == filter_items(f)));
}

static void check_members(const struct filter *f, const struct filter *of, struct probe *probe)
{
    for (unsigned i = 0; i < of->n_parts; i++) {
        for (uint32_t j = 0; j < of->parts[i].n; j++) {
            uint64_t hash = hash_of(&of->parts[i], of->parts[i].positions[j]);
            hash |= of->parts[i].fine ? (uint64_t)of->parts[i].tails[j] << 24 : 0;
            CHECK(filter_has(f, hash));
            CHECK(probe_seen(probe, hash));
        }
    }
}

static void check_probe(struct probe *probe, const struct filter *f, const struct filter *of)
{
    const struct filter_part *parts[FILTER_PARTS_MAX];
    for (unsigned i = 0; i < f->n_parts; i++) {
        parts[i] = &f->parts[i];
    }
    const struct probe_input in = {.parts = parts, .n_parts = f->n_parts};
    CHECK(probe_build(probe, &in) == 0);
    check_members(f, of, probe);
}

static void check_round_trip(const struct filter *f, struct arena *arena)
{
    struct buf blob = {0};
    struct filter again;
    struct err err;
    CHECK(filter_encode(f, &blob) == 0);
    CHECK(filter_decode(blob.data, blob.len, arena, &again, &err) == 0);
    CHECK(again.n_parts == f->n_parts);
    for (unsigned i = 0; i < f->n_parts; i++) {
        CHECK(again.parts[i].m == f->parts[i].m && again.parts[i].n == f->parts[i].n &&
              again.parts[i].coarse == f->parts[i].coarse && again.parts[i].fine == f->parts[i].fine);
        CHECK(!f->parts[i].fine || memcmp(again.parts[i].tails, f->parts[i].tails, f->parts[i].n) == 0);
        CHECK(memcmp(again.parts[i].positions, f->parts[i].positions, f->parts[i].n * sizeof(uint32_t)) == 0);
    }
    buf_free(&blob);
}

/* What a flush and a seal do to a decoded filter. */
static void check_growth(struct filter *f, uint32_t coarse_max, struct arena *arena, struct probe *probe)
{
    uint32_t more[] = {0, 1, 0x7fffffff, UINT32_MAX}, work[4];
    uint8_t tails[] = {1, 7, 255, 0}, work_tails[4];
    const struct filter added = {
        .n_parts = 1, .parts = {{.positions = more, .n = 4, .m = FILTER_LIVE_M, .fine = true, .tails = tails}}};
    struct filter before = *f;
    memcpy(work, more, sizeof work);
    memcpy(work_tails, tails, sizeof tails);
    if (filter_add_tails(f, work, work_tails, 4, coarse_max, coarse_max * 10, arena) != 0) {
        CHECK(f->n_parts == FILTER_PARTS_MAX);
        return;
    }
    check_parts(f);
    check_probe(probe, f, &added);
    check_members(f, &before, probe);
    check_round_trip(f, arena);
    if (coarse_max == 0) {
        CHECK(filter_drop_tails(f, arena) == 0);
        check_parts(f);
        check_probe(probe, f, &added);
    }
    if (filter_unite(f, arena) == 0) {
        CHECK(f->n_parts == 1 && f->parts[0].coarse);
        check_parts(f);
        check_probe(probe, f, &added);
    }
    for (unsigned i = 0; i < f->n_parts; i++) {
        uint64_t m = (uint64_t)f->parts[i].n * 3000 + 1;
        bool good = filter_part_live(&f->parts[i]) && m < f->parts[i].m;
        CHECK(filter_cut(&f->parts[i], m) == (good ? 0 : ERR_INVALID));
    }
    check_parts(f);
    CHECK(filter_sealed(f));
    check_probe(probe, f, &added);
    check_round_trip(f, arena);
}

/* There is one short blob of a filter, and it's the one that is written. */
static void check_short(const uint8_t *data, size_t size, const struct filter *f)
{
    struct buf blob = {0};
    if ((data[0] & SHORT_FLAG) != 0) {
        CHECK(filter_encode(f, &blob) == 0);
        CHECK(blob.len == size && memcmp(blob.data, data, size) == 0);
    }
    buf_free(&blob);
}

static void try_blob(const uint8_t *data, size_t size)
{
    static struct probe *probe;
    if (probe == NULL) {
        probe = probe_new();
        CHECK(probe != NULL);
    }
    struct arena arena = {0};
    struct filter f;
    struct err err = {0};
    int rc = filter_decode(data, size, &arena, &f, &err);
    check_scan(data, size, rc, &f);
    CHECK(rc == 0 || rc == ERR_CORRUPT);
    /* Small parts may have 32 times their bytes; a byte of a larger one stands for two positions at most. */
    CHECK(arena.bytes <= 8 * size + (32 * size < SMALL_PARTS ? 32 * size : SMALL_PARTS) + 2 * 65536);
    if (rc == 0) {
        check_short(data, size, &f);
        check_parts(&f);
        check_probe(probe, &f, &f);
        check_round_trip(&f, &arena);
        check_growth(&f, (uint32_t)(size % 3) * 20, &arena, probe);
    } else {
        CHECK(err.code == ERR_CORRUPT && err.text[0] != '\0' && f.n_parts == 0);
    }
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_blob(data, size);
    if (size > 4) {
        uint8_t *fixed = malloc(size);
        CHECK(fixed != NULL);
        memcpy(fixed, data, size);
        uint64_t sum = hash_checksum(fixed, size - 4);
        for (unsigned i = 0; i < 4; i++) {
            fixed[size - 4 + i] = (uint8_t)(sum >> (8 * i));
        }
        try_blob(fixed, size);
        free(fixed);
    }
    if (size >= SHORT_LEAST && size <= SHORT_MOST) {
        uint8_t fixed[SHORT_MOST + WORD] = {0};
        memcpy(fixed, data, size - 1);
        fixed[0] |= SHORT_FLAG;
        fixed[size - 1] = short_check(fixed, size - 1);
        try_blob(fixed, size);
    }
    return 0;
}
