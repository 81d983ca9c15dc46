/* Descriptors are protobuf themselves: a FileDescriptorSet holds files, a file messages, enums and services, and so on.
 * They are walked as they are, some 5 KB, rather than taken apart once: few ask, and seldom. */
#include "grpc/reflection.h"

#include "descriptors.h"
#include "base/wire.h"

enum status { INVALID_ARGUMENT = 3, NOT_FOUND = 5 }; /* of gRPC */

/* Field numbers of descriptor.proto. */
enum { SET_FILE = 1, NAME = 1, FILE_PACKAGE = 2, FILE_SERVICE = 6 };

/* What has a name within what, by field numbers; ended by 0. */
enum level { FILE_LEVEL, MESSAGE, ENUM, SERVICE, LEAF };
static const struct child {
    enum level within;
    uint32_t number;
    enum level level;
} children[] = {
    {FILE_LEVEL, 4, MESSAGE}, {FILE_LEVEL, 5, ENUM}, {FILE_LEVEL, FILE_SERVICE, SERVICE},
    {MESSAGE, 2, LEAF},       {MESSAGE, 3, MESSAGE}, {MESSAGE, 4, ENUM},
    {ENUM, 2, LEAF},          {SERVICE, 2, LEAF},
};

/* The next field of that number; false: there is none. */
static bool next(struct wire *w, uint32_t number, struct slice *bytes)
{
    struct wire_field f;
    while (wire_next(w, &f, NULL) > 0) {
        if (f.number == number) {
            *bytes = f.bytes;
            return true;
        }
    }
    return false;
}

static struct slice get(struct slice message, uint32_t number)
{
    struct wire w = wire_of(message);
    struct slice bytes = {"", 0};
    next(&w, number, &bytes);
    return bytes;
}

static bool next_file(struct wire *set, struct slice *file)
{
    return next(set, SET_FILE, file);
}

static struct wire all_files(void)
{
    return wire_of(slice_of((const char *)descriptors, sizeof descriptors));
}

/* "a.b.c" less "a.b" and the dot is "c"; data NULL: it does not begin so. */
static struct slice behind(struct slice name, struct slice prefix)
{
    bool good =
        name.len > prefix.len && memcmp(name.data, prefix.data, prefix.len) == 0 && name.data[prefix.len] == '.';
    return good ? slice_of(name.data + prefix.len + 1, name.len - prefix.len - 1) : (struct slice){NULL, 0};
}

static bool holds(struct slice descriptor, enum level level, struct slice symbol)
{
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        struct wire w = wire_of(descriptor);
        struct slice child;
        while (children[i].within == level && next(&w, children[i].number, &child)) {
            struct slice name = get(child, NAME), rest = behind(symbol, name);
            if (slice_eq(symbol, name) || (rest.data != NULL && holds(child, children[i].level, rest))) {
                return true;
            }
        }
    }
    return false;
}

static bool file_holds(struct slice file, struct slice symbol)
{
    struct slice rest = behind(symbol, get(file, FILE_PACKAGE));
    return rest.data != NULL && holds(file, FILE_LEVEL, rest);
}

static bool file_is(struct slice file, struct slice name)
{
    return slice_eq(get(file, NAME), name);
}

/* --- the services --- */

/* Calls each() with package and name, until that says true. */
static bool any_service(bool (*each)(struct slice package, struct slice name, void *arg), void *arg)
{
    struct wire set = all_files();
    struct slice file, service;
    while (next_file(&set, &file)) {
        struct wire w = wire_of(file);
        while (next(&w, FILE_SERVICE, &service)) {
            if (each(get(file, FILE_PACKAGE), get(service, NAME), arg)) {
                return true;
            }
        }
    }
    return false;
}

static bool is_service(struct slice package, struct slice name, void *arg)
{
    const struct slice *wanted = arg;
    return slice_eq(behind(*wanted, package), name);
}

bool reflection_serves(struct slice service)
{
    return any_service(is_service, &service);
}

/* --- answers --- */

enum { ANSWER_FILES = 4, ANSWER_SERVICES = 6, ANSWER_ERROR = 7 };

static bool write_service(struct slice package, struct slice name, void *arg)
{
    struct buf *out = arg;
    size_t service = wire_begin(out, 1), text = wire_begin(out, 1);
    buf_addf(out, "%.*s.%.*s", (int)package.len, package.data, (int)name.len, name.data);
    wire_end(out, text);
    wire_end(out, service);
    return false;
}

static void write_error(struct buf *out, enum status code, const char *text)
{
    size_t error = wire_begin(out, ANSWER_ERROR);
    wire_put_number(out, 1, code);
    wire_put_bytes(out, 2, slice_str(text));
    wire_end(out, error);
}

static void write_file(struct buf *out, bool (*wanted)(struct slice file, struct slice text), struct slice text,
                       const char *otherwise)
{
    struct wire set = all_files();
    struct slice file;
    while (next_file(&set, &file)) {
        if (wanted(file, text)) {
            size_t files = wire_begin(out, ANSWER_FILES);
            wire_put_item(out, 1, file);
            wire_end(out, files);
            return;
        }
    }
    write_error(out, NOT_FOUND, otherwise);
}

static void answer(uint32_t what, struct slice text, struct buf *out)
{
    size_t list;
    switch (what) {
    case 3:
        write_file(out, file_is, text, "no such file");
        break;
    case 4:
        write_file(out, file_holds, text, "no such symbol");
        break;
    case 5:
    case 6:
        write_error(out, NOT_FOUND, "nothing is extended here");
        break;
    case 7:
        list = wire_begin(out, ANSWER_SERVICES);
        any_service(write_service, out);
        wire_end(out, list);
        break;
    default:
        write_error(out, INVALID_ARGUMENT, "the request asks for nothing that is known here");
    }
}

size_t reflection_reply_max(struct slice request)
{
    return 256 + 2 * request.len + sizeof descriptors;
}

int reflection_answer(struct slice request, struct buf *out, struct err *err)
{
    struct wire w = wire_of(request);
    struct wire_field f;
    struct slice host = {0}, text = {0};
    uint32_t what = 0;
    int code;
    while ((code = wire_next(&w, &f, err)) > 0) {
        if (f.number <= 7 && f.number != 2) {
            if (f.type != WIRE_BYTES || (f.number != 5 && !slice_is_utf8(f.bytes))) {
                return err_set(err, ERR_INVALID, "field %u is not valid UTF-8", f.number);
            }
            host = f.number == 1 ? f.bytes : host;
            text = f.number == 1 ? text : f.bytes;
            what = f.number == 1 ? what : f.number;
        }
    }
    if (code < 0) {
        return code;
    }
    wire_put_bytes(out, 1, host);
    wire_put_item(out, 2, request);
    answer(what, text, out);
    return 0;
}
