#include "legacy/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { UNDER_WAY_MAX = 64 };

struct resolve {
    char *host;
    int fd;
    int code; /* of getaddrinfo() */
    char address[RESOLVE_TEXT];
    _Atomic bool answered; /* both may be read */
    _Atomic int holders;   /* the thread, and who waits; the last one frees it */
};

static _Atomic int under_way;

static void let_go(struct resolve *r)
{
    if (atomic_fetch_sub(&r->holders, 1) == 1) {
        close(r->fd);
        free(r->host);
        free(r);
    }
}

static int look_up(struct resolve *r)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(r->host, NULL, &hints, &found);
    if (code != 0) {
        return code;
    }
    const struct addrinfo *one = found;
    while (one != NULL && one->ai_family != AF_INET) {
        one = one->ai_next;
    }
    one = one != NULL ? one : found;
    code = getnameinfo(one->ai_addr, one->ai_addrlen, r->address, sizeof r->address, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return code;
}

static void *resolve_main(void *arg)
{
    struct resolve *r = arg;
    uint64_t one = 1;
    r->code = look_up(r);
    atomic_store(&r->answered, true);
    while (write(r->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    let_go(r);
    atomic_fetch_sub(&under_way, 1);
    return NULL;
}

static int start(struct resolve *r, const char *host)
{
    pthread_attr_t attr;
    pthread_t thread;
    if ((r->host = strdup(host)) == NULL || (r->fd = eventfd(0, EFD_CLOEXEC)) < 0) {
        return errno;
    }
    int code = pthread_attr_init(&attr);
    if (code == 0) {
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        code = pthread_create(&thread, &attr, resolve_main, r);
        pthread_attr_destroy(&attr);
    }
    return code;
}

int resolve_begin(const char *host, struct resolve **resolve, struct err *err)
{
    if (atomic_fetch_add(&under_way, 1) >= UNDER_WAY_MAX) {
        atomic_fetch_sub(&under_way, 1);
        return err_set(err, ERR_BUSY, "%d earlier look-ups of its name have no answer yet", UNDER_WAY_MAX);
    }
    struct resolve *r = calloc(1, sizeof *r);
    int code = ENOMEM;
    if (r != NULL) {
        r->fd = -1;
        atomic_store(&r->holders, 2);
        code = start(r, host);
    }
    if (code != 0) {
        atomic_fetch_sub(&under_way, 1);
        if (r != NULL) {
            if (r->fd >= 0) {
                close(r->fd);
            }
            free(r->host);
            free(r);
        }
        return err_set(err, ERR_SYSTEM, "can't look up %s: %s", host, strerror(code));
    }
    *resolve = r;
    return 0;
}

int resolve_fd(const struct resolve *r)
{
    return r->fd;
}

int resolve_answer(const struct resolve *r, char address[RESOLVE_TEXT], struct err *err)
{
    if (!atomic_load(&r->answered) || r->code != 0) {
        return err_set(err, ERR_SYSTEM, "%s: %s", r->host, gai_strerror(r->code));
    }
    snprintf(address, RESOLVE_TEXT, "%s", r->address);
    return 0;
}

void resolve_end(struct resolve *r)
{
    if (r != NULL) {
        let_go(r);
    }
}
