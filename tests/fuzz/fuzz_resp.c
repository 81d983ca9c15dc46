/* The RESP parser: any bytes, cut anywhere. What comes of them must not depend on the cuts, each feed sees memory of
 * its own of exactly the bytes that have come (so every slice must have moved along), and every argument is read.
 *
 * The first byte chooses the limits and the size of the cuts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fuzz.h"
#include "resp/parser.h"

enum { REQUESTS_MAX = 64, STEPS = 64 };

struct outcome {
    uint64_t checksum; /* of all requests' arguments */
    size_t requests;
    enum parse_result last;
    char error[96];
};

static void take(struct outcome *out, const struct parser *p)
{
    for (size_t i = 0; i < p->n; i++) {
        out->checksum = out->checksum * 31 + hash_checksum(p->args[i].data, p->args[i].len) + p->args[i].len;
    }
    out->checksum = out->checksum * 31 + p->count;
    out->requests++;
}

/* Feeds the bytes in steps; step 0: all at once. */
static void run(const char *bytes, size_t size, size_t step, bool guarded, struct outcome *out)
{
    struct parser p;
    parser_init(&p);
    p.guarded = guarded;
    *out = (struct outcome){.last = PARSE_MORE};
    char *memory = NULL;
    size_t start = 0, end = 0;
    while (out->requests < REQUESTS_MAX) {
        if (out->last == PARSE_MORE) {
            if (end == size) {
                break;
            }
            end = step == 0 || size - end < step ? size : end + step;
        }
        char *copy = malloc(end - start > 0 ? end - start : 1);
        CHECK(copy != NULL);
        memcpy(copy, bytes + start, end - start);
        out->last = parser_feed(&p, copy, end - start);
        free(memory);
        memory = copy;
        if (out->last == PARSE_BAD) {
            CHECK(p.error != NULL && parser_feed(&p, copy, end - start) == PARSE_BAD);
            strncpy(out->error, p.error, sizeof out->error - 1);
            break;
        }
        if (out->last == PARSE_MORE) {
            CHECK(p.need > end - start && p.need <= p.bytes_max + 1);
            continue;
        }
        CHECK(p.used > 0 && p.used <= end - start && p.n <= p.count);
        take(out, &p);
        start += p.used;
        parser_next(&p);
        if (start == end) {
            out->last = PARSE_MORE;
        }
    }
    free(memory);
    parser_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    bool guarded = (data[0] & 0x80) != 0;
    const char *bytes = (const char *)data + 1;
    struct outcome whole, cut;
    run(bytes, size - 1, 0, guarded, &whole);
    size_t step = 1 + data[0] % STEPS;
    run(bytes, size - 1, size > 4096 ? step * 16 : step, guarded, &cut);
    CHECK(whole.requests == cut.requests && whole.checksum == cut.checksum);
    CHECK(whole.requests == REQUESTS_MAX || whole.last == cut.last);
    CHECK(strcmp(whole.error, cut.error) == 0);
    return 0;
}
