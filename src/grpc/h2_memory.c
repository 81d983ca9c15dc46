/* What a session of nghttp2 holds, counted for its connection. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "grpc/server.h"

enum { FRAME = 16 * 1024 };

static void note_memory(void *user, size_t before, size_t after)
{
    struct grpc_conn *s = user;
    s->session_bytes = s->session_bytes + after - before;
}

static size_t usable(void *at)
{
    return at != NULL ? malloc_usable_size(at) : 0;
}

static void *on_malloc(size_t size, void *user)
{
    void *at = malloc(size);
    note_memory(user, 0, usable(at));
    return at;
}

static void *on_calloc(size_t n, size_t size, void *user)
{
    void *at = calloc(n, size);
    note_memory(user, 0, usable(at));
    return at;
}

/* A session has one buffer as large as a frame may be, and uses it only from packing a frame until that is taken out,
 * which is one call of nghttp2_session_mem_send(): so all of a worker share theirs. It is most of what an idle one
 * would hold. */
static void *share_frame(struct grpc_conn *s, size_t size)
{
    struct grpc_loop *l = grpc_loop_of(&s->conn);
    if (l->frame == NULL && (l->frame = malloc(size)) != NULL) {
        l->frame_size = size;
    }
    if (s->frame_shared || l->frame == NULL || size > l->frame_size) {
        return NULL;
    }
    s->frame_shared = true;
    return l->frame;
}

static bool is_shared(struct grpc_conn *s, const void *at)
{
    return s->frame_shared && at == grpc_loop_of(&s->conn)->frame;
}

static void on_free(void *at, void *user)
{
    struct grpc_conn *s = user;
    if (is_shared(s, at)) {
        s->frame_shared = false;
    } else {
        note_memory(s, usable(at), 0);
        free(at);
    }
}

static void *on_realloc(void *at, size_t size, void *user)
{
    struct grpc_conn *s = user;
    bool shared = is_shared(s, at);
    void *now = at == NULL && size >= FRAME ? share_frame(s, size) : NULL;
    if (now != NULL) {
        return now;
    }
    size_t before = shared ? 0 : usable(at);
    now = realloc(shared ? NULL : at, size);
    if (now != NULL && shared) {
        size_t old = grpc_loop_of(&s->conn)->frame_size;
        memcpy(now, at, size < old ? size : old);
        s->frame_shared = false;
    }
    if (now != NULL) {
        note_memory(s, before, usable(now));
    }
    return now;
}

nghttp2_mem h2_memory(struct grpc_conn *s)
{
    return (nghttp2_mem){s, on_malloc, on_free, on_calloc, on_realloc};
}
