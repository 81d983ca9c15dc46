/* Stored bytes come through one small buffer, `raw`. Its first bytes tell the format: nothing is taken before there are
 * enough of them. Then each read goes on with the format's own step:
 *
 *   plain  what is left of raw, then straight from the file;
 *   gzip   inflate() until a member ends; bytes behind it begin the next one;
 *   zstd   ZSTD_decompressStream(), which takes frame after frame by itself.
 *
 * `inside` is set while a member or frame has begun and not ended: there, the end of the file is an error.
 */
#include "cli/import/import_input.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { RAW_SIZE = 128 * 1024, MAGIC = 4 };

enum kind { KIND_UNKNOWN, KIND_PLAIN, KIND_GZIP, KIND_ZSTD };

struct import_input {
    const char *path;
    int fd;
    bool standard; /* input */
    bool regular;
    bool named; /* a pipe that has a name, where writers come and go */
    uint64_t size;
    uint64_t offset; /* of the file: what went into raw */
    enum kind kind;
    bool ended; /* the file has */
    bool inside;
    bool filled; /* the last read took all the room it had: a decoder may hold more */
    z_stream z;
    ZSTD_DStream *zstd;
    size_t begin, end; /* of raw: not used yet */
    unsigned char raw[RAW_SIZE];
};

const char *import_input_name(const struct import_input *in)
{
    return in->standard ? "stdin" : in->path;
}

bool import_input_regular(const struct import_input *in)
{
    return in->regular && !in->standard;
}

uint64_t import_input_size(const struct import_input *in)
{
    return in->size;
}

uint64_t import_input_done(const struct import_input *in)
{
    return in->offset - (in->end - in->begin);
}

int import_input_wait(const struct import_input *in, int ms)
{
    if (in->regular || in->ended || in->filled || in->begin < in->end) {
        return 1;
    }
    struct pollfd p = {.fd = in->fd, .events = POLLIN};
    int n = poll(&p, 1, ms);
    return n != 0 && !(n < 0 && errno == EINTR);
}

bool import_is_pipe(const char *path)
{
    struct stat st;
    return strcmp(path, "-") == 0 || (stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
}

int import_input_check(const char *path, struct err *err)
{
    struct stat st;
    if (strcmp(path, "-") == 0) {
        return 0;
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return err_set(err, ERR_IO, "%s: %s", path, strerror(EISDIR));
    }
    return access(path, R_OK) == 0
               ? 0
               : err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: %s", path, strerror(errno));
}

static int open_input(const char *path, int flags, struct import_input **input, struct err *err)
{
    struct import_input *in = calloc(1, sizeof(*in));
    if (in == NULL) {
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    }
    in->path = path;
    in->standard = strcmp(path, "-") == 0;
    in->fd = in->standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | flags);
    if (in->fd < 0) {
        int code = errno == ENOENT ? ERR_NOTFOUND : ERR_IO;
        err_set(err, code, "%s: %s", path, strerror(errno));
        free(in);
        return code;
    }
    struct stat st;
    bool known = fstat(in->fd, &st) == 0;
    in->regular = known && S_ISREG(st.st_mode);
    in->size = in->regular && st.st_size > 0 ? (uint64_t)st.st_size : 0;
    struct statfs fs;
    in->named = known && S_ISFIFO(st.st_mode) && fstatfs(in->fd, &fs) == 0 && fs.f_type != PIPEFS_MAGIC;
    *input = in;
    return 0;
}

int import_input_open(const char *path, struct import_input **input, struct err *err)
{
    return open_input(path, 0, input, err);
}

int import_input_follow(const char *path, struct import_input **input, struct err *err)
{
    int rc = open_input(path, O_NONBLOCK, input, err);
    if (rc == 0 && !(*input)->standard) {
        fcntl((*input)->fd, F_SETFL, 0); /* only the open must not wait for a writer */
    }
    return rc;
}

static void drop_decoder(struct import_input *in)
{
    if (in->kind == KIND_GZIP) {
        inflateEnd(&in->z);
    }
    ZSTD_freeDStream(in->zstd);
    in->zstd = NULL;
    in->kind = KIND_UNKNOWN;
}

bool import_input_again(struct import_input *in)
{
    if (in->named) {
        drop_decoder(in);
        in->ended = in->inside = in->filled = false;
        in->begin = in->end = 0;
    }
    return in->named;
}

void import_input_close(struct import_input *in)
{
    if (in == NULL) {
        return;
    }
    drop_decoder(in);
    if (!in->standard) {
        close(in->fd);
    }
    free(in);
}

static int read_some(struct import_input *in, void *out, size_t size, size_t *n, struct err *err)
{
    ssize_t got;
    do {
        got = read(in->fd, out, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return err_set(err, ERR_IO, "%s: read at byte %llu: %s", import_input_name(in), (unsigned long long)in->offset,
                       strerror(errno));
    }
    *n = (size_t)got;
    in->offset += (uint64_t)got;
    in->ended = got == 0;
    return 0;
}

/* More bytes behind those in raw, which must not be full. */
static int fill(struct import_input *in, struct err *err)
{
    if (in->begin == in->end) {
        in->begin = in->end = 0;
    }
    size_t n;
    int rc = read_some(in, in->raw + in->end, RAW_SIZE - in->end, &n, err);
    if (rc == 0) {
        in->end += n;
    }
    return rc;
}

static int damaged(struct import_input *in, const char *why, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "%s: %s data is damaged near byte %llu: %s", import_input_name(in),
                   in->kind == KIND_GZIP ? "gzip" : "zstd", (unsigned long long)import_input_done(in), why);
}

