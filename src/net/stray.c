#include "net/stray.h"

#include <ctype.h>
#include <string.h>

#include "net/conn.h"
#include "net/worker.h"

enum { LINE_MAX_LEN = 256 };

/* *1\r\n, or a line of words. HTTP's first line names a path and a version. */
bool stray_is_resp(struct slice input)
{
    if (input.len >= 2 && input.data[0] == '*') {
        return isdigit((unsigned char)input.data[1]) != 0;
    }
    size_t most = input.len < LINE_MAX_LEN ? input.len : LINE_MAX_LEN;
    const char *end = most > 0 ? memchr(input.data, '\n', most) : NULL;
    return end != NULL && isalpha((unsigned char)input.data[0]) != 0 &&
           memchr(input.data, '/', (size_t)(end - input.data)) == NULL;
}

/* As it is bound; NULL: nowhere. */
static const char *resp_address(const struct conn *c)
{
    static const char *const others[] = {"http://", "https://", "grpc://", "grpcs://"};
    const struct listeners *all = c->worker->pool->listeners;
    const char *found = NULL;
    for (int i = 0; i < all->n; i++) {
        const struct listener *l = &all->list[i];
        bool other = false;
        for (size_t j = 0; j < sizeof others / sizeof *others; j++) {
            other = other || strncmp(l->address, others[j], strlen(others[j])) == 0;
        }
        if (!other && (found == NULL || !l->is_unix)) {
            found = l->address;
        }
    }
    return found;
}

void stray_send_on(struct conn *c, const char *protocol)
{
    const char *address = resp_address(c);
    buf_addf(&c->out, "-ERR this port speaks %s, and you speak RESP: use %s\r\n", protocol,
             address != NULL ? address : "another one");
    conn_consume(c, c->input.len);
    conn_finish(c);
}
