#include "grpc/server.h"

#include <stdlib.h>
#include <string.h>

static int start(struct grpc *g, struct listeners *listeners, struct err *err)
{
    if (g->loops == NULL || h2_init(g) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for the gRPC server");
    }
    int code = listeners_add_tcp(listeners, "grpc", g->cfg->grpc, "grpc", &g->ops, NULL, err);
    return code < 0 ? err_prefix(err, "grpc") : 0;
}

int grpc_open(const struct config *cfg, struct listeners *listeners, struct grpc **grpc, struct err *err)
{
    *grpc = NULL;
    if (strcmp(cfg->grpc, "none") == 0) {
        return 0;
    }
    struct grpc *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the gRPC server");
    }
    g->ops = grpc_conn_ops;
    g->cfg = cfg;
    g->n_loops = worker_pool_size(cfg);
    g->loops = calloc((size_t)g->n_loops, sizeof *g->loops);
    int code = start(g, listeners, err);
    if (code < 0) {
        grpc_free(g);
        return code;
    }
    *grpc = g;
    return 0;
}

void grpc_free(struct grpc *grpc)
{
    if (grpc != NULL) {
        for (int i = 0; grpc->loops != NULL && i < grpc->n_loops; i++) {
            free(grpc->loops[i].items);
            free(grpc->loops[i].frame);
            call_drop_spare(&grpc->loops[i]);
        }
        free(grpc->loops);
        h2_end(grpc);
        free(grpc);
    }
}

const char *grpc_library_version(void)
{
    return nghttp2_version(0)->version_str;
}
