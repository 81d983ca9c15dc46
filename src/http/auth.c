#include <string.h>
#include <strings.h>

#include "http/server.h"
#include "net/password.h"

bool auth_right(const char *password, const char *header)
{
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    if (header == NULL || strncasecmp(header, scheme, n) != 0) {
        return false;
    }
    struct slice given = slice_str(header + n);
    while (given.len > 0 && given.data[0] == ' ') {
        given = slice_of(given.data + 1, given.len - 1);
    }
    return password_right(password, given);
}
