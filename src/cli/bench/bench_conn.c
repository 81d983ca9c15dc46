#include "cli/bench/bench_conn.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "net/client.h"

#define LAST_MOMENT_NS INT64_C(1000000) /* what became due so shortly before the end says nothing about the server */

enum { READ_BYTES = 16 * 1024 };

int bench_conn_open(struct bench_conn *c, int epoll, struct err *err)
{
    struct client *client;
    int rc = client_connect(c->run->plan->address, c->run->plan->password, &client, err);
    if (rc < 0) {
        return rc;
    }
    c->stream = client_detach(client);
    int one = 1;
    setsockopt(c->stream.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails on a Unix socket, which needs none */
    c->pending = calloc((size_t)c->load->pipeline, sizeof *c->pending);
    if (c->pending == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a connection");
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->stream.fd, &event) < 0) {
        return err_set(err, ERR_SYSTEM, "can't watch a connection: %s", strerror(errno));
    }
    return 0;
}

void bench_conn_close(struct bench_conn *c)
{
    stream_close(&c->stream);
    buf_free(&c->out);
    buf_free(&c->in);
    free(c->pending);
}

static int64_t next_gap(struct bench_conn *c)
{
    if (!c->run->plan->random_arrivals) {
        return (int64_t)c->gap_ns;
    }
    return (int64_t)(-log(1 - random_unit(&c->source.random)) * c->gap_ns);
}

/* Makes requests while there is room for them and they are due. */
static void make_requests(struct bench_conn *c, int64_t now)
{
    const struct bench_work *work = c->load->work;
    while (c->n < c->load->pipeline && c->body.len == 0 && !c->exhausted) {
        int64_t began = c->gap_ns > 0 ? c->due_ns : now;
        if (began > now || now >= c->run->end_ns) {
            return;
        }
        struct bench_request request = {.tag = 0};
        if (!work->next(work, &c->source, &c->out, &request)) {
            c->exhausted = true;
            return;
        }
        c->source.serial++;
        c->body = request.body;
        struct bench_pending *p = &c->pending[(c->first + c->n) % c->load->pipeline];
        *p = (struct bench_pending){.began_ns = began, .tag = request.tag, .replies = work->replies};
        c->n++;
        if (c->gap_ns > 0) {
            c->due_ns += next_gap(c);
        }
    }
}

static int closed(const struct bench_conn *c, struct err *err)
{
    return err_set(err, ERR_CLOSED, "%s: the server closed a connection", c->run->plan->address);
}

static int lost(const struct bench_conn *c, const char *what, struct err *err)
{
    if (errno == ECONNRESET || errno == EPIPE) {
        return closed(c, err);
    }
    return err_set(err, ERR_SYSTEM, "%s: %s: %s", c->run->plan->address, what, stream_problem(&c->stream));
}

/* Returns 1 when all is sent, 0 when the socket is full. */
static int send_some(struct bench_conn *c, struct err *err)
{
    while (c->out_sent < c->out.len || c->body.len > 0) {
        struct iovec parts[2] = {
            {c->out.len > 0 ? c->out.data + c->out_sent : NULL, c->out.len - c->out_sent},
            {(void *)(uintptr_t)c->body.data, c->body.len},
        };
        bool head = parts[0].iov_len > 0;
        ssize_t n = stream_write(&c->stream, head ? parts : parts + 1, head && c->body.len > 0 ? 2 : 1);
        if (n < 0 && errno == EAGAIN) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return lost(c, "can't send", err);
        }
        size_t sent = n > 0 ? (size_t)n : 0;
        size_t of_head = sent < parts[0].iov_len ? sent : parts[0].iov_len;
        c->out_sent += of_head;
        if (sent > of_head) {
            c->body.data += sent - of_head;
            c->body.len -= sent - of_head;
        }
    }
    buf_clear(&c->out);
    c->out_sent = 0;
    return 1;
}

int bench_conn_pump(struct bench_conn *c, struct err *err)
{
    if (stream_flush(&c->stream) < 0) {
        return lost(c, "can't send", err);
    }
    for (;;) {
        if (c->body.len == 0) {
            make_requests(c, clock_figures_ns());
        }
        if (c->out.failed) {
            return err_set(err, ERR_NOMEM, "out of memory for requests");
        }
        if (c->out_sent == c->out.len && c->body.len == 0) {
            return 0;
        }
        int rc = send_some(c, err);
        if (rc <= 0) {
            return rc;
        }
    }
}

