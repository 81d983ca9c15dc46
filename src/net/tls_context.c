/* Certificates, keys and whom to trust, out of files into OpenSSL's contexts. */
#include <errno.h>
#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/pemerr.h>
#include <openssl/x509.h>
#include <openssl/x509err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "net/tls_impl.h"

enum { CERTIFICATES_MAX = 32 * 1024 }; /* bytes of those that a client sends */

const char *tls_library_version(void)
{
    return OpenSSL_version(OPENSSL_VERSION_STRING);
}

/* The reason that OpenSSL gave first, which is the one that tells most. */
static int file_error(const char *what, const char *path, struct err *err)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code), lib = ERR_GET_LIB(code);
    const char *text = ERR_reason_error_string(code);
    if (reason == ERR_R_UNSUPPORTED || (lib == ERR_LIB_PEM && reason == PEM_R_NO_START_LINE)) {
        text = "there is none in it, expected PEM";
    } else if (reason == ERR_R_INTERRUPTED_OR_CANCELLED ||
               (lib == ERR_LIB_PEM && (reason == PEM_R_BAD_PASSWORD_READ || reason == PEM_R_BAD_DECRYPT))) {
        text = "it has a passphrase, expected none";
    } else if (lib == ERR_LIB_X509 && (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH)) {
        text = "it does not belong to the certificate";
    }
    ERR_clear_error();
    return err_set(err, ERR_INVALID, "%s %s: %s", what, path, text != NULL ? text : "it can't be read");
}

/* OpenSSL's own words for it are long. */
static int check_readable(const char *what, const char *path, struct err *err)
{
    FILE *f = fopen(path, "re");
    char byte;
    size_t n = f != NULL ? fread(&byte, 1, 1, f) : 0;
    int number = f == NULL || ferror(f) ? errno : 0;
    if (f != NULL) {
        fclose(f);
    }
    if (number != 0) {
        return err_set(err, number == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s %s: %s", what, path, strerror(number));
    }
    return n == 1 ? 0 : err_set(err, ERR_INVALID, "%s %s: the file is empty", what, path);
}

static int no_passphrase(char *out, int size, int writing, void *unused)
{
    (void)out, (void)size, (void)writing, (void)unused;
    return -1;
}

static int use_cert(SSL_CTX *ctx, const struct tls_files *files, struct err *err)
{
    const char *key = files->key[0] != '\0' ? files->key : files->cert;
    int code = check_readable("certificate", files->cert, err);
    if (code == 0 && SSL_CTX_use_certificate_chain_file(ctx, files->cert) != 1) {
        code = file_error("certificate", files->cert, err);
    }
    code = code == 0 ? check_readable("private key", key, err) : code;
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (code == 0 &&
        (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(ctx) != 1)) {
        code = file_error("private key", key, err);
    }
    return code;
}

/* A CA that the file names is trusted, also one that another has signed. */
static int trust(SSL_CTX *ctx, const char *path, bool is_server, struct err *err)
{
    int code = check_readable("CA", path, err);
    if (code == 0 && SSL_CTX_load_verify_file(ctx, path) != 1) {
        code = file_error("CA", path, err);
    }
    if (code < 0) {
        return code;
    }
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ctx), X509_V_FLAG_PARTIAL_CHAIN);
    if (is_server) {
        SSL_CTX_set_client_CA_list(ctx, SSL_load_client_CA_file(path));
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    return 0;
}

static int64_t end_of(const X509 *cert)
{
    struct tm tm;
    return ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) == 1 ? (int64_t)timegm(&tm) : INT64_MAX;
}

static int64_t first_of(const STACK_OF(X509) * chain, int64_t first)
{
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t end = end_of(sk_X509_value(chain, i));
        first = end < first ? end : first;
    }
    return first;
}

static int64_t first_end(SSL_CTX *ctx)
{
    STACK_OF(X509) *chain = NULL;
    const X509 *own = SSL_CTX_get0_certificate(ctx);
    SSL_CTX_get0_chain_certs(ctx, &chain);
    return first_of(chain, own != NULL ? end_of(own) : 0);
}

/* A session that is resumed looks at no certificate again. So a ticket names the end of those that were looked at; one
 * that follows another takes it over. */
