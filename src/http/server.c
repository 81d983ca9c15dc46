/* The thread, its loop, and libmicrohttpd on it.
 *
 * libmicrohttpd is driven from outside: its epoll is one more file of our loop, so that messages from the store, timers
 * and sockets meet on one thread and nothing here needs a lock. http_run() is called when the epoll has something, when
 * a suspended connection was resumed, and again at once as long as the library says that it isn't through.
 *
 * Stopping: the listener closes; requests that are whole are answered and sent; whatever is still under way at the
 * deadline is answered by 503 and its task is cut loose, because libmicrohttpd can't end with suspended connections.
 */
#include "http/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "http/json.h"

enum { TICK_MS = 1000, CONNECTION_BYTES = 32 * 1024 };

static void on_soon(uv_timer_t *timer)
{
    http_run(timer->data);
}

void http_run_soon(struct http *h)
{
    if (!h->stopped) {
        uv_timer_start(&h->soon, on_soon, 0, 0);
    }
}

static void close_handles(struct http *h)
{
    h->stopped = true;
    http_lingerers_close(h);
    uv_close((uv_handle_t *)&h->poll, NULL);
    uv_close((uv_handle_t *)&h->soon, NULL);
    uv_close((uv_handle_t *)&h->tick, NULL);
    uv_close((uv_handle_t *)&h->deadline, NULL);
    loop_queue_close(&h->queue);
}

/* Not from within the library: it is gone afterwards. */
static void end_if_done(struct http *h)
{
    if (!h->stopping || h->stopped || h->n_active > 0) {
        return;
    }
    close_handles(h);
    MHD_stop_daemon(h->daemon);
    h->daemon = NULL;
    http_lingerers_close(h); /* of the connections that have just been closed */
}

void http_run(struct http *h)
{
    if (h->stopped) {
        return;
    }
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(h->daemon);
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES) {
        uv_timer_start(&h->soon, on_soon, ms, 0);
    } else {
        uv_timer_stop(&h->soon);
    }
    end_if_done(h);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    http_run(poll->data);
}

static void on_tick(uv_timer_t *timer)
{
    struct http *h = timer->data;
    heartbeat_now(&h->heartbeat);
    http_conn_tick(h);
    http_timeline_tick(h);
    http_run(h);
}

/* What the library would say on standard error. Bad requests of clients are most of it. */
static void on_library_log(void *cls, const char *format, va_list args)
{
    (void)cls;
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    log_debug("libmicrohttpd", "text=%s", log_quote_str(text));
}

static int start_daemon(struct http *h, struct err *err)
{
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, request_go_on, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET, h->listener,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(HTTP_CLIENTS_MAX + HTTP_CLIENTS_SPARE),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_URI_LOG_CALLBACK, request_new, h, MHD_OPTION_UNESCAPE_CALLBACK, request_keep_encoded, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, request_end, h, MHD_OPTION_NOTIFY_CONNECTION, http_conn_notify, h, MHD_OPTION_END);
    if (h->daemon == NULL) {
        return err_set(err, ERR_SYSTEM, "can't start the HTTP server on %s", h->address);
    }
    h->listener = -1;
    return 0;
}

static int init_loop(struct http *h, struct err *err)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int code = uv_loop_init(&h->loop);
    if (code < 0) {
        return err_set(err, ERR_SYSTEM, "can't set up the loop for HTTP: %s", uv_strerror(code));
    }
    h->has_loop = true;
    if (loop_queue_open(&h->queue, &h->loop, h, err) < 0) {
        return err_prefix(err, "HTTP");
    }
    h->has_queue = true;
    uv_timer_init(&h->loop, &h->soon);
    uv_timer_init(&h->loop, &h->tick);
    uv_timer_init(&h->loop, &h->deadline);
    h->soon.data = h->tick.data = h->deadline.data = h->poll.data = h;
    code = info != NULL ? uv_poll_init(&h->loop, &h->poll, info->epoll_fd) : UV_EINVAL;
    h->poll.data = h;
    if (code < 0) {
        uv_close((uv_handle_t *)&h->soon, NULL);
        uv_close((uv_handle_t *)&h->tick, NULL);
        uv_close((uv_handle_t *)&h->deadline, NULL);
        loop_queue_close(&h->queue);
        uv_run(&h->loop, UV_RUN_DEFAULT);
        return err_set(err, ERR_SYSTEM, "can't wait for HTTP connections: %s", uv_strerror(code));
    }
    uv_poll_start(&h->poll, UV_READABLE, on_ready);
    uv_timer_start(&h->tick, on_tick, TICK_MS, TICK_MS);
    return 0;
}

static void *thread_main(void *arg)
{
    struct http *h = arg;
    heartbeat_begin(&h->heartbeat, "http");
    http_timeline_tick(h);
    http_run(h);
    uv_run(&h->loop, UV_RUN_DEFAULT);
    heartbeat_end(&h->heartbeat);
    asker_close(h->asker);
    h->asker = NULL;
    return NULL;
}

