/* Replaces tls.c and tls_context.c in a build without OpenSSL. Only what makes a context is ever reached. */
#include "net/tls.h"

static int missing(struct tls_context **context, struct err *err)
{
    *context = NULL;
    return err_set(err, ERR_INVALID, "this unseen was built without OpenSSL and knows no TLS");
}

const char *tls_library_version(void)
{
    return "none";
}

int tls_server(const struct tls_files *files, struct tls_context **context, struct err *err)
{
    (void)files;
    return missing(context, err);
}

int tls_client(const struct tls_files *files, struct tls_context **context, struct err *err)
{
    (void)files;
    return missing(context, err);
}

int tls_reload(struct tls_context *context, const struct tls_files *files, struct err *err)
{
    (void)files;
    return missing(&context, err);
}

void tls_context_free(struct tls_context *context)
{
    (void)context;
}

int64_t tls_expires(const struct tls_context *context)
{
    (void)context;
    return 0;
}

struct tls *tls_accept(struct tls_context *context, const char *alpn)
{
    (void)context, (void)alpn;
    return NULL;
}

struct tls *tls_connect(struct tls_context *context, const char *host, const char *alpn)
{
    (void)context, (void)host, (void)alpn;
    return NULL;
}

void tls_free(struct tls *t)
{
    (void)t;
}

enum tls_state tls_state(const struct tls *t)
{
    (void)t;
    return TLS_BROKEN;
}

const char *tls_cause(const struct tls *t)
{
    (void)t;
    return "";
}

const char *tls_version(const struct tls *t)
{
    (void)t;
    return "";
}

size_t tls_idle_bytes(const struct tls *t)
{
    (void)t;
    return 0;
}

enum tls_state tls_read(struct tls *t, struct tls_input *in, struct buf *send)
{
    (void)t, (void)send;
    in->used = in->made = in->missing = 0;
    return TLS_BROKEN;
}

bool tls_pending(const struct tls *t)
{
    (void)t;
    return false;
}

int tls_write(struct tls *t, const char *bytes, size_t n, struct buf *send)
{
    (void)t, (void)bytes, (void)n, (void)send;
    return ERR_CLOSED;
}

void tls_end(struct tls *t, struct buf *send)
{
    (void)t, (void)send;
}
