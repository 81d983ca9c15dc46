/* The parser of HTTP: any bytes, cut anywhere, taken apart as a connection does it: the end of a head, the head, the
 * body behind it. What comes of them must not depend on the cuts, every text that a head points to stands within it,
 * and a head that is taken has one meaning only.
 *
 * The first byte chooses the size of the cuts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fuzz.h"
#include "http/parser.h"

enum { REQUESTS_MAX = 64, STEPS = 64, BODY_MAX = 4096 };

struct outcome {
    uint64_t checksum; /* of what was asked, and of the bodies */
    size_t requests;
    unsigned refused; /* the status; or the chunks' state */
};

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void add(struct outcome *out, const char *bytes, size_t len)
{
    out->checksum = out->checksum * 31 + hash_checksum(bytes, len) + len;
}

static void add_text(struct outcome *out, const struct head *head, const char *within, size_t len, const char *at)
{
    if (at != NULL) {
        check(at >= within && at + strlen(at) < within + len && strpbrk(at, "\r\n") == NULL);
        add(out, at, strlen(at));
        check(head->method != NULL);
    }
}

static void take_head(struct outcome *out, struct head *head, const char *bytes, size_t len)
{
    char *copy = malloc(len); /* exactly: what is read or written behind it shows */
    check(copy != NULL);
    memcpy(copy, bytes, len);
    head_parse(head, copy, len);
    check((head->status == 0) == (head->error == NULL));
    if (head->status == 0) {
        check(head->target != NULL && !(head->chunked && head->fields[FIELD_CONTENT_LENGTH] != NULL));
        check(head->old || head->fields[FIELD_HOST] != NULL);
        add(out, head->method, strlen(head->method));
        add_text(out, head, copy, len, head->target);
        for (int i = 0; i < FIELDS; i++) {
            add_text(out, head, copy, len, head->fields[i]);
        }
    }
    free(copy);
}

/* Returns how many bytes it has, or 0: it is refused, or more must come. */
static size_t take_chunks(struct outcome *out, const char *bytes, size_t len, size_t step)
{
    struct chunks k = {0}, again = {0};
    size_t at = 0, end = 0;
    while (k.state < CHUNK_DONE && end < len) {
        end = step == 0 || len - end < step ? len : end + step;
        at += chunks_scan(&k, bytes + at, end - at, BODY_MAX, NULL);
        check(at <= end && k.body <= BODY_MAX);
    }
    out->refused = k.state;
    if (k.state != CHUNK_DONE) {
        return 0;
    }
    char *copy = malloc(at);
    check(copy != NULL);
    memcpy(copy, bytes, at);
    check(chunks_scan(&again, copy, at, BODY_MAX, copy) == at && again.body == k.body && again.beside == at - k.body);
    add(out, copy, k.body);
    free(copy);
    return at;
}

/* Looks for the head's end in steps; step 0: in all at once. */
static size_t find_head(const char *bytes, size_t len, size_t step)
{
    size_t seen = 0, found = 0, end = 0;
    while (found == 0 && end < len) {
        end = step == 0 || len - end < step ? len : end + step;
        found = head_find(slice_of(bytes, end), &seen);
    }
    return found;
}

static void run(const char *bytes, size_t size, size_t step, struct outcome *out)
{
    *out = (struct outcome){0};
    while (out->requests < REQUESTS_MAX) {
        struct head head;
        size_t len = find_head(bytes, size, step);
        if (len == 0 || len > HEAD_MAX) {
            return;
        }
        take_head(out, &head, bytes, len);
        out->refused = head.status;
        size_t body = 0;
        if (head.status == 0 && head.chunked) {
            body = take_chunks(out, bytes + len, size - len, step);
        } else if (head.status == 0 && head.length <= size - len) {
            body = (size_t)head.length;
        }
        if (head.status != 0 || (head.chunked && body == 0) || head.length > size - len) {
            return;
        }
        out->requests++;
        bytes += len + body;
        size -= len + body;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    const char *bytes = (const char *)data + 1;
    struct outcome whole, cut;
    head_may_begin(slice_of(bytes, size - 1));
    run(bytes, size - 1, 0, &whole);
    size_t step = 1 + data[0] % STEPS;
    run(bytes, size - 1, size > 4096 ? step * 16 : step, &cut);
    check(whole.requests == cut.requests && whole.checksum == cut.checksum && whole.refused == cut.refused);
    return 0;
}