static int write_ticket(SSL *ssl, void *unused)
{
    (void)unused;
    const STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl);
    int64_t end = first_of(chain, INT64_MAX);
    return chain == NULL || SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), &end, sizeof end);
}

/* Refused: the whole handshake follows. */
static SSL_TICKET_RETURN read_ticket(SSL *ssl, SSL_SESSION *session, const unsigned char *name, size_t name_len,
                                     SSL_TICKET_STATUS status, void *unused)
{
    (void)ssl, (void)name, (void)name_len, (void)unused;
    void *at = NULL;
    size_t n = 0;
    int64_t end = INT64_MAX;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) {
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    if (SSL_SESSION_get0_ticket_appdata(session, &at, &n) == 1 && n == sizeof end) {
        memcpy(&end, at, sizeof end);
    }
    if (end <= clock_wall_ms() / 1000) {
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

static void settle_protocol(SSL_CTX *ctx, bool is_server)
{
    static const unsigned char id[] = "unseen";
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ctx, id, sizeof id - 1);
    SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
    if (is_server) {
        SSL_CTX_set_num_tickets(ctx, 1);
        SSL_CTX_set_session_ticket_cb(ctx, write_ticket, read_ticket, NULL);
        SSL_CTX_set_max_cert_list(ctx, CERTIFICATES_MAX);
        SSL_CTX_set_alpn_select_cb(ctx, tls_choose_protocol, NULL);
    } else {
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_client_cert_cb(ctx, tls_no_certificate);
    }
}

static int make_ctx(const struct tls_files *files, bool is_server, SSL_CTX **out, struct err *err)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    if (ctx == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for TLS");
    }
    settle_protocol(ctx, is_server);
    int code = files->cert[0] != '\0' ? use_cert(ctx, files, err) : 0;
    if (code == 0 && files->ca[0] != '\0') {
        code = trust(ctx, files->ca, is_server, err);
    } else if (code == 0 && !is_server) {
        SSL_CTX_set_default_verify_paths(ctx);
    }
    if (code < 0) {
        SSL_CTX_free(ctx);
        return code;
    }
    *out = ctx;
    return 0;
}

static int make_context(const struct tls_files *files, bool is_server, struct tls_context **context, struct err *err)
{
    struct tls_context *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for TLS");
    }
    int code = make_ctx(files, is_server, &c->ctx, err);
    if (code < 0) {
        free(c);
        return code;
    }
    c->is_server = is_server;
    c->expires = first_end(c->ctx);
    pthread_mutex_init(&c->lock, NULL);
    *context = c;
    return 0;
}

int tls_server(const struct tls_files *files, struct tls_context **context, struct err *err)
{
    return make_context(files, true, context, err);
}

int tls_client(const struct tls_files *files, struct tls_context **context, struct err *err)
{
    return make_context(files, false, context, err);
}

int tls_reload(struct tls_context *c, const struct tls_files *files, struct err *err)
{
    SSL_CTX *ctx;
    int code = make_ctx(files, c->is_server, &ctx, err);
    if (code < 0) {
        return code;
    }
    int64_t expires = first_end(ctx);
    if (expires < tls_expires(c) && expires * 1000 <= clock_wall_ms()) {
        SSL_CTX_free(ctx);
        return err_set(err, ERR_INVALID, "certificate %s: it has expired, and the one before has not", files->cert);
    }
    pthread_mutex_lock(&c->lock);
    SSL_CTX *old = c->ctx;
    c->ctx = ctx;
    c->expires = expires;
    pthread_mutex_unlock(&c->lock);
    SSL_CTX_free(old);
    return 0;
}

int64_t tls_expires(const struct tls_context *context)
{
    struct tls_context *c = (struct tls_context *)context;
    pthread_mutex_lock(&c->lock);
    int64_t expires = c->expires;
    pthread_mutex_unlock(&c->lock);
    return expires;
}

void tls_context_free(struct tls_context *context)
{
    if (context != NULL) {
        SSL_CTX_free(context->ctx);
        pthread_mutex_destroy(&context->lock);
        free(context);
    }
}

SSL *tls_context_stream(struct tls_context *c)
{
    pthread_mutex_lock(&c->lock);
    SSL *ssl = SSL_new(c->ctx);
    pthread_mutex_unlock(&c->lock);
    return ssl;
}
