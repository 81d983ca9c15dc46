/* nghttp2's callbacks, and what is asked of it.
 *
 * Bytes come in by h2_feed(), which calls back for each frame, in this order:
 *
 *   HEADERS       on_begin_headers() makes the call; on_header() tells it each name and value; on_frame() begins it
 *   DATA          on_data() gives the call its bytes; the peer may send more once h2_credit() says so
 *   END_STREAM    on_frame() tells the call that its bytes are whole; the call is then at work (conn.c)
 *   RST_STREAM    on_stream_close() ends the call
 *
 * What the call answers it appends to its reply, and h2_reply() says so. Bytes go out by h2_pull(): on_read() copies
 * from the reply as far as the peer's windows allow, and adds the trailers once the call has ended; on_stream_close()
 * frees it.
 *
 * An example, a question: HEADERS begins call 1. DATA brings its 14 KB and END_STREAM, so conn.c runs it. It ends with
 * its answer of 250 bytes in call->reply, and h2_reply() submits the headers. The connection's turn ends, h2_pull()
 * packs HEADERS, DATA and the trailers into conn.out, the stream closes and the call is free for the next one. A peer
 * that has opened no window gets the headers alone; on_read() is not called again until it opens one, or call_tick()
 * has waited for too long.
 *
 * A peer that has our answer to a call it is still sending is told to stop only once the answer has left: a reset
 * before that would take the answer away. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "grpc/server.h"
#include "grpc/unary.h"

#define NV(name, value, flags)                                                                                         \
    {                                                                                                                  \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1,                                    \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | (flags)                                                                     \
    }
#define NV_FIXED(name, value) NV(name, value, NGHTTP2_NV_FLAG_NO_COPY_VALUE)

/* A reset that clients of gRPC tell as RESOURCE_EXHAUSTED. */
#define NO_ROOM NGHTTP2_ENHANCE_YOUR_CALM

enum {
    /* Of headers that are sent. What is received has HTTP/2's own 4,096: not every client follows another. */
    TABLE = 1024,
    SETTINGS_MAX = 16,
};

/* --- what a peer may not do too often --- */

static void end_session(struct grpc_conn *s, uint32_t error, const char *why)
{
    static struct log_limit limit;
    conn_log(&s->conn, log_again(&limit) ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "gRPC connection ended", why);
    worker_count(s->conn.worker, COUNT_PROTOCOL_ERRORS, 1);
    int32_t last = nghttp2_session_get_last_proc_stream_id(s->session);
    nghttp2_submit_goaway(s->session, NGHTTP2_FLAG_NONE, last, error, (const uint8_t *)why, strlen(why));
    s->broken = true;
}

void h2_calm(struct grpc_conn *s, const char *what)
{
    if (!s->broken) {
        end_session(s, NGHTTP2_ENHANCE_YOUR_CALM, what);
    }
}

static void count_idle_frame(struct grpc_conn *s)
{
    int64_t now = clock_mono_ms(), more = (now - s->calm_ms) * GRPC_CALM_RATE / 1000;
    if (more > 0) {
        s->calm = more < GRPC_CALM_BURST - s->calm ? s->calm + (int)more : GRPC_CALM_BURST;
        s->calm_ms = now;
    }
    if (--s->calm < 0) {
        h2_calm(s, "too_many_frames");
    }
}

/* As gRPC's own servers do it. A ping that comes with data is a client's way to measure. */
static void on_ping(struct grpc_conn *s)
{
    int64_t now = clock_mono_ms();
    if (s->has_sent) {
        s->has_sent = false;
        s->strikes = 0;
    } else if (s->pinged_ms != 0 && now - s->pinged_ms < GRPC_PING_MS && ++s->strikes > GRPC_PING_STRIKES) {
        h2_calm(s, "too_many_pings");
    }
    s->pinged_ms = now;
}

/* --- what comes --- */

static struct call *call_of(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    struct call *call = call_new(user, frame->hd.stream_id);
    if (call != NULL) {
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    } else {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NO_ROOM);
    }
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
    (void)flags;
    (void)user;
    struct call *call = call_of(session, frame->hd.stream_id);
    if (call == NULL || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0; /* a client's trailers say nothing here */
    }
    call->header_bytes += name_len + value_len + 32;
    if (call->header_bytes > GRPC_HEADERS_MAX) {
        return 0; /* what came before says enough to refuse it */
    }
    call_header(call, slice_of((const char *)name, name_len), slice_of((const char *)value, value_len));
    return 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    (void)session;
    bool useful = hd->type == NGHTTP2_HEADERS || hd->type == NGHTTP2_WINDOW_UPDATE ||
                  (hd->type == NGHTTP2_DATA && (hd->length > 0 || (hd->flags & NGHTTP2_FLAG_END_STREAM) != 0));
    if (!useful) {
        count_idle_frame(user);
    }
    return 0;
}

