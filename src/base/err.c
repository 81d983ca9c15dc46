#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/slice.h"

/* The text is put together aside, since an argument may be the old text itself. It may hold what another server, a file
 * or a client said, and is shown on terminals, in INFO and in logs: there it must not act. */
static void put_text(struct err *err, const char *text, const char *rest)
{
    char out[sizeof err->text];
    snprintf(out, sizeof out, "%s%s", text, rest);
    if (slice_has_control(slice_str(out))) {
        slice_show(slice_str(out), err->text, sizeof err->text);
    } else {
        memcpy(err->text, out, sizeof out);
    }
}

int err_set(struct err *err, int code, const char *format, ...)
{
    if (err != NULL) {
        char text[sizeof err->text];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        err->code = code;
        put_text(err, text, "");
    }
    return code;
}

int err_prefix(struct err *err, const char *format, ...)
{
    if (err == NULL) {
        return 0;
    }
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text - 2, format, args);
    va_end(args);
    strcat(text, ": ");
    put_text(err, text, err->text);
    return err->code;
}

const char *err_name(int code)
{
    switch (code) {
    case 0:
        return "ok";
    case ERR_NOMEM:
        return "nomem";
    case ERR_IO:
        return "io";
    case ERR_FULL:
        return "full";
    case ERR_READONLY:
        return "readonly";
    case ERR_CORRUPT:
        return "corrupt";
    case ERR_INVALID:
        return "invalid";
    case ERR_RANGE:
        return "range";
    case ERR_BUSY:
        return "busy";
    case ERR_LOCKED:
        return "locked";
    case ERR_NOTFOUND:
        return "notfound";
    case ERR_VERSION:
        return "version";
    case ERR_LOADING:
        return "loading";
    case ERR_CLOSED:
        return "closed";
    case ERR_SHARED:
        return "shared";
    case ERR_SEED:
        return "seed";
    case ERR_SYSTEM:
        return "system";
    case ERR_LARGE:
        return "large";
    case ERR_LATE:
        return "late";
    case ERR_ABSENT:
        return "absent";
    case ERR_NOAUTH:
        return "noauth";
    case ERR_WRONGPASS:
        return "wrongpass";
    case ERR_NOPERM:
        return "noperm";
    case ERR_LOGINS:
        return "logins";
    case ERR_REPLICA:
        return "replica";
    case ERR_STALE:
        return "stale";
    case ERR_ALONE:
        return "alone";
    case ERR_POOL:
        return "pool";
    case ERR_POOL_VERSION:
        return "pool_version";
    case ERR_CONFLICT:
        return "conflict";
    case ERR_KEY:
        return "key";
    case ERR_COLD:
        return "cold";
    default:
        return "unknown";
    }
}
