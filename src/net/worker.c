#include "net/worker.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { CROWD_CLIENT = 2048, CROWD_LEAST = 4 * 1024 * 1024 };

const struct figure counter_figures[COUNTERS] = {
    [COUNT_CONNECTIONS] = {"total_connections_received", "connections_total", FIGURE_COUNTER,
                           "Connections that were accepted, over RESP, HTTP and gRPC."},
    [COUNT_REJECTED] = {"rejected_connections", "connections_rejected_total", FIGURE_COUNTER,
                        "Connections that were closed at once because max_clients were there (over HTTP: 256), or "
                        "max_clients_per_address of their address."},
    [COUNT_SHED] = {"shed_connections", "connections_shed_total", FIGURE_COUNTER,
                    "Silent connections that were closed to make room for others."},
    [COUNT_TIMEOUTS] = {"timed_out_connections", "connections_timed_out_total", FIGURE_COUNTER,
                        "Connections that were closed because nothing moved on them."},
    [COUNT_STARVED] = {"waits_for_memory", "request_memory_waits_total", FIGURE_COUNTER,
                       "Times that a connection had to wait for request_memory."},
    [COUNT_BYTES_IN] = {"total_net_input_bytes", "received_bytes_total", FIGURE_COUNTER,
                        "Bytes that clients sent, over RESP, HTTP and gRPC."},
    [COUNT_BYTES_OUT] = {"total_net_output_bytes", "sent_bytes_total", FIGURE_COUNTER,
                         "Bytes that were sent to clients, over RESP, HTTP and gRPC."},
    [COUNT_COMMANDS] = {"total_commands_processed", NULL, FIGURE_COUNTER,
                        "Commands that were run or queued, and requests over HTTP and gRPC."},
    [COUNT_ERRORS] = {"total_error_replies", NULL, FIGURE_COUNTER, "Error replies, over RESP, HTTP and gRPC."},
    [COUNT_PROTOCOL_ERRORS] =
        {"protocol_errors", "protocol_errors_total", FIGURE_COUNTER,
         "Connections that were closed because what came was not RESP, or no HTTP/2 as it must be."},
    [COUNT_TLS_HANDSHAKES] = {"tls_handshakes", "tls_handshakes_total", FIGURE_COUNTER,
                              "Handshakes of TLS that clients have completed."},
    [COUNT_TLS_FAILED] = {"tls_failed_handshakes", "tls_failed_handshakes_total", FIGURE_COUNTER,
                          "Connections that were closed because their handshake of TLS failed."},
    [COUNT_FAILED_LOGINS] = {"failed_logins", "failed_logins_total", FIGURE_COUNTER,
                             "Wrong passwords that were given."},
    [COUNT_GRPC_MESSAGES] = {"grpc_messages", NULL, FIGURE_COUNTER, "Messages that were answered over gRPC."},
    [COUNT_GRPC_ERRORS] = {"grpc_errors", NULL, FIGURE_COUNTER, "Of these, refused ones."},
    [COUNT_GRPC_CALLS] = {"grpc_calls", "grpc_calls_total", FIGURE_COUNTER, "Calls over gRPC that were begun."},
    [COUNT_GRPC_OPEN] = {"grpc_open_calls", "grpc_open_calls", FIGURE_GAUGE,
                         "Calls over gRPC that are open, streams among them."},
    [COUNT_GRPC_CONNECTIONS] = {"grpc_connections", "grpc_connections", FIGURE_GAUGE,
                                "Open connections of clients of gRPC."},
};

uint64_t worker_pool_counter(const struct worker_pool *pool, enum counter counter)
{
    uint64_t sum = 0;
    for (int i = 0; i < pool->n_all; i++) {
        sum += atomic_load_explicit(&pool->workers[i].counters[counter], memory_order_relaxed);
    }
    return sum;
}

enum { DAY_S = 24 * 60 * 60, TLS_WARN_DAYS = 14 };