void bench_name_error(struct bench_result *r, struct slice text, uint64_t count)
{
    const char *blank = memchr(text.data, ' ', text.len);
    size_t word = blank == NULL ? text.len : (size_t)(blank - text.data);
    int i = 0;
    for (; i < r->n_named; i++) {
        if (strcspn(r->named[i].text, " ") == word && memcmp(r->named[i].text, text.data, word) == 0) {
            break;
        }
    }
    if (i == BENCH_ERRORS_NAMED) {
        return;
    }
    if (i == r->n_named) {
        size_t len = text.len < BENCH_ERROR_TEXT - 1 ? text.len : BENCH_ERROR_TEXT - 1;
        memcpy(r->named[i].text, text.data, len);
        r->named[i].text[len] = '\0';
        r->n_named++;
    }
    r->named[i].count += count;
}

static void take_reply(struct bench_conn *c, struct slice reply)
{
    struct bench_result *r = c->result;
    struct bench_pending *p = &c->pending[c->first];
    if (reply.data[0] == '-' || reply.data[0] == '!') {
        size_t at = 0;
        int64_t number;
        struct slice text;
        bench_line(reply, &at, &number, &text);
        bench_name_error(r, text, 1);
        r->errors++;
    } else if (!c->load->work->check(c->load->work, p->tag, reply, &r->findings)) {
        r->wrong++;
    }
    if (--p->replies > 0) {
        return;
    }
    int64_t now = clock_figures_ns();
    r->answered++;
    if (now >= c->run->from_ns) { /* one that was due in the warm-up, too: what piled up then is still waiting */
        histogram_note(&r->latency, (uint64_t)(now - p->began_ns));
        r->done += now < c->run->end_ns;
    }
    c->first = (c->first + 1) % c->load->pipeline;
    c->n--;
}

static int take_replies(struct bench_conn *c, struct err *err)
{
    while (c->in_used < c->in.len) {
        const char *data = c->in.data + c->in_used;
        int result = bench_scan(&c->scan, data, c->in.len - c->in_used);
        if (result == BENCH_SCAN_MORE) {
            break;
        }
        if (result == BENCH_SCAN_BAD || c->n == 0) {
            return err_set(err, ERR_CORRUPT, "%s: an answer that is no RESP, or to no question", c->run->plan->address);
        }
        take_reply(c, slice_of(data, c->scan.at));
        c->in_used += c->scan.at;
        c->scan = (struct bench_scan){0};
    }
    if (c->in_used > 0) {
        c->in.len -= c->in_used;
        memmove(c->in.data, c->in.data + c->in_used, c->in.len);
        c->in_used = 0;
    }
    return 0;
}

int bench_conn_receive(struct bench_conn *c, struct err *err)
{
    for (;;) {
        if (buf_reserve(&c->in, c->in.len > READ_BYTES ? c->in.len : READ_BYTES) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for a reply");
        }
        if (c->in.len >= CLIENT_REPLY_MAX) {
            return err_set(err, ERR_CORRUPT, "%s: a reply of more than %d KiB, where none is so long",
                           c->run->plan->address, CLIENT_REPLY_MAX / 1024);
        }
        size_t room = c->in.cap - c->in.len;
        ssize_t n = stream_read(&c->stream, c->in.data + c->in.len, room);
        if (n == 0) {
            return closed(c, err);
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno == EAGAIN ? 0 : lost(c, "can't receive", err);
        }
        c->in.len += (size_t)n;
        int rc = take_replies(c, err);
        if (rc < 0 || ((size_t)n < room && c->stream.tls == NULL)) {
            return rc;
        }
    }
}

void bench_conn_settle(struct bench_conn *c)
{
    int64_t end = c->run->end_ns;
    c->result->unanswered += (uint64_t)c->n;
    if (c->gap_ns > 0 && c->due_ns < end - LAST_MOMENT_NS) {
        c->result->unsent += (uint64_t)((double)(end - c->due_ns) / c->gap_ns) + 1;
    }
}
