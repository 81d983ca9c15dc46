/* What a call's headers say: what is asked for, how its messages come, and who asks. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "grpc/health.h"
#include "grpc/reflection.h"
#include "grpc/server.h"
#include "grpc/status.h"
#include "grpc/unary.h"

static const struct path {
    const char *path;
    enum call_step (*run)(struct call *call, struct slice bytes);
    bool is_stream;
} paths[] = {
    {"/" HEALTH_SERVICE "/Check", call_run_check, false},
    {"/" HEALTH_SERVICE "/Watch", call_run_watch, false},
    {"/" REFLECTION_SERVICE "/ServerReflectionInfo", call_run_reflection, true},
    {"/" REFLECTION_SERVICE_ALPHA "/ServerReflectionInfo", call_run_reflection, true},
};

/* "/com.shop.unseen.v1.Unseen/filter" is ours, too: Dubbo's consumers say the package of a Java interface, and a method
 * as Java names it. Returns the method's name; data NULL: it is another service. */
static struct slice own_method(struct slice path)
{
    static const char own[] = GRPC_SERVICE "/";
    const size_t n = sizeof own - 1;
    const char *slash = path.len > 1 ? memrchr(path.data, '/', path.len) : NULL;
    size_t before = slash != NULL ? (size_t)(slash + 1 - path.data) : 0;
    bool is_own = before > n && path.data[0] == '/' && memcmp(slash + 1 - n, own, n) == 0 &&
                  (before == n + 1 || path.data[before - n - 1] == '.') &&
                  memchr(path.data + 1, '/', before - 2) == NULL;
    return is_own ? slice_of(slash + 1, path.len - before) : (struct slice){NULL, 0};
}

static void find_method(struct call *call, struct slice path)
{
    static enum call_step (*const shapes[])(struct call *, struct slice) = {
        [METHOD_UNARY] = call_run_request,       [METHOD_STREAM] = call_run_request,    [METHOD_MANY] = call_run_many,
        [METHOD_POOL_LIST] = call_run_pool_list, [METHOD_POOL_GET] = call_run_pool_get,
    };
    struct slice name = own_method(path);
    if (name.data != NULL) {
        call->method = method_find(name);
        call->run = call->method != NULL ? shapes[call->method->shape] : NULL;
        call->is_stream = call->method != NULL && call->method->shape == METHOD_STREAM;
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (slice_eq(path, slice_str(paths[i].path))) {
            call->run = paths[i].run;
            call->is_stream = paths[i].is_stream;
        }
    }
}

static bool is_word(struct slice text, const char *word)
{
    return slice_eq(text, slice_str(word));
}

/* "application/grpc", "application/grpc;charset=utf-8" */
static bool is_type(struct slice value, const char *type)
{
    size_t n = strlen(type);
    return value.len >= n && memcmp(value.data, type, n) == 0 && (value.len == n || value.data[n] == ';');
}

static void set_timeout(struct call *call, int code)
{
    call->bad_timeout = code < 0;
    call->has_timeout = true;
}

static void set_length(struct call *call, struct slice value)
{
    call->length = 0; /* nghttp2 has seen that it is a number, and sees that it is kept */
    for (size_t i = 0; i < value.len && call->length <= GRPC_MESSAGE_MAX; i++) {
        call->length = 10 * call->length + (size_t)(value.data[i] - '0');
    }
}

void call_header(struct call *call, struct slice name, struct slice value)
{
    if (is_word(name, ":method")) {
        call->is_post = is_word(value, "POST");
    } else if (is_word(name, ":path")) {
        find_method(call, value);
    } else if (is_word(name, "content-type")) {
        call->is_grpc = is_type(value, "application/grpc") || is_type(value, "application/grpc+proto");
        call->is_plain = is_type(value, "application/proto");
    } else if (is_word(name, "content-length")) {
        set_length(call, value);
    } else if (is_word(name, "grpc-encoding") || is_word(name, "content-encoding")) {
        call->gzip = is_word(value, "gzip");
        call->unknown_encoding = !call->gzip && !is_word(value, "identity");
    } else if (is_word(name, "grpc-timeout")) {
        set_timeout(call, status_timeout(value, &call->timeout_us));
    } else if (is_word(name, "connect-timeout-ms") || is_word(name, "triple-timeout-ms") ||
               is_word(name, "tri-service-timeout")) {
        set_timeout(call, unary_timeout(value, &call->timeout_us));
    } else if (is_word(name, "connect-protocol-version")) {
        call->bad_version = !is_word(value, "1");
    } else if (is_word(name, "authorization")) {
        call->authorized_twice = call->authorized_twice || call->is_authorized;
        call->is_authorized = true;
        if (value.len <= GRPC_AUTHORIZATION_MAX && !call->authorized_twice) {
            buf_add(&call->authorization, value.data, value.len);
        }
    }
}