static void close_handles(struct worker *w)
{
    if (!w->stopped) {
        w->stopped = true;
        uv_close((uv_handle_t *)&w->turn_end, NULL);
        uv_close((uv_handle_t *)&w->before_wait, NULL);
        uv_close((uv_handle_t *)&w->tick, NULL);
        uv_close((uv_handle_t *)&w->serving, NULL);
        uv_close((uv_handle_t *)&w->turning, NULL);
        uv_close((uv_handle_t *)&w->deadline, NULL);
        w->pool->hooks->close(w);
        loop_queue_close(&w->queue);
    }
}

static void drain(struct worker *w)
{
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        conn_drain(c);
    }
}

static void end_turn(struct worker *w)
{
    if (budget_load(&w->pool->budget.waiting) > 0 || w->strangers.first != NULL) {
        worker_serve_lines(w);
    }
    w->pool->hooks->turn_end(w);
    if (w->stopping) {
        drain(w);
    }
    while (w->dirty != NULL) {
        struct conn *c = w->dirty;
        w->dirty = c->next_dirty;
        c->dirty = false;
        conn_flush(c);
    }
    if (w->stopping && w->n_alive == 0 && w->pool->hooks->under_way(w) == 0) {
        close_handles(w);
    }
}

static void on_turn_end(uv_check_t *check)
{
    struct worker *w = check->data;
    end_turn(w);
    heartbeat_now(&w->heartbeat); /* each turn of the loop, and so each WORKER_TICK_MS at least */
}

static void on_before_wait(uv_prepare_t *prepare)
{
    end_turn(prepare->data);
}

static void give_back(size_t most, size_t now)
{
    int64_t began_us = clock_figures_us();
    malloc_trim(0);
    log_debug("memory given back after a crowd", "most=%zu now=%zu us=%" PRId64, most, now,
              clock_figures_us() - began_us);
}

/* What a crowd has held stays with the allocator, in pieces between what others hold. Once most of the crowd has gone
 * whole pages go back to the system. */
static void watch_crowd(struct worker_pool *pool)
{
    size_t clients = (size_t)atomic_load_explicit(&pool->room.clients, memory_order_relaxed);
    size_t now = budget_used(&pool->budget) + clients * CROWD_CLIENT;
    if (pool->crowd_most > now + CROWD_LEAST && pool->crowd_most / 2 > now) {
        give_back(pool->crowd_most, now);
        pool->crowd_most = now;
    }
    pool->crowd_most = now > pool->crowd_most ? now : pool->crowd_most;
}

void worker_tick(struct worker *w)
{
    int64_t now = clock_mono_ms();
    w->given_way = 0;
    for (struct conn *c = w->conns, *next; c != NULL; c = next) {
        next = c->next;
        conn_tick(c, now);
    }
    worker_make_way(w);
    if (w->index == 0) {
        watch_crowd(w->pool);
    }
    w->pool->hooks->tick(w);
    if (w->side != NULL) {
        w->side->tick(w);
    }
}

static void on_tick(uv_timer_t *timer)
{
    worker_tick(timer->data);
}

/* Messages: a socket, the end. */

struct socket_message {
    struct loop_message message;
    const struct listener *from;
    int fd;
    uint64_t peer, id;
    struct sockaddr_in6 address;
};

static void drop_socket(struct worker *w, int fd, uint64_t peer)
{
    close(fd);
    room_leave(w->room, peer, true);
}

static void on_socket(struct loop_message *message, void *owner)
{
    struct worker *w = owner;
    struct socket_message *m = (struct socket_message *)message;
    if (w->stopping) {
        drop_socket(w, m->fd, m->peer);
    } else {
        conn_open(w, m->from, m->fd, m->peer, &m->address, m->id);
    }
    free(m);
}

