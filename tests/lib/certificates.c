#include "tests/lib/certificates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DAY_S = 24 * 60 * 60, READ_BYTES = 64 * 1024 };

static const char *const names[] = {"ca", "other_ca", "server", "elsewhere", "expired", "client", "stranger"};

struct identity {
    X509 *cert;
    EVP_PKEY *key;
};

const char *certificate(struct certificates *c, const char *name)
{
    if (name[0] == '\0') {
        return "";
    }
    snprintf(c->path, sizeof c->path, "%s/%s.pem", c->folder, name);
    return c->path;
}

static void extend(X509 *cert, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(e);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

static void save(struct certificates *c, const char *name, const struct identity *who)
{
    FILE *f = fopen(certificate(c, name), "w");
    assert_non_null(f);
    PEM_write_X509(f, who->cert);
    PEM_write_PrivateKey(f, who->key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
}

/* by: NULL: itself, a CA. */
static struct identity make(struct certificates *c, const char *name, const struct identity *by, const char *names_it,
                            int days)
{
    static long serial;
    struct identity who = {X509_new(), EVP_EC_gen("P-256")};
    X509_set_version(who.cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(who.cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(who.cert), -2 * DAY_S);
    X509_gmtime_adj(X509_getm_notAfter(who.cert), (long)days * DAY_S);
    X509_set_pubkey(who.cert, who.key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(who.cert), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
                               0);
    X509_set_issuer_name(who.cert, X509_get_subject_name(by != NULL ? by->cert : who.cert));
    extend(who.cert, NID_basic_constraints, by == NULL ? "critical,CA:TRUE" : "CA:FALSE");
    if (names_it[0] != '\0') {
        extend(who.cert, NID_subject_alt_name, names_it);
    }
    assert_true(X509_sign(who.cert, by != NULL ? by->key : who.key, EVP_sha256()) > 0);
    save(c, name, &who);
    return who;
}

static void forget(struct identity *who)
{
    X509_free(who->cert);
    EVP_PKEY_free(who->key);
}

void certificates_make(struct certificates *c)
{
    static const char here[] = "DNS:localhost,IP:127.0.0.1";
    snprintf(c->folder, sizeof c->folder, "/tmp/unseen-test-XXXXXX");
    assert_non_null(mkdtemp(c->folder));
    struct identity ca = make(c, "ca", NULL, "", 30), other = make(c, "other_ca", NULL, "", 30);
    struct identity all[] = {ca,
                             other,
                             make(c, "server", &ca, here, 30),
                             make(c, "elsewhere", &ca, "DNS:elsewhere.example", 30),
                             make(c, "expired", &ca, here, -1),
                             make(c, "client", &ca, "", 30),
                             make(c, "stranger", &other, here, 30)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        forget(&all[i]);
    }
}

void certificates_free(struct certificates *c)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unlink(certificate(c, names[i]));
    }
    assert_int_equal(rmdir(c->folder), 0);
}

/* --- the client --- */

void secure_begin(struct secure *s, int fd, struct certificates *c, const char *cert, const char *ca, const char *host,
                  const char *alpn)
{
    char cert_path[96], ca_path[96];
    struct err err = {0};
    *s = (struct secure){.fd = fd};
    snprintf(cert_path, sizeof cert_path, "%s", certificate(c, cert));
    snprintf(ca_path, sizeof ca_path, "%s", certificate(c, ca));
    struct tls_files files = {cert_path, "", ca_path};
    if (tls_client(&files, &s->context, &err) < 0) {
        fail_msg("%s", err.text);
    }
    s->tls = tls_connect(s->context, host, alpn);
    assert_non_null(s->tls);
}

static void send_out(struct secure *s)
{
    size_t sent = 0;
    while (sent < s->out.len) {
        ssize_t n = send(s->fd, s->out.data + sent, s->out.len - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            break; /* the server has said all it wants to */
        }
        sent += (size_t)n;
    }
    buf_clear(&s->out);
}

/* Takes what is there already. */
static enum tls_state take(struct secure *s)
{
    assert_int_equal(buf_reserve(&s->plain, READ_BYTES), 0);
    struct tls_input in = {
        .bytes = s->in.data, .len = s->in.len, .out = s->plain.data + s->plain.len, .room = READ_BYTES};
    enum tls_state state = tls_read(s->tls, &in, &s->out);
    s->plain.len += in.made;
    s->in.len -= in.used;
    memmove(s->in.data, s->in.data + in.used, s->in.len);
    send_out(s);
    return state;
}

enum tls_state secure_read(struct secure *s)
{
    size_t had = s->plain.len;
    assert_int_equal(buf_reserve(&s->in, READ_BYTES), 0);
    enum tls_state state = take(s);
    while (s->plain.len == had && (state == TLS_OPEN || state == TLS_SHAKING)) {
        enum tls_state before = state;
        ssize_t n = recv(s->fd, s->in.data + s->in.len, s->in.cap - s->in.len, 0);
        if (n <= 0) {
            return TLS_BROKEN;
        }
        s->in.len += (size_t)n;
        state = take(s);
        if (before == TLS_SHAKING && state != before) {
            break;
        }
    }
    return state;
}

enum tls_state secure_shake(struct secure *s)
{
    enum tls_state state;
    while ((state = secure_read(s)) == TLS_SHAKING) {
    }
    return state;
}

void secure_say(struct secure *s, const char *bytes, size_t n)
{
    assert_int_equal(tls_write(s->tls, bytes, n, &s->out), 0);
    send_out(s);
}

void secure_expect(struct secure *s, const char *want)
{
    size_t len = strlen(want);
    while (s->plain.len < len && secure_read(s) == TLS_OPEN) {
    }
    assert_true(s->plain.len >= len);
    assert_memory_equal(s->plain.data, want, len);
    s->plain.len -= len;
    memmove(s->plain.data, s->plain.data + len, s->plain.len);
}

void secure_end(struct secure *s)
{
    close(s->fd);
    tls_free(s->tls);
    tls_context_free(s->context);
    buf_free(&s->in);
    buf_free(&s->plain);
    buf_free(&s->out);
}
