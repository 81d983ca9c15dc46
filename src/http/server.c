#include "http/server.h"

#include <stdlib.h>
#include <string.h>

#include "http/json.h"

static int start(struct http *h, struct listeners *listeners, struct err *err)
{
    h->items = malloc(FIELDS_SLICES * sizeof *h->items);
    if (h->items == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the HTTP server");
    }
    int code = listeners_add_tcp(listeners, "http", h->cfg->http, "http", &http_conn_ops, &h->side, err);
    return code < 0 ? err_prefix(err, "http") : 0;
}

int http_open(const struct config *cfg, struct listeners *listeners, struct http **http, struct err *err)
{
    *http = NULL;
    if (strcmp(cfg->http, "none") == 0) {
        return 0;
    }
    struct http *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the HTTP server");
    }
    h->cfg = cfg;
    h->side = (struct worker_side){"http", HTTP_CLIENTS_MAX, http_timeline_tick};
    int code = start(h, listeners, err);
    if (code < 0) {
        http_free(h);
        return code;
    }
    *http = h;
    return 0;
}

void http_free(struct http *http)
{
    if (http != NULL) {
        free(http->items);
        buf_free(&http->last_word);
        buf_free(&http->kept.texts[0]);
        buf_free(&http->kept.texts[1]);
        free(http);
    }
}
