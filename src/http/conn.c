/* Connections: how long they may take, and how they end.
 *
 * A connection is always in one phase: a request is coming in (also before its first byte), it is being worked on, or
 * its answer goes out. The first and the last may take HTTP_PATIENCE_MS in all, not a byte now and then. The work
 * itself has the store's own limits. Where HTTP_CLIENTS_MAX are there, a new one takes the place of the one that has
 * been in the first phase for longest; so whoever says something is heard, however many say nothing.
 *
 * A refused body is still on its way when the refusal is sent. Closing then would make the kernel answer the sender
 * with a reset, which throws away our last words. So a copy of the socket is kept for a moment, and what comes is read
 * from it and thrown away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/server.h"
#include "net/address.h"

enum {
    LINGERERS_MAX = HTTP_CLIENTS_MAX,
    LINGER_MS = 10 * 1000,
    LINGER_READ = 64 * 1024,
    LINGER_READS_A_TURN = 16,
    STALLED_MS = 5 * 1000, /* after which a body or an unread answer is in the way of others */
};

struct http_linger {
    struct http *http;
    struct http_linger *next;
    int fd;
    int handles; /* still open */
    bool closing;
    uv_poll_t poll;
    uv_timer_t end;
};

static void on_linger_closed(uv_handle_t *handle)
{
    struct http_linger *l = handle->data;
    if (--l->handles > 0) {
        return;
    }
    close(l->fd);
    free(l);
}

static void linger_close(struct http_linger *l)
{
    if (l->closing) {
        return;
    }
    l->closing = true;
    struct http_linger **at = &l->http->lingerers;
    while (*at != l) {
        at = &(*at)->next;
    }
    *at = l->next;
    l->http->n_lingerers--;
    uv_close((uv_handle_t *)&l->poll, on_linger_closed);
    uv_close((uv_handle_t *)&l->end, on_linger_closed);
}

static void on_linger_end(uv_timer_t *timer)
{
    linger_close(timer->data);
}

static void on_leftovers(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct http_linger *l = poll->data;
    char dropped[LINGER_READ];
    for (int i = 0; status == 0 && i < LINGER_READS_A_TURN; i++) {
        ssize_t n = recv(l->fd, dropped, sizeof dropped, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            status = -1;
        }
    }
    if (status < 0) {
        linger_close(l);
    }
}

static void linger_start(struct http *h, int fd)
{
    struct http_linger *l = h->stopped || h->n_lingerers >= LINGERERS_MAX ? NULL : calloc(1, sizeof *l);
    if (l == NULL || uv_poll_init(&h->loop, &l->poll, fd) < 0) {
        free(l);
        close(fd);
        return;
    }
    l->http = h;
    l->fd = fd;
    l->handles = 2;
    uv_timer_init(&h->loop, &l->end);
    l->poll.data = l->end.data = l;
    l->next = h->lingerers;
    h->lingerers = l;
    h->n_lingerers++;
    uv_poll_start(&l->poll, UV_READABLE, on_leftovers);
    uv_timer_start(&l->end, on_linger_end, LINGER_MS, 0);
}

void http_lingerers_close(struct http *h)
{
    while (h->lingerers != NULL) {
        linger_close(h->lingerers);
    }
}

void http_conn_linger(struct http_conn *c)
{
    if (c->linger_fd < 0) {
        c->linger_fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
    }
}

void http_conn_phase(struct http_conn *c, enum http_phase phase)
{
    c->phase = phase;
    c->since_ms = clock_mono_ms();
}

/* The library reads while a request comes in, and can't be told to answer before it is whole. */
void http_conn_refuse(struct http_conn *c, struct http_request *rq)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     rq->status, MHD_get_reason_phrase_for(rq->status), rq->type, rq->out.len);
    struct iovec parts[2] = {{head, (size_t)n}, {rq->out.data, rq->out.len}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = rq->out.len > 0 ? 2 : 1};
    http_conn_linger(c);
    if (sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        log_debug("HTTP client is gone", "address=%s status=%u", log_quote_str(c->address), rq->status);
    }
}