static struct worker *worker_in_turn(struct worker_pool *pool)
{
    unsigned turn = atomic_fetch_add_explicit(&pool->next_worker, 1, memory_order_relaxed);
    return &pool->workers[turn % (unsigned)pool->n];
}

void worker_deal(const struct listener *l, int fd, uint64_t peer, const struct sockaddr_storage *address)
{
    struct worker *w = l->worker;
    struct worker_pool *pool = w->pool;
    struct socket_message *m = calloc(1, sizeof *m);
    if (m == NULL) {
        drop_socket(w, fd, peer);
        return;
    }
    *m = (struct socket_message){{NULL, on_socket}, l, fd, peer, 0, {0}};
    memcpy(&m->address, address, sizeof m->address);
    m->id = atomic_fetch_add_explicit(&pool->last_id, 1, memory_order_relaxed) + 1;
    loop_queue_post(w->side != NULL ? &w->queue : &worker_in_turn(pool)->queue, &m->message);
}

struct stop_message {
    struct loop_message message;
    int64_t patience_ms;
};

static void on_deadline(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    log_warn("stopped with work under way", "worker=%d connections=%zu batches=%zu", w->index, w->n_alive,
             w->pool->hooks->under_way(w));
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        conn_end(c, CONN_END_STOPPING);
    }
    close_handles(w);
}

static void on_stop(struct loop_message *message, void *owner)
{
    struct worker *w = owner;
    struct stop_message *m = (struct stop_message *)message;
    if (!w->stopping && !w->stopped) {
        w->stopping = true;
        for (int i = 0; i < w->pool->listeners->n; i++) {
            if (w->pool->listeners->list[i].worker == w) {
                listener_stop(&w->pool->listeners->list[i]);
            }
        }
        uv_timer_start(&w->deadline, on_deadline, (uint64_t)m->patience_ms, 0);
    }
    free(m);
}

static void *thread_main(void *arg)
{
    struct worker *w = arg;
    char name[HEARTBEAT_NAME];
    snprintf(name, sizeof name, "worker-%u", (unsigned)w->index % 1000);
    heartbeat_begin(&w->heartbeat, w->side != NULL ? w->side->name : name);
    worker_tick(w);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    heartbeat_end(&w->heartbeat);
    w->pool->hooks->leave(w);
    return NULL;
}

static void start_handle(struct worker *w, uv_handle_t *handle)
{
    handle->data = w;
}

static int worker_init(struct worker_pool *pool, int index, struct err *err)
{
    struct worker *w = &pool->workers[index];
    w->pool = pool;
    w->index = index;
    w->room = index < pool->n ? &pool->room : &pool->side_room;
    w->memory.all = &pool->budget;
    atomic_init(&w->oldest_silent, UINT64_MAX);
    w->read_buf = malloc(2 * CONN_READ);
    w->sealed_in = pool->tls != NULL ? malloc(TLS_RECORD_MAX + CONN_READ) : NULL;
    if (w->read_buf == NULL || (w->sealed_in == NULL && pool->tls != NULL)) {
        return err_set(err, ERR_NOMEM, "out of memory for worker %d", index);
    }
    int code = pool->hooks->begin(w, err);
    if (code < 0) {
        return code;
    }
    code = uv_loop_init(&w->loop);
    if (code < 0) {
        return err_set(err, ERR_SYSTEM, "can't set up the loop of worker %d: %s", index, uv_strerror(code));
    }
    w->has_loop = true;
    if (loop_queue_open(&w->queue, &w->loop, w, err) < 0) {
        return err_prefix(err, "worker %d", index);
    }
    w->has_queue = true;
    uv_check_init(&w->loop, &w->turn_end);
    start_handle(w, (uv_handle_t *)&w->turn_end);
    uv_prepare_init(&w->loop, &w->before_wait);
    start_handle(w, (uv_handle_t *)&w->before_wait);
    uv_timer_init(&w->loop, &w->tick);
    start_handle(w, (uv_handle_t *)&w->tick);
    uv_timer_init(&w->loop, &w->serving);
    start_handle(w, (uv_handle_t *)&w->serving);
    uv_idle_init(&w->loop, &w->turning);
    start_handle(w, (uv_handle_t *)&w->turning);
    uv_timer_init(&w->loop, &w->deadline);
    start_handle(w, (uv_handle_t *)&w->deadline);
    uv_check_start(&w->turn_end, on_turn_end);
    uv_prepare_start(&w->before_wait, on_before_wait);
    uv_timer_start(&w->tick, on_tick, WORKER_TICK_MS, WORKER_TICK_MS);
    return 0;
}

