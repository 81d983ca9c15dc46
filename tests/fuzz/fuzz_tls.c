/* What a client says before it has shaken hands: any bytes, cut anywhere. Records are taken whole, no more is held than
 * is promised, and what breaks off has a cause, which nothing that comes later changes.
 *
 * The first byte chooses the size of the cuts. */
#include <string.h>

#include "fuzz.h"
#include "net/tls.h"
#include "tests/lib/certificates.h"

enum { STEPS = 64, SAID_MAX = 64 * 1024 };

static struct tls_context *context;

static void begin(void)
{
    static struct certificates certs;
    struct err err = {0};
    certificates_make(&certs);
    struct tls_files files = {certificate(&certs, "server"), "", ""};
    CHECK(tls_server(&files, &context, &err) == 0);
    certificates_free(&certs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    if (context == NULL) {
        begin();
    }
    struct tls *t = tls_accept(context, (data[0] & 0x80) != 0 ? "h2" : NULL);
    struct buf said = {0};
    size_t step = 1 + data[0] % (size_t)STEPS * 16, from = 1, to = 1;
    enum tls_state state = TLS_SHAKING;
    CHECK(t != NULL);
    while (state == TLS_SHAKING && to < size) {
        char plain[16];
        to = size - to < step ? size : to + step;
        char *copy = malloc(to - from); /* exactly */
        CHECK(copy != NULL);
        memcpy(copy, data + from, to - from);
        struct tls_input in = {.bytes = copy, .len = to - from, .out = plain, .room = sizeof plain};
        state = tls_read(t, &in, &said);
        free(copy);
        CHECK(in.used <= to - from && in.made == 0 && in.missing <= TLS_RECORD_MAX && said.len <= SAID_MAX);
        CHECK(state == TLS_SHAKING || state == TLS_BROKEN); /* nobody knows the key */
        CHECK((state == TLS_BROKEN) == (tls_cause(t)[0] != '\0'));
        from += in.used;
    }
    CHECK(state != TLS_BROKEN || tls_write(t, "x", 1, &said) == ERR_CLOSED);
    tls_free(t);
    buf_free(&said);
    return 0;
}
