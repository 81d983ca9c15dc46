/* SEED: what a client needs that hashes ids by itself (FILTER ... HASHES). Who knows it can make ids that collide, and
 * so hide items from users; hence it is for accounts of the role admin alone, and no log or slow log has it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "resp/command.h"

enum outcome cmd_seed(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct writer *w = &s->writer;
    const uint64_t seed = service_dedup(&s->conn)->seed;
    char text[24];
    write_map(w, 3);
    write_pair_str(w, "hash", HASH_NAME);
    write_str(w, "seed");
    snprintf(text, sizeof text, "%016" PRIx64, seed);
    write_str(w, text);
    write_str(w, "fingerprint");
    snprintf(text, sizeof text, "%08" PRIx32, hash_seed_fingerprint(seed));
    write_str(w, text);
    return OUTCOME_ANSWERED;
}
