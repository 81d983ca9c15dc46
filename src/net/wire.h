/* A connected, non-blocking socket, plain or with TLS, for those who connect to others and wait with poll(): what they
 * write and read is the same. One thread. */
#ifndef UNSEEN_NET_WIRE_H
#define UNSEEN_NET_WIRE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "net/tls.h"

struct wire {
    int fd; /* -1: none */
    struct tls *tls;
    struct buf in, out; /* of TLS */
};

/* "tls://host:port" is "host:port" over TLS. */
bool wire_is_tls(const char **address);

/* TLS from here on, with the host's certificate. 0, ERR_INVALID (a file), ERR_NOMEM. */
int wire_secure(struct wire *w, const struct tls_files *files, const char *host, struct err *err);

/* Brings the handshake on. 1: it is done; 0: more must come, or be sent (wire_events()); or ERR_SYSTEM. */
int wire_shake(struct wire *w, struct err *err);
short wire_events(const struct wire *w); /* of poll(): POLLIN, and POLLOUT while TLS has something to be sent */

/* As sendmsg() and recv(): so many bytes, 0 at the end, or -1 and errno; EPROTO: wire_problem() says what is wrong.
 * What was written may have to be flushed. */
ssize_t wire_write(struct wire *w, const struct iovec *parts, int n);
ssize_t wire_read(struct wire *w, char *out, size_t room);
int wire_flush(struct wire *w);           /* 1: nothing is left; 0: the socket is full; -1 and errno */
bool wire_has_read(const struct wire *w); /* bytes that no socket tells of */

/* For people: of errno as it is. */
const char *wire_problem(const struct wire *w);
void wire_close(struct wire *w);

#endif