/* Signals are the main thread's business. */
static int start_thread(struct http *h, struct err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&h->thread, NULL, thread_main, h);
    if (code == 0) {
        h->has_thread = true;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code == 0 ? 0 : err_set(err, ERR_SYSTEM, "can't start the HTTP thread: %s", strerror(code));
}

static int start(struct http *h, struct err *err)
{
    static const char scheme[] = "http://";
    char host[CONFIG_HOST_TEXT];
    int port;
    h->is_loopback = config_address(h->cfg->http, host, &port) == 0 && config_is_loopback(host);
    strcpy(h->address, scheme);
    json_limit_memory();
    h->items = malloc(ITEMS_MAX * sizeof *h->items);
    h->hashes = malloc(ITEMS_MAX * sizeof *h->hashes);
    h->bits = malloc(ITEMS_MAX / 8);
    if (h->items == NULL || h->hashes == NULL || h->bits == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the HTTP server");
    }
    h->listener = listener_bind("http", h->cfg->http, h->address + strlen(scheme), err);
    if (h->listener < 0) {
        return err_prefix(err, "http");
    }
    int code = start_daemon(h, err);
    if (code == 0) {
        code = init_loop(h, err);
    }
    return code < 0 ? code : start_thread(h, err);
}

int http_start(const struct config *cfg, struct worker_pool *pool, struct http **http, struct err *err)
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
    h->pool = pool;
    h->listener = -1;
    int code = start(h, err);
    if (code < 0) {
        http_stop(h);
        http_free(h);
        return code;
    }
    *http = h;
    worker_pool_tell_http(pool, h->address);
    return 0;
}

const char *http_address(const struct http *http)
{
    return http != NULL ? http->address : NULL;
}

struct attach_message {
    struct loop_message message;
    const struct dedup *dedup;
    struct asker *asker;
};

static void on_attach(struct loop_message *message, void *owner)
{
    struct http *h = owner;
    struct attach_message *m = (struct attach_message *)message;
    if (h->stopped) {
        asker_close(m->asker);
    } else {
        h->dedup = m->dedup;
        h->asker = m->asker;
    }
    free(m);
}

int http_attach(struct http *http, const struct dedup *dedup, struct err *err)
{
    if (http == NULL) {
        return 0;
    }
    struct attach_message *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the reader of the HTTP server");
    }
    *m = (struct attach_message){{NULL, on_attach}, dedup, NULL};
    int code = asker_open(dedup, &m->asker, err);
    if (code < 0) {
        free(m);
        return code;
    }
    loop_queue_post(&http->queue, &m->message);
    return 0;
}

static void on_deadline(uv_timer_t *timer)
{
    struct http *h = timer->data;
    log_warn("stopped with HTTP requests under way", "requests=%zu", h->n_active);
    for (struct http_conn *c = h->conns; c != NULL; c = c->next) {
        if (c->rq != NULL && c->rq->part->task != NULL) {
            struct http_part *part = c->rq->part;
            part->task->rq = NULL;
            part->task = NULL;
            http_problem(c->rq, 503, "stopping", "the server is stopping, and the store has not answered yet");
            request_resume(c->rq);
        }
    }
    h->n_active = 0; /* whoever doesn't read the answer won't get it */
    MHD_run(h->daemon);
    end_if_done(h);
}

struct stop_message {
    struct loop_message message;
};

static void on_stop(struct loop_message *message, void *owner)
{
    struct http *h = owner;
    free(message);
    if (h->stopping) {
        return;
    }
    h->stopping = true;
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET) {
        close(fd);
    }
    http_conn_wake_all(h);
    uv_timer_start(&h->deadline, on_deadline, HTTP_STOP_MS, 0);
    end_if_done(h);
}

/* A server that never ran has no thread to ask. */
void http_stop(struct http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->has_thread) {
        struct stop_message *m = malloc(sizeof *m);
        if (m != NULL) {
            m->message.deliver = on_stop;
            loop_queue_post(&http->queue, &m->message);
            pthread_join(http->thread, NULL);
        }
        http->has_thread = false;
    } else if (http->daemon != NULL) {
        if (http->has_queue && !http->stopped) {
            http->stopping = true;
            end_if_done(http);
            uv_run(&http->loop, UV_RUN_DEFAULT);
        } else {
            MHD_stop_daemon(http->daemon);
        }
    }
    http->daemon = NULL;
    if (http->listener >= 0) {
        close(http->listener);
        http->listener = -1;
    }
}

void http_free(struct http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->has_queue) {
        loop_queue_drain(&http->queue);
        loop_queue_free(&http->queue);
    }
    if (http->has_loop) {
        uv_loop_close(&http->loop);
    }
    free(http->items);
    free(http->hashes);
    free(http->bits);
    session_set_free(&http->blocked);
    free(http);
}