/* Signals are the main thread's business. */
static int start_threads(struct worker_pool *pool, struct err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = 0;
    for (int i = 0; code == 0 && i < pool->n_all; i++) {
        struct worker *w = &pool->workers[i];
        code = pthread_create(&w->thread, NULL, thread_main, w);
        w->has_thread = code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code == 0 ? 0 : err_set(err, ERR_SYSTEM, "can't start a worker thread: %s", uv_strerror(-code));
}

void worker_pool_reconfigured(struct worker_pool *pool)
{
    budget_limit(&pool->budget, (size_t)config_now(pool->cfg)->request_memory, pool->request_max, (size_t)pool->n_all);
}

static const struct worker_side *find_side(const struct worker_pool *pool)
{
    const struct worker_side *side = NULL;
    for (int i = 0; i < pool->listeners->n; i++) {
        side = pool->listeners->list[i].side != NULL ? pool->listeners->list[i].side : side;
    }
    return side;
}

static int make_rooms(struct worker_pool *pool, const struct worker_side *side, struct err *err)
{
    const struct config *cfg = pool->cfg;
    pool->room = (struct room){.workers = pool->workers,
                               .n_workers = pool->n,
                               .max = cfg->max_clients,
                               .max_per_address = cfg->max_clients_per_address};
    int code = room_init(&pool->room, err);
    if (code == 0 && side != NULL) {
        struct worker *own = &pool->workers[pool->n];
        own->side = side;
        pool->side_room = (struct room){.workers = own,
                                        .n_workers = 1,
                                        .max = side->max_clients,
                                        .patient = true,
                                        .max_per_address = cfg->max_clients_per_address};
        code = room_init(&pool->side_room, err);
    }
    return code;
}

int worker_pool_size(const struct config *cfg)
{
    return cfg->workers > 0 ? (int)cfg->workers : (int)uv_available_parallelism();
}

static void warn_of_end(int64_t expires)
{
    int64_t days = (expires - clock_wall_ms() / 1000) / DAY_S;
    if (expires <= clock_wall_ms() / 1000) {
        log_error("the TLS certificate has expired", "unix_s=%" PRId64, expires);
    } else if (days < TLS_WARN_DAYS) {
        log_warn("the TLS certificate expires soon", "unix_s=%" PRId64 " days=%" PRId64, expires, days);
    }
}

static int open_tls(struct worker_pool *pool, struct err *err)
{
    struct tls_files files = tls_files_to_listen(pool->cfg);
    bool wanted = false;
    for (int i = 0; i < pool->listeners->n; i++) {
        wanted = wanted || pool->listeners->list[i].tls;
    }
    int code = wanted ? tls_server(&files, &pool->tls, err) : 0;
    if (code == 0 && wanted) {
        warn_of_end(tls_expires(pool->tls));
    }
    return code;
}

int64_t worker_pool_tls_expires(const struct worker_pool *pool)
{
    return pool->tls != NULL ? tls_expires(pool->tls) : 0;
}

int worker_pool_reload_tls(struct worker_pool *pool, struct err *err)
{
    if (pool->tls == NULL) {
        return 0;
    }
    int64_t before = tls_expires(pool->tls);
    struct tls_files files = tls_files_to_listen(pool->cfg);
    int code = tls_reload(pool->tls, &files, err);
    if (code < 0) {
        log_error("TLS certificate not read again, the one before stays", "error=%s", log_quote_str(err->text));
    } else if (tls_expires(pool->tls) != before) {
        log_info("TLS certificate renewed", "unix_s=%" PRId64, tls_expires(pool->tls));
        warn_of_end(tls_expires(pool->tls));
    }
    return code;
}

/* Where another allocator stands in its place (the address sanitizer's), the C library's own begins at the first call
 * of malloc_trim() or mallinfo2(). Of two threads at once both would begin it, and the second one to end abort(). */
static void begin_allocator(void)
{
    (void)mallinfo2();
}

int worker_pool_start(struct worker_pool *pool, const struct config *cfg, size_t request_max,
                      struct listeners *listeners, struct err *err)
{
    begin_allocator();
    pool->cfg = cfg;
    pool->n = worker_pool_size(cfg);
    pool->listeners = listeners;
    const struct worker_side *side = find_side(pool);
    pool->n_all = pool->n + (side != NULL);
    pool->started_ms = clock_mono_ms();
    pool->started_wall_ms = clock_wall_ms();
    pool->request_max = request_max;
    worker_pool_reconfigured(pool);
    pool->workers = calloc((size_t)pool->n_all, sizeof *pool->workers);
    if (pool->workers == NULL) {
        pool->n = pool->n_all = 0;
        return err_set(err, ERR_NOMEM, "out of memory for the workers");
    }
    int code = make_rooms(pool, side, err);
    if (code == 0) {
        code = open_tls(pool, err);
    }
    for (int i = 0; code == 0 && i < pool->n_all; i++) {
        code = worker_init(pool, i, err);
    }
    for (int i = 0; code == 0 && i < listeners->n; i++) {
        code = listener_start(&listeners->list[i], &pool->workers[listeners->list[i].side != NULL ? pool->n : 0], err);
    }
    return code < 0 ? code : start_threads(pool, err);
}

/* A worker whose thread never ran ends its loop here. One that has stopped is left alone: what its ticks use is gone.
 */
void worker_pool_stop(struct worker_pool *pool, int64_t patience_ms)
{
    for (int i = 0; i < pool->n_all; i++) {
        struct worker *w = &pool->workers[i];
        struct stop_message *m = w->has_queue && !w->stopped ? malloc(sizeof *m) : NULL;
        if (m != NULL) {
            *m = (struct stop_message){{NULL, on_stop}, patience_ms};
            loop_queue_post(&w->queue, &m->message);
        }
    }
    for (int i = 0; i < pool->n_all; i++) {
        struct worker *w = &pool->workers[i];
        if (w->has_thread) {
            pthread_join(w->thread, NULL);
        } else if (w->has_queue && !w->stopped) {
            thread_main(w);
        }
        w->has_thread = false;
    }
}

void worker_pool_free(struct worker_pool *pool)
{
    /* A message may be on its way through all workers. */
    for (int pass = 0; pass <= pool->n_all; pass++) {
        for (int i = 0; i < pool->n_all; i++) {
            if (pool->workers[i].has_queue) {
                loop_queue_drain(&pool->workers[i].queue);
            }
        }
    }
    for (int i = 0; i < pool->n_all; i++) {
        struct worker *w = &pool->workers[i];
        pool->hooks->end(w);
        if (w->has_queue) {
            loop_queue_free(&w->queue);
        }
        if (w->has_loop) {
            uv_loop_close(&w->loop);
        }
        buf_free(&w->spare);
        buf_free(&w->sealed);
        free(w->sealed_in);
        free(w->read_buf);
        free(w->args);
    }
    room_free(&pool->room);
    room_free(&pool->side_room);
    tls_context_free(pool->tls);
    pool->tls = NULL;
    free(pool->workers);
    pool->workers = NULL;
    pool->n = pool->n_all = 0;
}
