/* Connections: how long they may take, and how they end.
 *
 * A connection is always in one phase: a request is coming in (also before its first byte), it is being worked on, or
 * its answer goes out. The first and the last may take HTTP_PATIENCE_MS in all, not a byte now and then. The work
 * itself has the store's own limits.
 *
 * A refused body is still on its way when the refusal is sent. Closing then would make the kernel answer the sender
 * with a reset, which throws away our last words. So a copy of the socket is kept for a moment, and what comes is read
 * from it and thrown away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/server.h"

enum {
    LINGERERS_MAX = HTTP_CLIENTS_MAX,
    LINGER_MS = 10 * 1000,
    LINGER_READ = 64 * 1024,
    LINGER_READS_A_TURN = 16,
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
    http_conn_phase(c, PHASE_READING);
    c->next = h->conns;
    if (h->conns != NULL) {
        h->conns->prev = c;
    }
    h->conns = c;
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
        log_debug("HTTP client is gone", "status=%u", rq->status);
    }
}

static void give_up(struct http_conn *c)
{
    crew_count_http(c->http->crew, COUNT_TIMEOUTS, 1);
    if (c->phase == PHASE_READING && !c->silent) {
        struct http_part part = {.http = c->http};
        struct http_request rq = {.part = &part};
        http_problem(&rq, 408, "timeout", "the request did not come whole within %d seconds", HTTP_PATIENCE_MS / 1000);
        http_conn_refuse(c, &rq);
        buf_free(&rq.out);
    }
    shutdown(c->fd, SHUT_RDWR); /* the library sees its end, and closes */
}

void http_conn_tick(struct http *h)
{
    int64_t now = clock_mono_ms();
    for (struct http_conn *c = h->conns; c != NULL; c = c->next) {
        if (c->phase != PHASE_WORKING && now - c->since_ms >= HTTP_PATIENCE_MS) {
            give_up(c);
            http_conn_phase(c, PHASE_WORKING); /* once is enough */
        }
    }
}
