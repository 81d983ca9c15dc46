/* The header Authorization: any bytes. What is read stands in the header or in the room for it, and neither scheme is
 * taken for the other. */
#include <string.h>
#include <strings.h>

#include "fuzz.h"
#include "service/account_impl.h"

static bool stands_in(struct slice part, const char *at, size_t n)
{
    return part.len == 0 || (part.data >= at && part.data + part.len <= at + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[AUTHORIZATION_MAX] = "", *copy = malloc(size > 0 ? size : 1); /* exactly */
    struct slice name, password;
    CHECK(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    authorization_read(slice_of(copy, size), text, &name, &password);
    bool bearer = size >= 7 && strncasecmp(copy, "Bearer ", 7) == 0,
         basic = size >= 6 && strncasecmp(copy, "Basic ", 6) == 0;
    if (bearer) {
        CHECK(slice_eq(name, slice_str(account_default.name)) && stands_in(password, copy, size));
    } else if (basic) {
        CHECK(stands_in(name, text, sizeof text) && stands_in(password, text, sizeof text));
        CHECK(name.len == 0 || memchr(name.data, ':', name.len) == NULL);
    } else {
        CHECK(name.len == 0 && password.len == 0);
    }
    free(copy);
    return 0;
}
