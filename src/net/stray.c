#include "net/stray.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "net/conn.h"
#include "net/worker.h"

/* *1\r\n, or a line that begins with a word which is first said to a Redis. Other lines may be HTTP gone wrong. */
bool stray_is_resp(struct slice input)
{
    static const char *const words[] = {"AUTH", "CLIENT", "COMMAND", "ECHO", "HELLO", "INFO", "PING", "QUIT", "SELECT"};
    if (input.len >= 2 && input.data[0] == '*') {
        return isdigit((unsigned char)input.data[1]) != 0;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if (input.len > len && strncasecmp(input.data, words[i], len) == 0 &&
            memchr(" \r\n", input.data[len], 3) != NULL) {
            return true;
        }
    }
    return false;
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
