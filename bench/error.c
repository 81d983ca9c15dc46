/* How many never-played candidates a user's window hides: `make bench/error && bench/error [CANDIDATES]`.
 *
 * For users of every size and three error rates, the window's four filters are made as the store makes them: live; the
 * three full months sealed; sealed and with late plays (a tenth) in a second part; and those of users who grow: full
 * months of 1,000 plays, sealed, and then so many in the current one. Each goes through its blob. Then CANDIDATES (10
 * million) random items are asked of each, and every played one: none of those may be unseen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "filter/error_budget.h"
#include "filter/probe.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"
#include "tests/lib/grown.h"
#include "tests/lib/random.h"

enum { MONTHS = 4, WINDOW = 3, BATCH = 8192, FLUSHES = 10 };

enum state { LIVE, SEALED, LATE, GROWN, STATES };
static const char *const state_names[STATES] = {"live", "sealed", "sealed + late", "grown"};

enum { BEFORE_GROWTH = 1000 }; /* plays a month */

static uint64_t state_of_random = 1;

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static void add_plays(struct filter *f, const uint64_t *hashes, uint32_t n, double error_rate, struct arena *arena)
{
    must(grown_add(f, hashes, n, FLUSHES, error_budget_coarse_max(error_rate), error_budget_live_max(error_rate),
                   arena) == 0,
         "add");
}

static void read_through_blob(struct filter *f, struct arena *arena)
{
    struct buf blob = {0};
    struct err err = {0};
    must(filter_encode(f, &blob) == 0, "encode");
    must(filter_decode(blob.data, blob.len, arena, f, &err) == 0, err.text);
    buf_free(&blob);
}

static double rate_of(const struct filter filters[MONTHS])
{
    double error = 0;
    for (int m = 0; m < MONTHS; m++) {
        error += filter_error(&filters[m]);
    }
    return error;
}

struct tally {
    uint64_t asked, hidden, false_negatives;
};

static void ask(const struct filter filters[MONTHS], const uint64_t *played, size_t n_played, uint64_t candidates,
                struct tally *tally)
{
    static uint64_t hashes[BATCH];
    static uint8_t unseen[BATCH / 8];
    const struct filter_part *parts[MONTHS * FILTER_PARTS_MAX];
    struct probe *probe = probe_new();
    size_t n_parts = 0;
    for (int m = 0; m < MONTHS; m++) {
        for (unsigned i = 0; i < filters[m].n_parts; i++) {
            parts[n_parts++] = &filters[m].parts[i];
        }
    }
    must(probe != NULL && probe_build(probe, &(struct probe_input){.parts = parts, .n_parts = n_parts}) == 0,
         "out of memory");
    for (uint64_t asked = 0; asked < candidates; asked += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            hashes[i] = random_next(&state_of_random);
        }
        tally->asked += BATCH;
        tally->hidden += BATCH - probe_test(probe, hashes, BATCH, unseen);
    }
    for (size_t i = 0; i < n_played; i++) {
        tally->false_negatives += !probe_seen(probe, played[i]);
    }
    probe_free(probe);
}

static struct tally measure(double error_rate, uint32_t size, enum state state, uint64_t candidates)
{
    uint32_t late = state == LATE ? size / 10 + 1 : 0;
    size_t each = size + late < BEFORE_GROWTH ? BEFORE_GROWTH : size + late;
    size_t n_played = 0;
    uint64_t *played = malloc(MONTHS * each * sizeof *played);
    struct filter filters[MONTHS] = {0};
    struct arena arena = {0};
    struct tally tally = {0};
    must(played != NULL, "out of memory");
    for (size_t i = 0; i < MONTHS * each; i++) {
        played[i] = random_next(&state_of_random);
    }
    for (int m = 0; m < MONTHS; m++) {
        uint32_t n = state == GROWN && m > 0 ? BEFORE_GROWTH : size;
        add_plays(&filters[m], played + n_played, n, error_rate, &arena);
        if (state != LIVE && m > 0) {
            must(error_budget_seal(&filters[m], error_rate, WINDOW, &arena) >= 0, "seal");
        }
        read_through_blob(&filters[m], &arena);
        add_plays(&filters[m], played + n_played + n, late, error_rate, &arena);
        read_through_blob(&filters[m], &arena);
        n_played += n + late;
    }
    ask(filters, played, n_played, candidates, &tally);
    printf("%10g %10" PRIu32 "  %-14s %12" PRIu64 " %10" PRIu64 " %12.3g %12.3g %8.1f %%\n", error_rate, size,
           state_names[state], tally.asked, tally.hidden, rate_of(filters), (double)tally.hidden / (double)tally.asked,
           100 * (double)tally.hidden / (double)tally.asked / error_rate);
    arena_free(&arena);
    free(played);
    return tally;
}

int main(int argc, char **argv)
{
    static const double rates[] = {1e-4, 1e-3, 0.05};
    static const uint32_t sizes[] = {1, 10, 100, 1000, 10000, 30000, 100000, 1000000};
    uint64_t candidates = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    if (argc > 2 || candidates == 0) {
        fprintf(stderr, "usage: bench/error [CANDIDATES]\n");
        return 2;
    }
    struct tally all = {0};
    printf("%10s %10s  %-14s %12s %10s %12s %12s %10s\n", "error_rate", "plays/mo.", "window", "candidates", "hidden",
           "stated", "measured", "of rate");
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        struct tally rate = {0};
        for (int state = 0; state < STATES; state++) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                if (sizes[i] > rates[r] / 4 * (double)FILTER_LIVE_M) {
                    continue; /* beyond what is promised */
                }
                struct tally t = measure(rates[r], sizes[i], (enum state)state, candidates);
                rate.asked += t.asked;
                rate.hidden += t.hidden;
                rate.false_negatives += t.false_negatives;
            }
        }
        printf("%10g %10s  %-14s %12" PRIu64 " %10" PRIu64 " %12s %12.3g %8.1f %%   %" PRIu64 " false negatives\n\n",
               rates[r], "all", "all", rate.asked, rate.hidden, "", (double)rate.hidden / (double)rate.asked,
               100 * (double)rate.hidden / (double)rate.asked / rates[r], rate.false_negatives);
        all.false_negatives += rate.false_negatives;
        all.hidden += (double)rate.hidden / (double)rate.asked > rates[r];
    }
    return all.false_negatives > 0 || all.hidden > 0;
}