/* A frame of a kind that is not known was counted, and is nothing else. */
static int on_unknown(nghttp2_session *session, void **payload, const nghttp2_frame_hd *hd, void *user)
{
    (void)session;
    (void)payload;
    (void)hd;
    (void)user;
    return NGHTTP2_ERR_CANCEL;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_conn *s = user;
    const nghttp2_frame_hd *hd = &frame->hd;
    struct call *call = hd->stream_id != 0 ? call_of(session, hd->stream_id) : NULL;
    bool ends = (hd->flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (hd->type == NGHTTP2_PING && (hd->flags & NGHTTP2_FLAG_ACK) != 0) {
        s->ping_ms = 0;
    } else if (hd->type == NGHTTP2_PING) {
        on_ping(s);
    } else if (hd->type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST && call != NULL) {
        call_begin(call);
    }
    bool of_call = hd->type == NGHTTP2_HEADERS || hd->type == NGHTTP2_DATA;
    if (of_call && ends && call != NULL) {
        call_whole(call);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t len, void *user)
{
    (void)flags;
    (void)user;
    struct call *call = call_of(session, stream);
    if (call == NULL || call->state == CALL_ENDED) {
        nghttp2_session_consume(session, stream, len); /* its answer is on its way */
    } else {
        call->unconsumed += len;
        call_data(call, slice_of((const char *)data, len));
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    (void)error;
    (void)user;
    struct call *call = call_of(session, stream);
    if (call != NULL) {
        nghttp2_session_consume_connection(session, call->unconsumed);
        call->unconsumed = 0;
        call_gone(call);
    }
    return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_conn *s = user;
    const nghttp2_frame_hd *hd = &frame->hd;
    if (hd->type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR) {
        count_idle_frame(s); /* a peer that makes us reset streams is no better than one that resets them */
    }
    if (hd->type != NGHTTP2_HEADERS && hd->type != NGHTTP2_DATA) {
        return 0;
    }
    s->has_sent = true;
    const struct call *call = call_of(session, hd->stream_id);
    bool patient = call != NULL && call->is_plain; /* curl drops the answer to a body that it could not send */
    if ((hd->flags & NGHTTP2_FLAG_END_STREAM) != 0 && !patient &&
        nghttp2_session_get_stream_remote_close(session, hd->stream_id) == 0) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, hd->stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

/* --- what goes --- */

static nghttp2_nv number(const char *name, char *text, size_t size, unsigned value)
{
    int len = snprintf(text, size, "%u", value);
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)text, strlen(name), (size_t)len, NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

/* The status. Returns how many. */
static size_t trailers(const struct call *call, nghttp2_nv out[2], char text[12])
{
    out[0] = number("grpc-status", text, 12, call->status);
    out[1] = (nghttp2_nv){(uint8_t *)"grpc-message", (uint8_t *)call->text.data, 12, call->text.len,
                          NGHTTP2_NV_FLAG_NO_COPY_NAME};
    return call->text.len > 0 ? 2 : 1;
}

static ssize_t on_read(nghttp2_session *session, int32_t stream, uint8_t *out, size_t most, uint32_t *flags,
                       nghttp2_data_source *source, void *user)
{
    (void)user;
    struct call *call = source->ptr;
    size_t left = call->reply.len - call->sent, n = left < most ? left : most;
    if (n > 0) {
        memcpy(out, call->reply.data + call->sent, n);
        call->sent += n;
        call->since_ms = clock_mono_ms();
    }
    if (call->sent == call->reply.len) {
        buf_clear(&call->reply);
        call->sent = 0;
        if (call->blocked) {
            grpc_work_add(call);
            worker_wait_turn(&call->conn->conn);
        }
        if (call->state == CALL_ENDED && call->is_plain) {
            *flags |= NGHTTP2_DATA_FLAG_EOF;
        } else if (call->state == CALL_ENDED) {
            nghttp2_nv nv[2];
            char text[12];
            size_t n_nv = trailers(call, nv, text);
            *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
            nghttp2_submit_trailer(session, stream, nv, n_nv);
        } else if (n == 0) {
            call->deferred = true;
            return NGHTTP2_ERR_DEFERRED;
        }
    }
    return (ssize_t)n;
}

static unsigned http_status(const struct call *call)
{
    return call->refused != 0 ? call->refused : call->is_plain ? unary_http_status(call->status) : 200;
}

/* Those of the answer. Returns how many. */
static size_t headers(const struct call *call, bool only, nghttp2_nv out[5], char http[12], char code[12])
{
    size_t n = 1;
    out[0] = number(":status", http, 12, http_status(call));
    if (call->refused != 0) {
        return n;
    }
    if (call->is_plain) {
        out[n++] = call->status == GRPC_OK ? (nghttp2_nv)NV_FIXED("content-type", "application/proto")
                                           : (nghttp2_nv)NV_FIXED("content-type", "application/json");
        return n;
    }
    out[n++] = (nghttp2_nv)NV_FIXED("content-type", "application/grpc");
    out[n++] = (nghttp2_nv)NV_FIXED("grpc-accept-encoding", "identity, gzip");
    return only ? n + trailers(call, out + n, code) : n;
}

static void submit_headers(struct call *call)
{
    char code[12], http[12];
    nghttp2_nv nv[5];
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    bool only = call->state == CALL_ENDED && call->reply.len == 0;
    size_t n = headers(call, only, nv, http, code);
    call->headers_sent = true;
    nghttp2_submit_response(call->conn->session, call->stream, nv, n, only ? NULL : &provider);
}

void h2_reply(struct call *call)
{
    if (call->stream == 0) {
        return;
    }
    if (call->reply.failed || call->text.failed) {
        h2_cancel(call);
    } else if (!call->headers_sent) {
        submit_headers(call);
    } else if (call->deferred) {
        call->deferred = false;
        nghttp2_session_resume_data(call->conn->session, call->stream);
    }
    conn_touch(&call->conn->conn);
}

void h2_cancel(struct call *call)
{
    nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream, NO_ROOM);
    conn_touch(&call->conn->conn);
}

void h2_credit(struct call *call, size_t bytes)
{
    call->unconsumed -= bytes;
    if (call->stream != 0) {
        nghttp2_session_consume(call->conn->session, call->stream, bytes);
    }
}

void h2_window(struct grpc_conn *s, size_t size)
{
    int32_t window = size < GRPC_WINDOW_MAX ? (int32_t)size : GRPC_WINDOW_MAX;
    if (window != s->window && nghttp2_session_set_local_window_size(s->session, NGHTTP2_FLAG_NONE, 0, window) == 0) {
        s->window = window;
    }
}

void h2_ping(struct grpc_conn *s)
{
    nghttp2_submit_ping(s->session, NGHTTP2_FLAG_NONE, NULL);
    conn_touch(&s->conn);
}

void h2_goaway(struct grpc_conn *s)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(s->session);
    nghttp2_submit_goaway(s->session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    conn_touch(&s->conn);
}

/* --- the session --- */

void h2_feed(struct grpc_conn *s, struct slice bytes)
{
    if (s->broken) {
        return;
    }
    ssize_t n = nghttp2_session_mem_recv(s->session, (const uint8_t *)bytes.data, bytes.len);
    if (n == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
        conn_log(&s->conn, LOG_LEVEL_DEBUG, "no gRPC client", NULL);
        worker_count(s->conn.worker, COUNT_PROTOCOL_ERRORS, 1);
        s->broken = true;
    } else if (n < 0) {
        end_session(s, n == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_INTERNAL_ERROR,
                    nghttp2_strerror((int)n));
    }
}

bool h2_pull(struct grpc_conn *s, size_t most)
{
    struct buf *out = &s->conn.out;
    while (out->len < most) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(s->session, &data);
        if (n < 0) {
            s->broken = true;
        }
        if (n <= 0) {
            return false;
        }
        buf_add(out, data, (size_t)n);
    }
    return true;
}

int h2_open(struct grpc_conn *s)
{
    const struct grpc *g = grpc_of(&s->conn);
    nghttp2_mem mem = h2_memory(s);
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, GRPC_WINDOW_STREAM},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX},
    };
    s->window = GRPC_WINDOW;
    s->calm = GRPC_CALM_BURST;
    s->calm_ms = s->called_ms = clock_mono_ms();
    if (nghttp2_session_server_new3(&s->session, g->callbacks, s, g->option, &mem) != 0 ||
        nghttp2_submit_settings(s->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof settings[0]) != 0) {
        return ERR_NOMEM;
    }
    if (nghttp2_session_set_local_window_size(s->session, NGHTTP2_FLAG_NONE, 0, GRPC_WINDOW) != 0) {
        return ERR_NOMEM;
    }
    s->session_least = s->session_bytes;
    return 0;
}

