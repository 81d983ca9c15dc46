/* TLS as a filter of bytes: what came from the peer goes in and what it says comes out, and the other way round. It
 * knows no sockets, no loops and no protocols. The connections of conn.h use it by themselves on an address with
 * tls:// (an edge sees nothing of it, but for conn_ops.alpn), and so do those who connect to others.
 *
 * Records are taken whole, and half ones are the caller's to keep. So a stream holds no more than OpenSSL's own state:
 * tls_idle_bytes() of memory between two records, TLS_BUSY_BYTES at most while it shakes hands; tests/unit/test_tls.c
 * measures both.
 *
 * Only TLS 1.2 and 1.3; no compression, no renegotiation, no early data. A client that has been here before may resume
 * its session by a ticket, as long as none of the certificates has expired that it came with; nothing is remembered of
 * it. A build without OpenSSL has these functions too: tls_server() and tls_client() say so.
 */
#ifndef UNSEEN_NET_TLS_H
#define UNSEEN_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"

struct tls_context;
struct tls;

enum {
    TLS_HEAD = 5,                          /* bytes before each record's own */
    TLS_PLAIN_MAX = 16 * 1024,             /* that a record holds */
    TLS_RECORD_MAX = TLS_HEAD + 17 * 1024, /* more is no TLS */
    TLS_BUSY_BYTES = 96 * 1024,
    TLS_CAUSE = 256,
};

const char *tls_library_version(void); /* of OpenSSL; "none": built without */

/* --- contexts: certificates and whom to trust; any thread --- */

struct tls_files {
    const char *cert; /* its own, with what it needs to be trusted; "": none */
    const char *key;  /* "": it is in cert */
    const char *ca;   /* who may have signed the other's. "": of a server the system's; clients are not asked for any */
};

/* Those that the configuration has now, good as long as config_now()'s: for clients that come, and for servers that are
 * connected to. */
static inline struct tls_files tls_files_to_listen(const struct config *cfg)
{
    const struct config *live = config_now(cfg);
    return (struct tls_files){.cert = live->tls_cert, .key = live->tls_key, .ca = live->client_ca};
}
static inline struct tls_files tls_files_to_connect(const struct config *cfg)
{
    const struct config *live = config_now(cfg);
    return (struct tls_files){.cert = live->tls_cert, .key = live->tls_key, .ca = live->tls_ca};
}

/* ERR_INVALID, ERR_NOTFOUND, ERR_IO: which file, and what is wrong with it. A certificate that has expired is no error:
 * see tls_expires(). */
int tls_server(const struct tls_files *files, struct tls_context **context, struct err *err);
int tls_client(const struct tls_files *files, struct tls_context **context, struct err *err);

/* Reads the files of a server again, for the connections that come from here on. An error leaves all as it was. */
int tls_reload(struct tls_context *context, const struct tls_files *files, struct err *err);
void tls_context_free(struct tls_context *context); /* NULL is fine; its streams go on */

/* When the context's own certificate expires, or one that it needs, in seconds of unix time; 0: it has none. */
int64_t tls_expires(const struct tls_context *context);

/* --- streams; one thread at a time --- */

/* alpn: the one protocol that is spoken in here; NULL: whatever the peer says. NULL: out of memory. */
struct tls *tls_accept(struct tls_context *context, const char *alpn);

/* host: whom the certificate must name, a name or an address. tls_read() then begins. */
struct tls *tls_connect(struct tls_context *context, const char *host, const char *alpn);
void tls_free(struct tls *t); /* NULL is fine */

enum tls_state {
    TLS_SHAKING, /* hands: nothing can be written yet */
    TLS_OPEN,
    TLS_ENDED,  /* the peer has said that it sends no more */
    TLS_BROKEN, /* nothing can be read or written any more */
};
enum tls_state tls_state(const struct tls *t);

/* Why it is broken, for people; "" else. */
const char *tls_cause(const struct tls *t);
const char *tls_version(const struct tls *t); /* "TLSv1.3" */

/* What it holds at most between two records, by whether its peer has shown a certificate. */
size_t tls_idle_bytes(const struct tls *t);

struct tls_input {
    const char *bytes; /* from the peer */
    size_t len;
    char *out;   /* where to put what they hold, */
    size_t room; /* and how much of that; what does not fit comes at the next call: tls_pending() */

    size_t used;    /* of bytes; whole records */
    size_t made;    /* in out */
    size_t missing; /* of the record that is not whole */
};

/* Takes records; of a handshake up to its end, so that what follows may be given a place of its own. What is to be sent
 * to the peer thereupon, of a handshake or of what is wrong, is appended to `send`, also when it is broken by that. */
enum tls_state tls_read(struct tls *t, struct tls_input *in, struct buf *send);
bool tls_pending(const struct tls *t);

/* Appends what stands for the bytes. ERR_NOMEM. */
int tls_write(struct tls *t, const char *bytes, size_t n, struct buf *send);

/* Appends the word that nothing more is sent, once. */
void tls_end(struct tls *t, struct buf *send);

#endif
