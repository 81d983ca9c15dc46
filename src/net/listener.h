/* Listening sockets: TCP addresses and a Unix socket. */
#ifndef UNSEEN_NET_LISTENER_H
#define UNSEEN_NET_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "config/config.h"
#include "net/conn.h"

struct worker_side;
struct worker;

enum { LISTENERS_MAX = 4 * CONFIG_ADDRESSES_MAX, LISTENER_TEXT = 320 };

struct listener {
    int fd;
    bool is_unix;
    bool is_loopback; /* only this machine reaches it */
    bool tls;
    char address[LISTENER_TEXT]; /* as bound: "127.0.0.1:7979", "tls://[::1]:7979", "unix:/run/unseen.sock",
                                  * "http://...", "https://...", "grpc://...", "grpcs://..." */
    dev_t dev;                   /* of the socket file, to remove no other one */
    ino_t ino;
    const struct conn_ops *ops;
    const struct worker_side *side; /* its connections live on a worker of their own, worker.h; NULL: on any */
    struct worker *worker;
    uv_poll_t poll;
    uv_timer_t rest; /* when file descriptors have run out, or the room is crowded */
    bool started;
};

struct listeners {
    struct listener list[LISTENERS_MAX];
    int n;
};

/* Binds all addresses that an option lists (config_next_address(); port 0 is any free one) and listens. option names it
 * in errors. scheme: what stands before its addresses, "http" or "grpc"; over TLS they get an s. "": nothing, over TLS
 * tls. side: its connections live on a worker of their own; NULL: on any. Returns 0, ERR_INVALID, ERR_SYSTEM; what was
 * bound stays. */
int listeners_add_tcp(struct listeners *all, const char *option, const char *addresses, const char *scheme,
                      const struct conn_ops *ops, const struct worker_side *side, struct err *err);

/* At cfg->unix_socket. Until it has the group and the mode that are wanted no client can connect. A file left behind by
 * a process that is gone is replaced. Sets the process's umask for a moment. */
int listeners_add_unix(struct listeners *all, const struct config *cfg, const struct conn_ops *ops, struct err *err);

void listeners_free(struct listeners *all); /* closes; removes the socket file */

int listener_start(struct listener *l, struct worker *w, struct err *err); /* accepts on that worker's loop */
void listener_stop(struct listener *l);                                    /* on that worker's thread */

#endif
