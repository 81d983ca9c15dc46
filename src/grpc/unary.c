#include "grpc/unary.h"

#include <stddef.h>

#include "base/err.h"

static const struct {
    const char *code;
    unsigned http;
} rows[] = {
    [GRPC_OK] = {"ok", 200},
    [GRPC_CANCELLED] = {"canceled", 499},
    [GRPC_UNKNOWN] = {"unknown", 500},
    [GRPC_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [GRPC_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [GRPC_NOT_FOUND] = {"not_found", 404},
    [GRPC_ALREADY_EXISTS] = {"already_exists", 409},
    [GRPC_PERMISSION_DENIED] = {"permission_denied", 403},
    [GRPC_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [GRPC_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [GRPC_ABORTED] = {"aborted", 409},
    [GRPC_OUT_OF_RANGE] = {"out_of_range", 400},
    [GRPC_UNIMPLEMENTED] = {"unimplemented", 501},
    [GRPC_INTERNAL] = {"internal", 500},
    [GRPC_UNAVAILABLE] = {"unavailable", 503},
    [GRPC_DATA_LOSS] = {"data_loss", 500},
    [GRPC_UNAUTHENTICATED] = {"unauthenticated", 401},
};

unsigned unary_http_status(enum grpc_status status)
{
    return rows[status].http;
}

void unary_write_error(enum grpc_status status, const char *text, struct buf *out)
{
    buf_addf(out, "{\"code\":\"%s\",\"status\":%d,\"message\":\"", rows[status].code, (int)status);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            buf_addf(out, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            buf_addf(out, "\\u%04x", (unsigned)*text);
        } else {
            buf_add(out, text, 1);
        }
    }
    buf_add(out, "\"}", 2);
}

int unary_timeout(struct slice text, int64_t *us)
{
    enum { DIGITS_MAX = 10 };
    int64_t ms = 0;
    if (text.len == 0 || text.len > DIGITS_MAX) {
        return ERR_INVALID;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return ERR_INVALID;
        }
        ms = 10 * ms + text.data[i] - '0';
    }
    *us = ms * 1000;
    return 0;
}
