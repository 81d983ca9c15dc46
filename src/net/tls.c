/* A stream of TLS. OpenSSL reads through a BIO of ours that gives it whole records only, straight out of the caller's
 * bytes, and writes through the same into the caller's buffer: so it never holds half a record, and nothing is copied
 * once more.
 */
#include "net/tls.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/tls_impl.h"

enum {
    SHAKE_MAX =
        48 * 1024, /* bytes of a client's half of the handshake: what OpenSSL would hold of it has no end else */
    TYPE_HANDSHAKE = 22,
    IDLE_BYTES = 12 * 1024,      /* a little more than tests/unit/test_tls.c measures */
    IDLE_BYTES_PEER = 24 * 1024, /* with its certificate */
};

/* --- what OpenSSL reads from and writes to --- */

/* Whether a whole record can be given. One of an impossible length is: OpenSSL has the words for it. */
static bool next_record(struct tls *t)
{
    struct tls_input *in = t->in;
    size_t have = in->len - in->used;
    if (have < TLS_HEAD) {
        in->missing = TLS_HEAD - have;
        return false;
    }
    const unsigned char *head = (const unsigned char *)in->bytes + in->used;
    size_t record = TLS_HEAD + ((size_t)head[3] << 8 | head[4]);
    if (record > TLS_RECORD_MAX) {
        record = have;
    }
    if (have < record) {
        in->missing = record - have;
        return false;
    }
    t->left = record;
    return true;
}

static int bio_read(BIO *bio, char *out, int room)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (t->in == NULL || (t->left == 0 && !next_record(t))) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = (size_t)room < t->left ? (size_t)room : t->left;
    memcpy(out, t->in->bytes + t->in->used, n);
    t->in->used += n;
    t->left -= n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *bytes, int n)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    return t->send != NULL && buf_add(t->send, bytes, (size_t)n) == 0 ? n : -1;
}

static long bio_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method;

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "unseen");
    if (method != NULL) {
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_control);
    }
}

/* --- streams --- */

