/* Listening sockets: TCP addresses and a Unix socket. */
#ifndef UNSEEN_NET_LISTENER_H
#define UNSEEN_NET_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "net/conn.h"

struct config;
struct worker_side;
struct worker;

enum { LISTENERS_MAX = 4, LISTENER_TEXT = 320 };

struct listener {
    int fd;
    bool is_unix;
    char address[LISTENER_TEXT]; /* as bound: "127.0.0.1:7979", "[::1]:7979", "unix:/run/unseen.sock", "http://...", "grpc://..." */
    dev_t dev;                   /* of the socket file, to remove no other one */
    ino_t ino;
    const struct conn_ops *ops;
    const struct worker_side *side; /* its connections live on a worker of their own, worker.h; NULL: on any */
    struct worker *worker;
    uv_poll_t poll;
    uv_timer_t rest; /* when file descriptors have run out, or the room is crowded */
    bool started;
};

/* Binds ip:port, [v6]:port or localhost:port (port 0 is any free one) and listens. option names it in errors, scheme
 * ("http://", "") stands before its address. Appends to listeners (room for LISTENERS_MAX) and *n. Returns 0,
 * ERR_INVALID, ERR_SYSTEM; what was bound stays. */
int listener_tcp(const char *option, const char *address, const char *scheme, const struct conn_ops *ops,
                 struct listener *listeners, int *n, struct err *err);

/* At cfg->unix_socket. Until it has the group and the mode that are wanted nobody can connect. A file left behind by a
 * process that is gone is replaced. Sets the process's umask for a moment. */
int listener_unix(const struct config *cfg, const struct conn_ops *ops, struct listener *listeners, int *n,
                  struct err *err);

int listener_start(struct listener *l, struct worker *w, struct err *err); /* accepts on that worker's loop */
void listener_stop(struct listener *l);                                    /* on that worker's thread */
void listener_free(struct listener *l);                                    /* closes; removes the socket file */

#endif
