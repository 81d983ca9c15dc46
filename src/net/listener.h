/* Listening sockets: TCP addresses and a Unix socket. */
#ifndef UNSEEN_NET_LISTENER_H
#define UNSEEN_NET_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "net/conn.h"

struct config;
struct worker_pool;
struct worker;

enum { LISTENERS_MAX = 2, LISTENER_TEXT = 320 };

struct listener {
    int fd;
    bool is_unix;
    char address[LISTENER_TEXT]; /* as bound: "127.0.0.1:7979", "[::1]:7979", "unix:/run/unseen.sock" */
    dev_t dev;                   /* of the socket file, to remove no other one */
    ino_t ino;
    const struct conn_ops *ops;
    struct worker *worker;
    uv_poll_t poll;
    uv_timer_t rest; /* when file descriptors have run out */
    bool started;
};

/* Binds ip:port, [v6]:port or localhost:port (port 0 is any free one) and listens. Returns the socket, non-blocking,
 * and its name as it would be in struct listener; or ERR_INVALID, naming the option, or ERR_SYSTEM. */
int listener_bind(const char *option, const char *address, char name[LISTENER_TEXT], struct err *err);

/* The same for a listener of the workers. Appends to listeners (room for LISTENERS_MAX) and *n.
 * Returns 0, ERR_INVALID, ERR_SYSTEM; what was bound stays. */
int listener_tcp(const char *address, const struct conn_ops *ops, struct listener *listeners, int *n, struct err *err);

/* At cfg->unix_socket. Until it has the group and the mode that are wanted nobody can connect. A file left behind by a
 * process that is gone is replaced. Sets the process's umask for a moment. */
int listener_unix(const struct config *cfg, const struct conn_ops *ops, struct listener *listeners, int *n,
                  struct err *err);

int listener_start(struct listener *l, struct worker *w, struct err *err); /* accepts on that worker's loop */
void listener_stop(struct listener *l);                                    /* on that worker's thread */
void listener_free(struct listener *l);                                    /* closes; removes the socket file */

#endif
