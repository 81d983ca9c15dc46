#include "service/meter.h"

#include <string.h>

const char *const op_names[OPS] = {
    [OP_OTHER] = "other",       [OP_PLAYED] = "played",
    [OP_PLAYEDAT] = "playedat", [OP_DELIVERED] = "delivered",
    [OP_UNSEEN] = "unseen",     [OP_SEEN] = "seen",
    [OP_FILTER] = "filter",     [OP_FILTER_DELIVER] = "filter_deliver",
    [OP_BLOCK] = "block",       [OP_UNBLOCK] = "unblock",
    [OP_FORGET] = "forget",     [OP_WHY] = "why",
    [OP_HISTORY] = "history",   [OP_RING] = "ring",
    [OP_MONTHS] = "months",     [OP_INFO] = "info",
};

const char *const meter_error_names[METER_ERRORS] = {
    "ERR", "BUSY", "MISCONF", "OOM", "LOADING", "NOAUTH", "WRONGPASS", "NOPROTO", "EXECABORT", "READONLY", "other",
};

enum op op_find(const char *name)
{
    for (int i = OP_OTHER + 1; i < OPS; i++) {
        if (strcmp(op_names[i], name) == 0) {
            return (enum op)i;
        }
    }
    return OP_OTHER;
}

void meter_error(struct meter *m, struct slice text)
{
    int i = 0;
    for (; i < METER_ERRORS - 1; i++) {
        size_t len = strlen(meter_error_names[i]);
        if (text.len > len && memcmp(text.data, meter_error_names[i], len) == 0 && text.data[len] == ' ') {
            break;
        }
    }
    uint64_t old = atomic_load_explicit(&m->errors[i], memory_order_relaxed);
    atomic_store_explicit(&m->errors[i], old + 1, memory_order_relaxed);
}
