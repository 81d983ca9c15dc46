/* The import reader: any bytes, cut anywhere, give events and malformed lines that keep the rules, and the same ones as
 * in one piece. The first byte chooses the format (low two bits), how the rest is cut, and for TSV whose
 * escapes it has. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "cli/import/import_reader.h"
#include "dedup/dedup.h"
#include "fuzz.h"

struct outcome {
    uint64_t digest; /* of all that came out, in order */
    uint64_t last_line;
};

static void add(struct outcome *o, const void *bytes, size_t len)
{
    o->digest = o->digest * 0x9e3779b97f4a7c15 + hash_checksum(bytes, len) + len;
}

static void drain(struct import_reader *r, struct outcome *o)
{
    struct import_event event;
    enum import_answer answer;
    while ((answer = import_reader_next(r, &event)) != IMPORT_MORE) {
        CHECK(r->line > o->last_line);
        o->last_line = r->line;
        add(o, &r->line, sizeof(r->line));
        if (answer == IMPORT_EVENT) {
            CHECK(event.user.len >= 1 && event.user.len <= ID_MAX && event.item.len >= 1 && event.item.len <= ID_MAX);
            CHECK(event.at_ms <= 0 || event.at_ms >= 100000000000);
            add(o, &event.at_ms, sizeof(event.at_ms));
            add(o, event.user.data, event.user.len);
            add(o, event.item.data, event.item.len);
        } else {
            CHECK(r->err.code == ERR_INVALID && r->err.text[0] != '\0');
            add(o, r->err.text, strlen(r->err.text));
        }
        add(o, r->raw.data, r->raw.len);
    }
}

/* step 0: as much as fits; else pieces of 1 up to step bytes. */
static struct outcome read_all(const struct import_rules *rules, const uint8_t *data, size_t size, size_t step)
{
    struct import_reader r;
    struct outcome o = {0, 0};
    CHECK(import_reader_init(&r, rules) == 0);
    size_t piece = step;
    for (size_t used = 0;;) {
        size_t room;
        char *at = import_reader_room(&r, &room);
        CHECK(room >= 128 * 1024);
        size_t n = size - used < room ? size - used : room;
        if (step > 0) {
            piece = piece * 5 % (step + 1);
            n = n > piece + 1 ? piece + 1 : n;
        }
        memcpy(at, data + used, n);
        used += n;
        import_reader_filled(&r, n);
        drain(&r, &o);
        if (n == 0) {
            break;
        }
    }
    import_reader_free(&r);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct import_rules rules;
    import_rules_init(&rules);
    rules.format = (enum import_format)(data[0] & 3);
    rules.keep = true;
    if (rules.format == IMPORT_TSV) {
        rules.escapes = (enum import_escapes)((data[0] >> 2) % (IMPORT_ESCAPES_CLICKHOUSE + 1));
    }
    struct outcome whole = read_all(&rules, data + 1, size - 1, 0);
    struct outcome cut = read_all(&rules, data + 1, size - 1, 1 + (data[0] >> 2));
    CHECK(whole.digest == cut.digest);
    return 0;
}
