#include "resp/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/worker.h"
#include "resp/client.h"
#include "resp/command.h"
#include "service/login.h"
#include "service/service.h"

struct server {
    struct worker_pool pool;
    struct service service;
    struct listeners listeners;
};

static int bind_all(struct server *s, const struct config *cfg, const struct listeners *beside, struct err *err)
{
    int code = listeners_add_tcp(&s->listeners, "listen", cfg->listen, "", &resp_client_ops, NULL, err);
    if (code == 0 && cfg->unix_socket[0] != '\0') {
        code = listeners_add_unix(&s->listeners, cfg, &resp_client_ops, err);
    }
    if (code == 0 && s->listeners.n == 0) {
        code = err_set(err, ERR_INVALID, "listen = none and no unix_socket: no client could connect");
    }
    for (int i = 0; beside != NULL && i < beside->n; i++) {
        s->listeners.list[s->listeners.n++] = beside->list[i];
    }
    return code;
}

int server_start(const struct config *cfg, const struct listeners *beside, struct server **server, struct err *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the server");
    }
    command_index();
    service_init(&s->service, &s->pool);
    struct account_set *accounts = NULL;
    const char *file = config_now(cfg)->accounts;
    int code = file[0] != '\0' ? account_file_read(file, &accounts, err) : 0;
    if (code == 0) {
        code = accounts_open(&s->service, accounts, err);
    }
    if (code == 0) {
        code = bind_all(s, cfg, beside, err);
    }
    if (code == 0) {
        code = worker_pool_start(&s->pool, cfg, PARSER_BYTES_MAX, &s->listeners, err);
    }
    if (code < 0) {
        server_stop(s);
        server_free(s);
        return code;
    }
    *server = s;
    return 0;
}

int server_record(struct server *server, const struct dedup *dedup, struct err *err)
{
    return service_record(&server->service, dedup, err);
}

void server_recovering(struct server *server, uint64_t rows, uint64_t of)
{
    service_recovering(&server->service, rows, of);
}

int server_attach(struct server *server, struct dedup *dedup, struct err *err)
{
    return service_attach(&server->service, dedup, err);
}

bool server_replace_accounts(struct server *server, struct account_set *set)
{
    return accounts_replace(&server->service, set);
}

void server_reconfigured(struct server *server)
{
    worker_pool_reconfigured(&server->pool);
}

int server_reload_tls(struct server *server, struct err *err)
{
    return worker_pool_reload_tls(&server->pool, err);
}

int server_address(const struct server *server, int i, char *out, size_t out_size)
{
    if (i < 0 || i >= server->listeners.n) {
        return -1;
    }
    return snprintf(out, out_size, "%s", server->listeners.list[i].address);
}

struct worker_pool *server_pool(struct server *server)
{
    return &server->pool;
}

void server_stop(struct server *server)
{
    server_stop_within(server, SERVER_STOP_MS);
}

void server_stop_within(struct server *server, int64_t ms)
{
    accounts_stop(&server->service);
    worker_pool_stop(&server->pool, ms);
    service_stop(&server->service);
    listeners_free(&server->listeners);
}

void server_free(struct server *server)
{
    worker_pool_free(&server->pool);
    service_free(&server->service);
    accounts_free(&server->service);
    free(server);
}