static int cut_off(struct import_input *in, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "%s: cut off at byte %llu, in the middle of its compressed data",
                   import_input_name(in), (unsigned long long)in->offset);
}

static bool named(const struct import_input *in, const char *ending)
{
    size_t n = strlen(in->path), e = strlen(ending);
    return n > e && strcmp(in->path + n - e, ending) == 0;
}

static int detect(struct import_input *in, struct err *err)
{
    while (in->end < MAGIC && !in->ended) {
        int rc = fill(in, err);
        if (rc != 0) {
            return rc;
        }
    }
    const unsigned char *raw = in->raw;
    if (in->end >= 2 && raw[0] == 0x1f && raw[1] == 0x8b) {
        /* 16: gzip, with its header and checksum. */
        if (inflateInit2(&in->z, 15 + 16) != Z_OK) {
            return err_set(err, ERR_NOMEM, "%s: out of memory", import_input_name(in));
        }
        in->kind = KIND_GZIP;
    } else if (in->end >= 4 && ((raw[0] == 0x28 && raw[1] == 0xb5 && raw[2] == 0x2f && raw[3] == 0xfd) ||
                                ((raw[0] & 0xf0) == 0x50 && raw[1] == 0x2a && raw[2] == 0x4d && raw[3] == 0x18))) {
        in->zstd = ZSTD_createDStream();
        if (in->zstd == NULL) {
            return err_set(err, ERR_NOMEM, "%s: out of memory", import_input_name(in));
        }
        in->kind = KIND_ZSTD;
    } else if (in->end < MAGIC && (named(in, ".gz") || named(in, ".zst"))) {
        return cut_off(in, err);
    } else {
        in->kind = KIND_PLAIN;
    }
    return 0;
}

static int read_plain(struct import_input *in, char *out, size_t size, size_t *n, struct err *err)
{
    size_t left = in->end - in->begin;
    if (left == 0) {
        return in->ended ? 0 : read_some(in, out, size, n, err);
    }
    *n = left < size ? left : size;
    memcpy(out, in->raw + in->begin, *n);
    in->begin += *n;
    return 0;
}

static int step_gzip(struct import_input *in, char *out, size_t size, size_t *n, struct err *err)
{
    while (!in->inside && in->begin < in->end && in->raw[in->begin] == '\0') {
        in->begin++; /* some writers fill the last block with zeros */
    }
    if (!in->inside && in->begin == in->end) {
        *n = 0;
        return 0;
    }
    if (!in->inside) {
        if (inflateReset(&in->z) != Z_OK) {
            return err_set(err, ERR_NOMEM, "%s: out of memory", import_input_name(in));
        }
        in->inside = true;
    }
    in->z.next_in = in->raw + in->begin;
    in->z.avail_in = (uInt)(in->end - in->begin);
    in->z.next_out = (unsigned char *)out;
    in->z.avail_out = size < RAW_SIZE ? (uInt)size : RAW_SIZE;
    uInt room = in->z.avail_out;
    int rc = inflate(&in->z, Z_NO_FLUSH);
    in->begin = in->end - in->z.avail_in;
    *n = room - in->z.avail_out;
    if (rc == Z_STREAM_END) {
        in->inside = false;
    } else if (rc == Z_MEM_ERROR) {
        return err_set(err, ERR_NOMEM, "%s: out of memory", import_input_name(in));
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        return damaged(in, in->z.msg != NULL ? in->z.msg : "wrong header", err);
    }
    return 0;
}

static int step_zstd(struct import_input *in, char *out, size_t size, size_t *n, struct err *err)
{
    ZSTD_inBuffer input = {in->raw + in->begin, in->end - in->begin, 0};
    ZSTD_outBuffer output = {out, size, 0};
    size_t rc = ZSTD_decompressStream(in->zstd, &output, &input);
    if (ZSTD_isError(rc)) {
        return damaged(in, ZSTD_getErrorName(rc), err);
    }
    in->begin += input.pos;
    *n = output.pos;
    in->inside = rc != 0;
    return 0;
}

static int read_unpacked(struct import_input *in, char *out, size_t size, size_t *n, struct err *err)
{
    if (in->kind == KIND_UNKNOWN) {
        int rc = detect(in, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (in->kind == KIND_PLAIN) {
        return read_plain(in, out, size, n, err);
    }
    while (*n == 0) {
        /* A decoder may still hold plain bytes when all stored ones are in it, so it's asked once more at the end. */
        if (in->begin == in->end && !in->ended) {
            int rc = fill(in, err);
            if (rc != 0) {
                return rc;
            }
        }
        bool dry = in->begin == in->end;
        if (dry && !in->inside) {
            return 0;
        }
        int rc = in->kind == KIND_GZIP ? step_gzip(in, out, size, n, err) : step_zstd(in, out, size, n, err);
        if (rc != 0) {
            return rc;
        }
        if (dry && *n == 0 && in->inside) {
            return cut_off(in, err);
        }
    }
    return 0;
}

int import_input_read(struct import_input *in, char *out, size_t size, size_t *n, struct err *err)
{
    *n = 0;
    int rc = read_unpacked(in, out, size, n, err);
    /* A step of a decoder gives at most RAW_SIZE. */
    in->filled = in->kind != KIND_PLAIN && *n > 0 && *n >= (size < RAW_SIZE ? size : RAW_SIZE);
    return rc;
}