static void send_problem(struct http_conn *c, unsigned status, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Where there is no request that libmicrohttpd would let us answer. */
static void send_problem(struct http_conn *c, unsigned status, const char *kind, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct http_part part = {.http = c->http};
    struct http_request rq = {.part = &part};
    http_problem(&rq, status, kind, "%s", text);
    http_conn_refuse(c, &rq);
    buf_free(&rq.out);
}

void http_conn_wait(struct http_conn *c, int64_t ms)
{
    c->wake_ms = clock_mono_ms() + ms;
    MHD_suspend_connection(c->rq->part->mhd);
}

static void wake(struct http_conn *c)
{
    if (c->wake_ms != 0) {
        c->wake_ms = 0;
        MHD_resume_connection(c->rq->part->mhd);
        http_run_soon(c->http);
    }
}

void http_conn_wake_all(struct http *h)
{
    for (struct http_conn *c = h->conns; c != NULL; c = c->next) {
        wake(c);
    }
}

/* Nobody is told: a client that waits between two requests could take it for the answer to its next one. */
static void leave(struct http_conn *c)
{
    c->leaving = true;
    c->http->n_conns--;
    shutdown(c->fd, SHUT_RDWR); /* the library sees its end, and closes */
}

/* The connection that must go when a new one comes: of those that owe us a request, the rest of one, or wait for their
 * turn to give a password, the oldest; else one that has not read its answer for a while. NULL: all are at work. */
static struct http_conn *oldest_idle(struct http *h)
{
    int64_t now = clock_mono_ms();
    struct http_conn *reading = NULL, *sending = NULL;
    for (struct http_conn *c = h->conns; c != NULL; c = c->next) { /* from the youngest on */
        if (c->leaving) {
            continue;
        }
        if (c->phase == PHASE_READING && (reading == NULL || c->since_ms <= reading->since_ms)) {
            reading = c;
        } else if (c->phase == PHASE_SENDING && now - c->since_ms >= STALLED_MS &&
                   (sending == NULL || c->since_ms <= sending->since_ms)) {
            sending = c;
        }
    }
    return reading != NULL ? reading : sending;
}

static void make_place(struct http *h, struct http_conn *newcomer)
{
    struct http_conn *c = h->n_conns > HTTP_CLIENTS_MAX ? oldest_idle(h) : NULL;
    if (c != NULL && c != newcomer) {
        worker_pool_count_http(h->pool, COUNT_SHED, 1);
        room_log_shed(&h->pool->room, "http", HTTP_CLIENTS_MAX);
        leave(c);
        wake(c);
    }
}

/* The few that there may be are counted anew each time. */
static void check_address(struct http_conn *newcomer)
{
    struct http *h = newcomer->http;
    int64_t most = h->cfg->max_clients_per_address, n = 0;
    for (const struct http_conn *c = h->conns; most > 0 && c != NULL; c = c->next) {
        n += c->peer == newcomer->peer && !c->leaving;
    }
    if (n > most) {
        worker_pool_count_http(h->pool, COUNT_REJECTED, 1);
        room_log_turned(&h->pool->room, "http", newcomer->peer, "max_clients_per_address", most);
        send_problem(newcomer, 503, "too-many-connections",
                     "your address has max_clients_per_address connections already");
        leave(newcomer);
    }
}

/* Between these two lines stands what libmicrohttpd says of the client, which has no address. */
static void log_client(const struct http_conn *c, const char *message)
{
    log_debug(message, "fd=%d address=%s", c->fd, log_quote_str(c->address));
}

static void conn_new(struct http *h, struct MHD_Connection *mhd, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_conn *c = calloc(1, sizeof *c);
    *context = c;
    if (c == NULL) {
        return; /* the request is refused when it comes */
    }
    c->http = h;
    c->fd = info != NULL ? info->connect_fd : -1;
    c->linger_fd = -1;
    c->peer = peer_of_fd(c->fd);
    info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info != NULL) {
        address_text(info->client_addr, c->address);
    }
    http_conn_phase(c, PHASE_READING);
    c->next = h->conns;
    if (h->conns != NULL) {
        h->conns->prev = c;
    }
    h->conns = c;
    h->n_conns++;
    log_client(c, "HTTP client connected");
    check_address(c);
    make_place(h, c);
}

void http_conn_notify(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http *h = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        conn_new(h, mhd, context);
        return;
    }
    struct http_conn *c = *context;
    if (c == NULL) {
        return;
    }
    h->n_conns -= !c->leaving;
    log_client(c, "HTTP client disconnected");
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        h->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    if (c->linger_fd >= 0) {
        linger_start(h, c->linger_fd);
    }
    free(c);
}

static void give_up(struct http_conn *c, int64_t now)
{
    worker_pool_count_http(c->http->pool, COUNT_TIMEOUTS, 1);
    if (c->phase == PHASE_READING && !c->silent) {
        send_problem(c, 408, "timeout", "the request did not come whole within %d seconds",
                     (int)(now - c->since_ms) / 1000);
    }
    leave(c);
}

void http_conn_tick(struct http *h)
{
    int64_t now = clock_mono_ms();
    for (struct http_conn *c = h->conns; c != NULL; c = c->next) {
        if (c->wake_ms != 0 && now >= c->wake_ms) {
            wake(c);
        } else if (c->phase != PHASE_WORKING && !c->leaving && now - c->since_ms >= HTTP_PATIENCE_MS) {
            give_up(c, now);
            wake(c);
        }
    }
}

/* Bodies that were begun and don't go on, and answers that are not read, hold the room of others. An answer's is free
 * when libmicrohttpd has closed. */
static bool end_stalled(struct http *h)
{
    int64_t now = clock_mono_ms();
    struct http_conn *oldest = NULL;
    for (struct http_conn *c = h->conns; c != NULL; c = c->next) {
        if (c->phase != PHASE_WORKING && !c->leaving && c->rq != NULL && c->rq->part->held > 0 &&
            now - c->since_ms >= STALLED_MS && (oldest == NULL || c->since_ms <= oldest->since_ms)) {
            oldest = c;
        }
    }
    if (oldest == NULL) {
        return false;
    }
    give_up(oldest, now);
    if (oldest->phase == PHASE_READING) {
        request_drop_body(oldest->rq);
    }
    return true;
}

bool http_room(struct http *h, size_t more)
{
    size_t quarter = (size_t)config_now(h->cfg)->request_memory / 4;
    size_t most = quarter < HTTP_HELD_MIN ? HTTP_HELD_MIN : quarter > HTTP_HELD_MAX ? HTTP_HELD_MAX : quarter;
    while (h->held + more > most) {
        if (!end_stalled(h)) {
            return false;
        }
    }
    return true;
}
