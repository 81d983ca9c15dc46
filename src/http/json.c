#include "http/json.h"

#include "base/err.h"

static int append(const char *bytes, size_t len, void *out)
{
    return buf_add(out, bytes, len) < 0 ? -1 : 0;
}

void json_write(struct buf *out, json_t *value)
{
    if (value == NULL || json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY) < 0 ||
        buf_add(out, "\n", 1) < 0) {
        out->failed = true;
    }
    json_decref(value);
}
