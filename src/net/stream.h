/* A connected, non-blocking socket, plain or with TLS, for those who connect to others and wait with poll(): what they
 * write and read is the same. One thread. */
#ifndef UNSEEN_NET_STREAM_H
#define UNSEEN_NET_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "net/tls.h"

struct stream {
    int fd; /* -1: none */
    struct tls *tls;
    struct buf in, out; /* of TLS */
};

/* "tls://host:port" is "host:port" over TLS. */
bool stream_is_tls(const char **address);

/* TLS from here on, with the host's certificate. 0, ERR_INVALID (a file), ERR_NOMEM. */
int stream_secure(struct stream *s, const struct tls_files *files, const char *host, struct err *err);

/* The same for a socket of the caller's own. */
int stream_begin_tls(const struct tls_files *files, const char *host, struct tls **tls, struct err *err);

/* Brings the handshake on. 1: it is done; 0: more must come, or be sent (stream_events()); or ERR_SYSTEM. Like
 * stream_read() it reads from the socket once: what more has come is told of by poll(). */
int stream_shake(struct stream *s, struct err *err);
short stream_events(const struct stream *s); /* of poll(): POLLIN, and POLLOUT while TLS has something to be sent */

/* As sendmsg() and recv(): so many bytes, 0 at the end, or -1 and errno; EPROTO: stream_problem() says what is wrong.
 * What was written may have to be flushed. */
ssize_t stream_write(struct stream *s, const struct iovec *parts, int n);
ssize_t stream_read(struct stream *s, char *out, size_t room);
int stream_flush(struct stream *s);           /* 1: nothing is left; 0: the socket is full; -1 and errno */
bool stream_has_read(const struct stream *s); /* bytes that no socket tells of */

/* For people: of errno as it is. */
const char *stream_problem(const struct stream *s);
void stream_close(struct stream *s);

#endif