void h2_close(struct grpc_conn *s)
{
    nghttp2_session_del(s->session);
    s->session = NULL;
}

int h2_init(struct grpc *g)
{
    if (nghttp2_session_callbacks_new(&g->callbacks) != 0 || nghttp2_option_new(&g->option) != 0) {
        return ERR_NOMEM;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(g->callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(g->callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(g->callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_unpack_extension_callback(g->callbacks, on_unknown);
    nghttp2_session_callbacks_set_on_frame_recv_callback(g->callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(g->callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(g->callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(g->callbacks, on_sent);
    nghttp2_option_set_no_auto_window_update(g->option, 1);
    nghttp2_option_set_no_closed_streams(g->option, 1);
    nghttp2_option_set_max_settings(g->option, SETTINGS_MAX);
    nghttp2_option_set_max_deflate_dynamic_table_size(g->option, TABLE);
    for (unsigned type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++) {
        nghttp2_option_set_user_recv_extension_type(g->option, (uint8_t)type); /* or it would not be told of them */
    }
#ifdef HAVE_NGHTTP2_OPTION_SET_STREAM_RESET_RATE_LIMIT
    nghttp2_option_set_stream_reset_rate_limit(g->option, GRPC_CALM_BURST, GRPC_CALM_RATE);
#endif
    return 0;
}

void h2_end(struct grpc *g)
{
    nghttp2_session_callbacks_del(g->callbacks);
    nghttp2_option_del(g->option);
}
