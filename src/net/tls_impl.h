/* What tls.c and tls_context.c share. */
#ifndef UNSEEN_NET_TLS_IMPL_H
#define UNSEEN_NET_TLS_IMPL_H

#include <openssl/ssl.h>
#include <pthread.h>

#include "net/tls.h"

struct tls_context {
    bool is_server;
    pthread_mutex_t lock; /* of what follows */
    SSL_CTX *ctx;
    int64_t expires;
};

struct tls {
    SSL *ssl;
    const char *alpn;
    bool is_server;
    bool asked;    /* the server wants a certificate, and there is none */
    bool end_said; /* by us */
    enum tls_state state;
    size_t shaken; /* bytes that the handshake has taken */
    char *cause;

    /* During a call. */
    struct tls_input *in; /* NULL: nothing can be read */
    struct buf *send;
    size_t left; /* of the record at hand, to be read by OpenSSL */
};

/* tls.c: what a server answers to those that a client speaks, and when it has no certificate that is asked for. */
int tls_choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *offered,
                        unsigned n, void *unused);
int tls_no_certificate(SSL *ssl, X509 **cert, EVP_PKEY **key);

/* tls_context.c: a new SSL of the context as it is now; NULL: out of memory. */
SSL *tls_context_stream(struct tls_context *context);

#endif