int tls_choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *offered,
                        unsigned n, void *unused)
{
    (void)unused;
    const struct tls *t = SSL_get_app_data(ssl);
    if (t->alpn == NULL) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    for (unsigned i = 0; i < n; i += 1U + offered[i]) {
        if (offered[i] == strlen(t->alpn) && memcmp(offered + i + 1, t->alpn, offered[i]) == 0) {
            *out = offered + i + 1;
            *out_len = offered[i];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

int tls_no_certificate(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
    (void)cert, (void)key;
    struct tls *t = SSL_get_app_data(ssl);
    t->asked = true;
    return 0;
}

static struct tls *new_stream(struct tls_context *context, const char *alpn)
{
    pthread_once(&once, make_method);
    struct tls *t = calloc(1, sizeof *t);
    SSL *ssl = t != NULL && method != NULL ? tls_context_stream(context) : NULL;
    BIO *bio = ssl != NULL ? BIO_new(method) : NULL;
    if (bio == NULL) {
        SSL_free(ssl);
        free(t);
        return NULL;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, t);
    t->ssl = ssl;
    t->alpn = alpn;
    t->is_server = context->is_server;
    return t;
}

struct tls *tls_accept(struct tls_context *context, const char *alpn)
{
    struct tls *t = new_stream(context, alpn);
    if (t != NULL) {
        SSL_set_accept_state(t->ssl);
    }
    return t;
}

static bool name_peer(SSL *ssl, const char *host)
{
    unsigned char digits[sizeof(struct in6_addr)];
    bool is_name = inet_pton(AF_INET, host, digits) != 1 && inet_pton(AF_INET6, host, digits) != 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && (!is_name || SSL_set_tlsext_host_name(ssl, host) == 1);
}

static bool offer(SSL *ssl, const char *alpn)
{
    unsigned char list[64];
    size_t n = alpn != NULL ? strlen(alpn) : 0;
    if (n == 0 || n >= sizeof list) {
        return n == 0;
    }
    list[0] = (unsigned char)n;
    memcpy(list + 1, alpn, n);
    return SSL_set_alpn_protos(ssl, list, (unsigned)n + 1) == 0;
}

struct tls *tls_connect(struct tls_context *context, const char *host, const char *alpn)
{
    struct tls *t = new_stream(context, alpn);
    if (t != NULL) {
        SSL_set_connect_state(t->ssl);
    }
    if (t != NULL && !(name_peer(t->ssl, host) && offer(t->ssl, alpn))) {
        tls_free(t);
        return NULL;
    }
    return t;
}

void tls_free(struct tls *t)
{
    if (t != NULL) {
        SSL_free(t->ssl);
        free(t->cause);
        free(t);
    }
}

/* --- what is wrong --- */

static const char *words_for(const struct tls *t, int reason)
{
    switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return "no client certificate, and client_ca asks for one";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "a client certificate is asked for, and none was given";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return t->asked ? "a client certificate is asked for, and none was given" : "the peer refuses the handshake";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        return "the peer does not know the CA of our certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "the peer says that our certificate has expired";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        return "the peer refuses our certificate: it is bad, or for another name";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return "no version of TLS in common, expected 1.2 or 1.3";
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
        return "no protocol in common (ALPN)";
    case SSL_R_NO_SHARED_CIPHER:
        return "no cipher in common";
    case SSL_R_WRONG_VERSION_NUMBER:
        return "what came is not TLS";
    default:
        return NULL;
    }
}

static void describe(const struct tls *t, char out[TLS_CAUSE])
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
    const char *words = words_for(t, reason), *text = ERR_reason_error_string(code);
    if (reason != SSL_R_CERTIFICATE_VERIFY_FAILED) {
        snprintf(out, TLS_CAUSE, "%s", words != NULL ? words : text != NULL ? text : "TLS failed");
        return;
    }
    long verdict = SSL_get_verify_result(t->ssl);
    snprintf(out, TLS_CAUSE, "the %s's certificate is refused: %s", t->is_server ? "client" : "server",
             X509_verify_cert_error_string(verdict));
}

static enum tls_state break_off(struct tls *t, const char *why)
{
    char text[TLS_CAUSE];
    t->state = TLS_BROKEN;
    if (why == NULL) {
        describe(t, text);
        why = text;
    }
    ERR_clear_error();
    free(t->cause);
    t->cause = strdup(why);
    return t->state;
}

static enum tls_state judge(struct tls *t, int result)
{
    int code = SSL_get_error(t->ssl, result);
    if (code == SSL_ERROR_WANT_READ) {
        return t->state;
    }
    if (code == SSL_ERROR_ZERO_RETURN) {
        return t->state = TLS_ENDED;
    }
    return break_off(t, t->send != NULL && t->send->failed ? "out of memory" : NULL);
}

enum tls_state tls_state(const struct tls *t)
{
    return t->state;
}

const char *tls_cause(const struct tls *t)
{
    return t->state != TLS_BROKEN ? "" : t->cause != NULL ? t->cause : "out of memory";
}

const char *tls_version(const struct tls *t)
{
    return SSL_get_version(t->ssl);
}

size_t tls_idle_bytes(const struct tls *t)
{
    return SSL_get0_peer_certificate(t->ssl) != NULL ? IDLE_BYTES_PEER : IDLE_BYTES;
}

/* --- bytes --- */

static void shake(struct tls *t)
{
    const struct tls_input *in = t->in;
    char byte;
    if (t->is_server && t->shaken == 0 && in->len > 0 && in->bytes[0] != TYPE_HANDSHAKE) {
        break_off(t, "what came is not TLS");
        return;
    }
    int result = SSL_do_handshake(t->ssl);
    t->shaken += in->used;
    if (result == 1) {
        t->state = TLS_OPEN;
        t->in = NULL;
        SSL_peek(t->ssl, &byte, 1); /* finds nothing, and lets go of the buffer for it */
    } else if (judge(t, result) == TLS_SHAKING && t->is_server && t->shaken + in->missing > SHAKE_MAX) {
        break_off(t, "the handshake is too large");
    }
}

static void read_plain(struct tls *t)
{
    struct tls_input *in = t->in;
    while (t->state == TLS_OPEN && in->made < in->room) {
        size_t room = in->room - in->made;
        int n = SSL_read(t->ssl, in->out + in->made, room < INT_MAX ? (int)room : INT_MAX);
        if (n <= 0) {
            judge(t, n);
            return;
        }
        in->made += (size_t)n;
    }
}

enum tls_state tls_read(struct tls *t, struct tls_input *in, struct buf *send)
{
    in->used = in->made = in->missing = 0;
    t->in = in;
    t->send = send;
    ERR_clear_error();
    if (t->state == TLS_SHAKING) {
        shake(t);
    } else {
        read_plain(t);
    }
    t->in = NULL;
    t->send = NULL;
    return t->state;
}

bool tls_pending(const struct tls *t)
{
    return SSL_pending(t->ssl) > 0;
}

int tls_write(struct tls *t, const char *bytes, size_t n, struct buf *send)
{
    bool able = t->state == TLS_OPEN || t->state == TLS_ENDED;
    t->send = send;
    ERR_clear_error();
    while (able && n > 0) {
        int done = SSL_write(t->ssl, bytes, n < INT_MAX ? (int)n : INT_MAX);
        if (done <= 0) {
            able = false;
            judge(t, done);
        } else {
            bytes += done;
            n -= (size_t)done;
        }
    }
    t->send = NULL;
    return able ? 0 : send->failed ? ERR_NOMEM : ERR_CLOSED;
}

void tls_end(struct tls *t, struct buf *send)
{
    if ((t->state == TLS_OPEN || t->state == TLS_ENDED) && !t->end_said) {
        t->end_said = true;
        t->send = send;
        SSL_shutdown(t->ssl);
        ERR_clear_error();
        t->send = NULL;
    }
}
