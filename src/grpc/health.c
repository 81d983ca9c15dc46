#include "grpc/health.h"

#include "base/wire.h"
#include "grpc/reflection.h"

int health_read(struct slice request, enum health_role *role, struct err *err)
{
    struct wire w = wire_of(request);
    struct wire_field f;
    struct slice service = {0};
    int code;
    while ((code = wire_next(&w, &f, err)) > 0) {
        if (f.number == 1) {
            service = f.bytes;
        }
        if (f.number == 1 && (f.type != WIRE_BYTES || !slice_is_utf8(service))) {
            return err_set(err, ERR_INVALID, "service (field 1) is no text");
        }
    }
    *role = slice_eq(service, slice_str("primary"))   ? HEALTH_PRIMARY
            : slice_eq(service, slice_str("replica")) ? HEALTH_REPLICA
                                                      : HEALTH_ANY;
    if (code == 0 && service.len > 0 && *role == HEALTH_ANY && !reflection_serves(service)) {
        code = err_set(err, ERR_NOTFOUND, "no service '%.*s' here", (int)(service.len < 128 ? service.len : 128),
                       service.data);
    }
    return code;
}

void health_write(enum health_status status, struct buf *out)
{
    wire_put_number(out, 1, status);
}
