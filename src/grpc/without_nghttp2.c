/* A build without nghttp2 has no gRPC; config_validate() says so where it is asked for. */
#include <stddef.h>

#include "grpc/grpc.h"

int grpc_open(const struct config *cfg, struct listeners *listeners, struct grpc **grpc, struct err *err)
{
    (void)cfg;
    (void)listeners;
    (void)err;
    *grpc = NULL;
    return 0;
}

void grpc_free(struct grpc *grpc)
{
    (void)grpc;
}

const char *grpc_library_version(void)
{
    return "none";
}
