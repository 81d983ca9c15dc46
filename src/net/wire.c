#include "net/wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024, WRITE_MOST = 64 * 1024 };

bool wire_is_tls(const char **address)
{
    static const char scheme[] = "tls://";
    bool tls = strncmp(*address, scheme, sizeof scheme - 1) == 0;
    *address += tls ? sizeof scheme - 1 : 0;
    return tls;
}

int wire_secure(struct wire *w, const struct tls_files *files, const char *host, struct err *err)
{
    struct tls_context *context;
    int code = tls_client(files, &context, err);
    if (code < 0) {
        return code;
    }
    w->tls = tls_connect(context, host, NULL);
    tls_context_free(context);
    return w->tls != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory for TLS");
}

int wire_flush(struct wire *w)
{
    size_t sent = 0;
    while (sent < w->out.len) {
        ssize_t n = send(w->fd, w->out.data + sent, w->out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            break;
        }
        sent += (size_t)n;
    }
    w->out.len -= sent;
    if (w->out.len > 0 && sent > 0) {
        memmove(w->out.data, w->out.data + sent, w->out.len);
    }
    return w->out.len == 0 ? 1 : errno == EAGAIN ? 0 : -1;
}

/* Decrypts what has come. */
static enum tls_state decrypt(struct wire *w, char *out, size_t room, size_t *made)
{
    struct tls_input in = {.bytes = w->in.data, .len = w->in.len, .out = out, .room = room};
    enum tls_state state = tls_read(w->tls, &in, &w->out);
    *made = in.made;
    w->in.len -= in.used;
    if (w->in.len > 0 && in.used > 0) {
        memmove(w->in.data, w->in.data + in.used, w->in.len);
    }
    return state;
}

/* As recv(). */
static ssize_t read_socket(struct wire *w)
{
    if (buf_reserve(&w->in, READ_BYTES) < 0) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t n;
    do {
        n = recv(w->fd, w->in.data + w->in.len, w->in.cap - w->in.len, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    w->in.len += n > 0 ? (size_t)n : 0;
    return n;
}

static ssize_t read_tls(struct wire *w, char *out, size_t room)
{
    for (;;) {
        size_t made;
        enum tls_state before = tls_state(w->tls), state = decrypt(w, out, room, &made);
        wire_flush(w);
        if (made > 0 || state == TLS_ENDED) {
            return (ssize_t)made;
        }
        if (state == TLS_BROKEN) {
            errno = EPROTO;
            return -1;
        }
        if (before == TLS_SHAKING && state == TLS_OPEN) {
            continue; /* there may be more behind it */
        }
        ssize_t n = read_socket(w);
        if (n <= 0) {
            return n;
        }
    }
}

ssize_t wire_read(struct wire *w, char *out, size_t room)
{
    return w->tls != NULL ? read_tls(w, out, room) : recv(w->fd, out, room, MSG_DONTWAIT);
}

bool wire_has_read(const struct wire *w)
{
    return w->tls != NULL && (w->in.len > 0 || tls_pending(w->tls));
}

ssize_t wire_write(struct wire *w, const struct iovec *parts, int n)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    if (w->tls == NULL) {
        return sendmsg(w->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    int flushed = wire_flush(w);
    if (flushed <= 0) {
        return -1;
    }
    size_t taken = 0;
    for (int i = 0; i < n && taken < WRITE_MOST; i++) {
        size_t len = parts[i].iov_len < WRITE_MOST - taken ? parts[i].iov_len : WRITE_MOST - taken;
        if (len > 0 && tls_write(w->tls, parts[i].iov_base, len, &w->out) < 0) {
            errno = tls_state(w->tls) == TLS_BROKEN ? EPROTO : EPIPE;
            return -1;
        }
        taken += len;
    }
    return wire_flush(w) < 0 ? -1 : (ssize_t)taken;
}

int wire_shake(struct wire *w, struct err *err)
{
    for (;;) {
        size_t made;
        enum tls_state state = decrypt(w, NULL, 0, &made);
        if (state == TLS_BROKEN) {
            wire_flush(w); /* it may still learn why */
            return err_set(err, ERR_SYSTEM, "TLS: %s", tls_cause(w->tls));
        }
        if (wire_flush(w) < 0) {
            return err_set(err, ERR_SYSTEM, "%s", strerror(errno));
        }
        if (state != TLS_SHAKING) {
            return 1;
        }
        ssize_t n = read_socket(w);
        if (n < 0 && errno == EAGAIN) {
            return 0;
        }
        if (n <= 0) {
            return err_set(err, ERR_SYSTEM, "%s",
                           n == 0 ? "TLS: it closed the connection within the handshake" : strerror(errno));
        }
    }
}

short wire_events(const struct wire *w)
{
    return (short)(w->out.len > 0 ? POLLIN | POLLOUT : POLLIN);
}

const char *wire_problem(const struct wire *w)
{
    return errno == EPROTO && w->tls != NULL ? tls_cause(w->tls) : strerror(errno);
}

void wire_close(struct wire *w)
{
    if (w->fd >= 0) {
        if (w->tls != NULL) {
            tls_end(w->tls, &w->out);
            wire_flush(w);
        }
        close(w->fd);
    }
    tls_free(w->tls);
    buf_free(&w->in);
    buf_free(&w->out);
    *w = (struct wire){.fd = -1};
}
