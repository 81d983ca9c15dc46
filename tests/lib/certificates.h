/* Certificates for tests, in a folder that is thrown away, and a client that speaks TLS. */
#ifndef UNSEEN_TESTS_CERTIFICATES_H
#define UNSEEN_TESTS_CERTIFICATES_H

#include <stddef.h>

#include "base/buf.h"
#include "net/tls.h"

/* NAME.pem holds a certificate, its key behind it:
 *   ca        a CA                    server    for localhost and 127.0.0.1, by it
 *   other_ca  another CA              client    by it
 *   elsewhere for elsewhere.example   expired   for localhost, yesterday
 *   stranger  for localhost, by the other CA */
struct certificates {
    char folder[64];
    char path[96];
};

void certificates_make(struct certificates *c);
void certificates_free(struct certificates *c);
const char *certificate(struct certificates *c, const char *name); /* its path, until the next call */

/* A blocking client of bytes. */
struct secure {
    int fd;
    struct tls_context *context;
    struct tls *tls;
    struct buf in, plain, out;
};

/* Takes the socket over. cert and ca: names, "" none. */
void secure_begin(struct secure *s, int fd, struct certificates *c, const char *cert, const char *ca, const char *host,
                  const char *alpn);
enum tls_state secure_shake(struct secure *s); /* to its end */
void secure_say(struct secure *s, const char *bytes, size_t n);
void secure_expect(struct secure *s, const char *want);
enum tls_state secure_read(struct secure *s); /* what comes next, behind plain; TLS_BROKEN also when the peer is gone */
void secure_end(struct secure *s);

#endif
