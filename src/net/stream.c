#include "net/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024, WRITE_MOST = 64 * 1024 };

bool stream_is_tls(const char **address)
{
    static const char scheme[] = "tls://";
    bool tls = strncmp(*address, scheme, sizeof scheme - 1) == 0;
    *address += tls ? sizeof scheme - 1 : 0;
    return tls;
}

int stream_begin_tls(const struct tls_files *files, const char *host, struct tls **tls, struct err *err)
{
    struct tls_context *context;
    int code = tls_client(files, &context, err);
    if (code < 0) {
        return code;
    }
    *tls = tls_connect(context, host, NULL);
    tls_context_free(context);
    return *tls != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory for TLS");
}

int stream_secure(struct stream *s, const struct tls_files *files, const char *host, struct err *err)
{
    return stream_begin_tls(files, host, &s->tls, err);
}

int stream_flush(struct stream *s)
{
    size_t sent = 0;
    while (sent < s->out.len) {
        ssize_t n = send(s->fd, s->out.data + sent, s->out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            break;
        }
        sent += (size_t)n;
    }
    s->out.len -= sent;
    if (s->out.len > 0 && sent > 0) {
        memmove(s->out.data, s->out.data + sent, s->out.len);
    }
    return s->out.len == 0 ? 1 : errno == EAGAIN ? 0 : -1;
}

/* Decrypts what has come. */
static enum tls_state decrypt(struct stream *s, char *out, size_t room, size_t *made)
{
    struct tls_input in = {.bytes = s->in.data, .len = s->in.len, .out = out, .room = room};
    enum tls_state state = tls_read(s->tls, &in, &s->out);
    *made = in.made;
    s->in.len -= in.used;
    if (s->in.len > 0 && in.used > 0) {
        memmove(s->in.data, s->in.data + in.used, s->in.len);
    }
    return state;
}

/* As recv(). */
static ssize_t read_socket(struct stream *s)
{
    if (buf_reserve(&s->in, READ_BYTES) < 0) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t n;
    do {
        n = recv(s->fd, s->in.data + s->in.len, s->in.cap - s->in.len, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    s->in.len += n > 0 ? (size_t)n : 0;
    return n;
}

/* Reads from the socket once, so that one who sends what is no data of TLS can't keep the caller in here. */
static ssize_t read_tls(struct stream *s, char *out, size_t room)
{
    for (bool tried = false;;) {
        size_t made;
        enum tls_state before = tls_state(s->tls), state = decrypt(s, out, room, &made);
        stream_flush(s);
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
        errno = EAGAIN;
        ssize_t n = tried ? -1 : read_socket(s);
        if (n <= 0) {
            return n;
        }
        tried = true;
    }
}

ssize_t stream_read(struct stream *s, char *out, size_t room)
{
    return s->tls != NULL ? read_tls(s, out, room) : recv(s->fd, out, room, MSG_DONTWAIT);
}

bool stream_has_read(const struct stream *s)
{
    return s->tls != NULL && (s->in.len > 0 || tls_pending(s->tls));
}

ssize_t stream_write(struct stream *s, const struct iovec *parts, int n)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    if (s->tls == NULL) {
        return sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    int flushed = stream_flush(s);
    if (flushed <= 0) {
        return -1;
    }
    size_t taken = 0;
    for (int i = 0; i < n && taken < WRITE_MOST; i++) {
        size_t len = parts[i].iov_len < WRITE_MOST - taken ? parts[i].iov_len : WRITE_MOST - taken;
        if (len > 0 && tls_write(s->tls, parts[i].iov_base, len, &s->out) < 0) {
            errno = tls_state(s->tls) == TLS_BROKEN ? EPROTO : EPIPE;
            return -1;
        }
        taken += len;
    }
    return stream_flush(s) < 0 ? -1 : (ssize_t)taken;
}

int stream_shake(struct stream *s, struct err *err)
{
    for (bool tried = false;;) {
        size_t made;
        enum tls_state state = decrypt(s, NULL, 0, &made);
        if (state == TLS_BROKEN) {
            stream_flush(s); /* it may still learn why */
            return err_set(err, ERR_SYSTEM, "TLS: %s", tls_cause(s->tls));
        }
        if (stream_flush(s) < 0) {
            return err_set(err, ERR_SYSTEM, "%s", strerror(errno));
        }
        if (state != TLS_SHAKING) {
            return 1;
        }
        ssize_t n = tried ? 0 : read_socket(s);
        if (tried || (n < 0 && errno == EAGAIN)) {
            return 0;
        }
        tried = true;
        if (n <= 0) {
            return err_set(err, ERR_SYSTEM, "%s",
                           n == 0 ? "TLS: it closed the connection within the handshake" : strerror(errno));
        }
    }
}

short stream_events(const struct stream *s)
{
    return (short)(s->out.len > 0 ? POLLIN | POLLOUT : POLLIN);
}

const char *stream_problem(const struct stream *s)
{
    return errno == EPROTO && s->tls != NULL ? tls_cause(s->tls) : strerror(errno);
}

void stream_close(struct stream *s)
{
    if (s->fd >= 0) {
        if (s->tls != NULL) {
            tls_end(s->tls, &s->out);
            stream_flush(s);
        }
        close(s->fd);
    }
    tls_free(s->tls);
    buf_free(&s->in);
    buf_free(&s->out);
    *s = (struct stream){.fd = -1};
}
