/* Writes the hand-made part of the corpus tests/data/fuzz/filter: `make_filter_seeds FOLDER`. */
#include <stdio.h>
#include <stdlib.h>

#include "filter/filter.h"

static const char *folder;

static void write_file(const char *name, const void *bytes, size_t len)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, len, file) != len || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_filter(const char *name, const struct filter *f)
{
    struct buf blob = {0};
    if (filter_encode(f, &blob) != 0) {
        fprintf(stderr, "%s: not a filter\n", name);
        exit(1);
    }
    write_file(name, blob.data, blob.len);
    buf_free(&blob);
}

/* n positions from `first` on, `step` apart, some a little further. */
static struct filter_part part(uint32_t n, uint32_t first, uint32_t step, uint64_t m)
{
    uint32_t *positions = malloc(n * sizeof *positions);
    if (positions == NULL) {
        exit(1);
    }
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = first + i * step + (step > 16 ? i * 7 % 5 : 0);
    }
    return (struct filter_part){.positions = positions, .n = n, .m = m};
}

static void write_part(const char *name, struct filter_part p)
{
    const struct filter f = {.n_parts = 1, .parts = {p}};
    write_filter(name, &f);
    free(p.positions);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    const struct filter empty = {0};
    write_filter("empty", &empty);
    write_part("one-live", part(1, 123456789, 1, FILTER_LIVE_M));
    write_part("one-first", part(1, 0, 1, FILTER_LIVE_M));
    write_part("one-last", part(1, UINT32_MAX, 1, FILTER_LIVE_M));
    write_part("one-of-one", part(1, 0, 1, 1));
    write_part("both-ends", part(2, 0, UINT32_MAX - 2, FILTER_LIVE_M));
    write_part("dense", part(300, 5, 1, FILTER_LIVE_M));
    write_part("dense-top", part(64, UINT32_MAX - 63, 1, FILTER_LIVE_M));
    write_part("full-range", part(40, 0, 1, 40));
    write_part("live", part(31, 99, 100000000, FILTER_LIVE_M));
    write_part("sealed", part(33, 7, 3000, 100003));
    write_part("sealed-widest", part(10, 7, 400000000, FILTER_LIVE_M - 1));

    struct filter_part coarse = part(40, 7, 3000000, FILTER_LIVE_M >> FILTER_GRAIN);
    coarse.coarse = true;
    write_part("coarse-live", coarse);
    coarse = part(33, 7, 3000, 100003);
    coarse.coarse = true;
    write_part("coarse-sealed", coarse);
    static const struct {
        const char *name;
        uint32_t n, step;
        uint64_t m;
    } few[] = {
        {"short-live", 3, 40000000, FILTER_LIVE_M >> FILTER_GRAIN},
        {"short-live-one", 1, 1, FILTER_LIVE_M >> FILTER_GRAIN},
        {"short-live-most", 15, 8000000, FILTER_LIVE_M >> FILTER_GRAIN},
        {"short-sealed", 3, 4000, 3 << 12},
        {"short-sealed-one", 1, 1, 1 << 9},
        {"short-sealed-most", 15, 30000, 15 << 15},
        {"short-dense", 15, 1, 15 << 9},
    };
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        coarse = part(few[i].n, 5, few[i].step, few[i].m);
        coarse.coarse = true;
        write_part(few[i].name, coarse);
    }
    struct filter coarse_and_fine = {.n_parts = 2};
    coarse_and_fine.parts[0] = part(40, 3, 3000000, FILTER_LIVE_M >> FILTER_GRAIN);
    coarse_and_fine.parts[0].coarse = true;
    coarse_and_fine.parts[1] = part(10, 90, 50000000, FILTER_LIVE_M);
    write_filter("coarse-and-fine", &coarse_and_fine);
    free(coarse_and_fine.parts[0].positions);
    free(coarse_and_fine.parts[1].positions);

    struct filter fine = coarse_and_fine;
    uint8_t tails[10] = {1, 0, 255, 7, 7, 0, 3, 128, 64, 2};
    fine.parts[0] = part(40, 3, 3000000, FILTER_LIVE_M >> FILTER_GRAIN);
    fine.parts[0].coarse = true;
    fine.parts[1] = part(10, 90, 50000000, FILTER_LIVE_M);
    fine.parts[1].fine = true;
    fine.parts[1].tails = tails;
    write_filter("fine", &fine);
    free(fine.parts[0].positions);
    free(fine.parts[1].positions);

    struct filter many = {.n_parts = FILTER_PARTS_MAX};
    for (uint32_t i = 0; i < FILTER_PARTS_MAX; i++) {
        many.parts[i] = part(1 + i, i, 17 * i + 1, i % 3 == 0 ? FILTER_LIVE_M : 5000 + i);
    }
    write_filter("sixteen-parts", &many);
    many.n_parts = 3;
    write_filter("three-parts", &many);
    for (uint32_t i = 0; i < FILTER_PARTS_MAX; i++) {
        free(many.parts[i].positions);
    }

    /* Broken ones; the fuzz target sets their checksums right. */
    static const struct {
        const char *name;
        size_t len;
        unsigned char bytes[20];
    } bad[] = {
        {"bad-nothing", 0, {0}},
        {"bad-short", 4, {0x20, 0xcf, 0xb7, 0x3c}},
        {"bad-version", 5, {0x00}},
        {"bad-short-none", 6, {0x90, 0x01, 0x00, 0xfc, 0x83}},
        {"bad-short-bytes", 5, {0x93, 0x01, 0x00, 0xfc}},
        {"bad-short-cut-off", 6, {0x93, 0x01, 0x00, 0xfc, 0x03}},
        {"bad-short-beyond-m", 6, {0x93, 0x01, 0x00, 0xfe, 0x83}},
        {"bad-short-beyond-live", 13, {0x83, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0xfb, 0xff, 0xff, 0x03, 0x02}},
        {"bad-short-padding", 6, {0x93, 0x01, 0x00, 0xfc, 0xc7}},
        {"bad-short-left-over", 7, {0x93, 0x01, 0x00, 0xfc, 0x83, 0x00}},
        {"bad-fine-cut", 10, {0x61, 0x20, 0x01, 0x09, 0x07, 0x01}},
        {"bad-fine-coarse", 9, {0x61, 0xe0, 0x01, 0x07, 0x01}},
        {"bad-fine-tails", 9, {0x61, 0xa0, 0x02, 0x07, 0x07}},
        {"bad-17-parts", 5, {0x31}},
        {"bad-part-missing", 9, {0x22, 0x00, 0x01, 0x09, 0x01}},
        {"bad-left-over", 10, {0x21, 0x00, 0x01, 0x09, 0x01, 0x00}},
        {"bad-flags", 9, {0x21, 0x40, 0x01, 0x09, 0x01}},
        {"bad-coarse-range", 12, {0x41, 0x40, 0x01, 0xff, 0xff, 0xff, 0x3f, 0x01}},
        {"bad-coarse-beyond", 11, {0x41, 0xdb, 0x01, 0x00, 0x00, 0x00, 0x10}},
        {"bad-no-positions", 8, {0x21, 0x00, 0x00, 0x09}},
        {"bad-n-too-large", 12, {0x21, 0x9f, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xff}},
        {"bad-m-too-large", 13, {0x21, 0x00, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x01}},
        {"bad-varint", 8, {0x21, 0x80, 0x81, 0x00}},
        {"bad-cut-off", 17, {0x21, 0x80, 0x01}},
        {"bad-beyond-m", 20, {0x21, 0x00, 0x01, 0x02, [14] = 0x01}},
        {"bad-beyond-live", 12, {0x21, 0x9f, 0x01, 0x00, 0x00, 0x00, 0x00, 0x02}},
        {"bad-padding", 9, {0x21, 0x00, 0x01, 0x09, 0x81}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i].name, bad[i].bytes, bad[i].len);
    }
    return 0;
}
