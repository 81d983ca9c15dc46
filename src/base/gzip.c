#include "base/gzip.h"

#include <stdlib.h>
#include <zlib.h>

enum { GUESS = 4, LEAST = 256 }; /* what a message mostly is inflated to, so many times its size */

struct inflating {
    z_stream z;
    struct buf *out;
    size_t most;
    size_t before; /* bytes of the members that have ended */
    bool (*may_hold)(void *arg, size_t bytes);
    void *arg;
};

/* Twice the room; or a byte to see whether there is more than may be. */
static int grow(struct inflating *in, unsigned char *spare, struct err *err)
{
    struct buf *out = in->out;
    if (out->cap == in->most) {
        in->z.next_out = spare;
        in->z.avail_out = 1;
        return 0;
    }
    size_t cap = out->cap > 0 ? 2 * out->cap : GUESS * in->z.avail_in + LEAST;
    cap = cap < in->most ? cap : in->most;
    if (!in->may_hold(in->arg, cap)) {
        return err_set(err, ERR_BUSY, "no memory for %zu inflated bytes", cap);
    }
    char *data = realloc(out->data, cap);
    if (data == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for %zu inflated bytes", cap);
    }
    out->data = data;
    out->cap = cap;
    in->z.next_out = (unsigned char *)data + out->len;
    in->z.avail_out = (unsigned)(cap - out->len);
    return 0;
}

/* A member has ended: whether the next one begins there. Some writers fill the last block with zeros. */
static bool next_member(struct inflating *in)
{
    enum { MAGIC = 0x1f };
    while (in->z.avail_in > 0 && *in->z.next_in == 0) {
        in->z.next_in++;
        in->z.avail_in--;
    }
    in->before += in->z.total_out;
    return in->z.avail_in > 0 && *in->z.next_in == MAGIC;
}

static int run(struct inflating *in, struct err *err)
{
    unsigned char spare;
    int code = Z_OK;
    while (code == Z_OK) {
        if (in->z.avail_out == 0 && grow(in, &spare, err) < 0) {
            return err->code;
        }
        code = inflate(&in->z, Z_NO_FLUSH);
        size_t len = in->before + in->z.total_out;
        in->out->len = len < in->most ? len : in->most;
        if (len > in->most) {
            return err_set(err, ERR_LARGE, "it inflates to more than %zu bytes", in->most);
        }
        if (code == Z_STREAM_END && next_member(in)) {
            code = inflateReset(&in->z);
        }
    }
    if (code == Z_MEM_ERROR) {
        return err_set(err, ERR_NOMEM, "out of memory to inflate it");
    }
    if (code != Z_STREAM_END) {
        return err_set(err, ERR_INVALID, "it can't be inflated: %s", in->z.msg != NULL ? in->z.msg : "it is cut off");
    }
    if (in->z.avail_in > 0) {
        return err_set(err, ERR_INVALID, "it can't be inflated: %u bytes stand behind its end", in->z.avail_in);
    }
    return 0;
}

int gzip_inflate(struct slice message, size_t most, bool (*may_hold)(void *arg, size_t bytes), void *arg,
                 struct buf *out, struct err *err)
{
    enum { GZIP_ONLY = 16 };
    struct inflating in = {.out = out, .most = most, .may_hold = may_hold, .arg = arg};
    in.z.next_in = (unsigned char *)(uintptr_t)message.data;
    in.z.avail_in = (unsigned)message.len;
    if (inflateInit2(&in.z, GZIP_ONLY + MAX_WBITS) != Z_OK) {
        return err_set(err, ERR_NOMEM, "out of memory to inflate it");
    }
    int code = run(&in, err);
    inflateEnd(&in.z);
    if (code < 0) {
        buf_free(out);
    }
    return code;
}
