/* Blob: n and m - 1 (varints), number of planes (1 byte), then each plane from the lowest: its compressed length
 * (varint, 0: raw) and its bytes; at the end the same checksum as a filter blob. The first gap is the first position,
 * each other one the distance to the position before, less one; plane b has byte b of each gap. */
#include "bench/rival_planes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/hash.h"
#include "base/varint.h"

enum { LEVEL = 3, PLANES_MAX = 4 };

struct planes {
    ZSTD_CCtx *pack;
    ZSTD_DCtx *unpack;
    uint8_t *plane[PLANES_MAX];
    uint32_t n_max;
};

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "byte planes: %s\n", what);
        exit(1);
    }
}

struct planes *planes_new(uint32_t n_max)
{
    struct planes *p = calloc(1, sizeof *p);
    must(p != NULL, "out of memory");
    p->pack = ZSTD_createCCtx();
    p->unpack = ZSTD_createDCtx();
    p->n_max = n_max;
    must(p->pack != NULL && p->unpack != NULL, "out of memory");
    for (int i = 0; i < PLANES_MAX; i++) {
        p->plane[i] = malloc(n_max);
        must(p->plane[i] != NULL, "out of memory");
    }
    return p;
}

void planes_free(struct planes *p)
{
    for (int i = 0; i < PLANES_MAX; i++) {
        free(p->plane[i]);
    }
    ZSTD_freeCCtx(p->pack);
    ZSTD_freeDCtx(p->unpack);
    free(p);
}

size_t planes_bound(uint32_t n)
{
    return 64 + PLANES_MAX * (VARINT_MAX + ZSTD_compressBound(n));
}

size_t planes_encode(struct planes *p, const struct filter_part *part, uint8_t *out)
{
    const uint32_t n = part->n;
    uint32_t all = 0, next = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t gap = part->positions[i] - next;
        next = part->positions[i] + 1;
        all |= gap;
        for (int b = 0; b < PLANES_MAX; b++) {
            p->plane[b][i] = (uint8_t)(gap >> (8 * b));
        }
    }
    unsigned planes = 1;
    while (planes < PLANES_MAX && all >> (8 * planes) != 0) {
        planes++;
    }
    uint8_t *at = out;
    at += varint_put(at, n);
    at += varint_put(at, part->m - 1);
    *at++ = (uint8_t)planes;
    for (unsigned b = 0; b < planes; b++) {
        size_t packed = n;
        if (b > 0) { /* the lowest one is noise */
            packed = ZSTD_compressCCtx(p->pack, at + 3, ZSTD_compressBound(n), p->plane[b], n, LEVEL);
            must(!ZSTD_isError(packed), "zstd failed");
        }
        if (packed + 2 < n) {
            uint8_t length[VARINT_MAX];
            size_t length_bytes = varint_put(length, packed);
            memmove(at + length_bytes, at + 3, packed);
            memcpy(at, length, length_bytes);
            at += length_bytes + packed;
        } else {
            *at++ = 0;
            memcpy(at, p->plane[b], n);
            at += n;
        }
    }
    uint32_t sum = (uint32_t)hash_checksum(out, (size_t)(at - out));
    memcpy(at, &sum, sizeof sum);
    return (size_t)(at - out) + sizeof sum;
}

/* A loop for each number of planes. */
static inline __attribute__((always_inline)) uint64_t import(const uint8_t *const *plane, unsigned planes,
                                                             struct filter_part *out)
{
    const uint8_t *p0 = plane[0], *p1 = plane[1], *p2 = plane[2], *p3 = plane[3];
    uint64_t next = 0;
    for (uint32_t i = 0; i < out->n; i++) {
        uint32_t gap = p0[i];
        gap |= planes > 1 ? (uint32_t)p1[i] << 8 : 0;
        gap |= planes > 2 ? (uint32_t)p2[i] << 16 : 0;
        gap |= planes > 3 ? (uint32_t)p3[i] << 24 : 0;
        out->positions[i] = (uint32_t)(next + gap);
        next += gap + UINT64_C(1);
    }
    return next - 1;
}

void planes_decode(struct planes *p, const uint8_t *blob, size_t len, struct filter_part *out)
{
    const uint8_t *at = blob, *end = blob + len - 4;
    uint32_t sum;
    memcpy(&sum, end, sizeof sum);
    must(sum == (uint32_t)hash_checksum(blob, len - 4), "wrong checksum");
    uint64_t n = 0, m_less_1 = 0;
    at += varint_get(at, end, &n);
    at += varint_get(at, end, &m_less_1);
    must(n <= p->n_max, "too many positions");
    out->n = (uint32_t)n;
    out->m = m_less_1 + 1;
    unsigned planes = *at++;
    const uint8_t *plane[PLANES_MAX] = {0};
    for (unsigned b = 0; b < planes; b++) {
        uint64_t packed = 0;
        at += varint_get(at, end, &packed);
        plane[b] = at;
        if (packed > 0) {
            must(ZSTD_decompressDCtx(p->unpack, p->plane[b], n, at, packed) == n, "zstd failed");
            plane[b] = p->plane[b];
        }
        at += packed > 0 ? packed : n;
    }
    must(at == end, "bytes left over");

    uint64_t last = 0;
    switch (planes) {
    case 1:
        last = import(plane, 1, out);
        break;
    case 2:
        last = import(plane, 2, out);
        break;
    case 3:
        last = import(plane, 3, out);
        break;
    default:
        last = import(plane, 4, out);
    }
    must(last < out->m, "a position is not below m");
}