/* --- who asks --- */

static void welcome(struct call *call)
{
    struct conn *c = &call->conn->conn;
    struct err err = {0};
    const struct account *account = account_now(c->worker->pool->service, &call->login.who);
    unsigned roles = account_roles_for(&(struct request){.kind = call->method->kind});
    if (account == NULL && call->login.err != NULL) {
        call_refuse_err(call, call->login.err, false);
    } else if (account_check(account, roles, &err) < 0) {
        call_refuse_err(call, &err, false);
    } else {
        c->trusted = true; /* as far as its memory is concerned; each call says again whose it is */
        room_spoke(c);
        grpc_charge(call->conn);
    }
}

static void on_login(struct account_login *login)
{
    struct call *call = (struct call *)((char *)login - offsetof(struct call, login));
    struct conn *c = &call->conn->conn;
    welcome(call);
    grpc_work_add(call);
    conn_wake(c);
}

/* Health and reflection tell nothing that is a secret. */
static void log_in(struct call *call)
{
    if (call->method == NULL) {
        return;
    }
    struct slice header = {NULL, 0};
    if (call->authorization.len > 0) {
        header = buf_slice(&call->authorization);
    }
    call->login.done = on_login;
    call->login.edge = "grpc";
    if (account_login_header(&call->conn->conn, &call->login, header) == ACCOUNT_AT_HAND) {
        welcome(call);
    }
}

/* What is no single question and its answer has no such form. */
static bool is_ours(const struct call *call)
{
    bool streams = call->is_stream || call->run == call_run_watch || call->run == call_run_many;
    return call->is_grpc || (call->is_plain && !streams);
}

void call_begin(struct call *call)
{
    struct grpc_conn *s = call->conn;
    call->arrived_us = s->conn.arrived_us;
    call->since_ms = s->called_ms = clock_mono_ms();
    if (call->has_timeout) { /* from when it had arrived */
        call->deadline_us = clock_real_us() - (clock_figures_us() - call->arrived_us) + call->timeout_us;
    }
    call->prefix = call->is_plain ? 0 : GRPC_PREFIX;
    if (call->header_bytes > GRPC_HEADERS_MAX) {
        char text[96];
        snprintf(text, sizeof text, "the metadata has %zu bytes, expected %d at most", call->header_bytes,
                 GRPC_HEADERS_MAX);
        call_refuse(call, GRPC_RESOURCE_EXHAUSTED, text);
    } else if (!call->is_post || !is_ours(call)) {
        call->refused = call->is_post ? 415 : 405;
        call->is_plain = false; /* which has no body to say more */
        call_refuse(call, GRPC_UNKNOWN, "no call of gRPC");
    } else if (call->run == NULL) {
        call_refuse(call, GRPC_UNIMPLEMENTED, "there is no such method");
    } else if (call->bad_timeout) {
        call_refuse(call, GRPC_INVALID_ARGUMENT,
                    call->is_plain ? "the timeout is no number of milliseconds, expected up to 10 digits"
                                   : "grpc-timeout is no time, expected up to 8 digits and one of H, M, S, m, u, n");
    } else if (call->bad_version) {
        call_refuse(call, GRPC_INVALID_ARGUMENT, "connect-protocol-version is not known, expected 1");
    } else if (call->unknown_encoding) {
        call_refuse(call, GRPC_UNIMPLEMENTED, "the encoding is not known, expected identity or gzip");
    } else if (call->authorized_twice) {
        call_refuse(call, GRPC_INVALID_ARGUMENT, "authorization is given twice");
    } else if (s->draining) {
        call_refuse(call, GRPC_UNAVAILABLE, "server is shutting down");
    } else {
        log_in(call);
    }
}
