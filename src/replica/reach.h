/* How nodes reach each other: what this one announces of itself, what it takes from others, and how it connects.
 *
 * An address is that of a node's RESP, "host:port", or "tls://host:port" where it is reached by TLS; "": not known.
 * Nodes tell each other theirs, and then connect, with an administrator's password, to what they were told. So:
 *
 *   - None is announced, or taken, that leads elsewhere on another machine: a wildcard never, loopback only from and to
 *     who is on this machine.
 *   - A node that was told to speak TLS never speaks plain: to no address that it learns, whatever that says. What it
 *     was told is replica_of; else whom the folder follows, as unseen clone or rejoin has written it down; else, of a
 *     primary, how it is reached itself.
 */
#ifndef UNSEEN_REPLICA_REACH_H
#define UNSEEN_REPLICA_REACH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "net/client.h"
#include "store/node.h"

enum { REACH_NAMED_MAX = 32 }; /* as PEERS_MAX */

struct reach {
    const struct config *cfg;
    struct reach_own {
        char text[NODE_ADDRESS_TEXT];
        bool local, tls;
    } own[CONFIG_ADDRESSES_MAX]; /* how this node is reached: replica_address, or as it listens; no wildcards */
    int n;
    char follows[NODE_ADDRESS_TEXT];                /* whom the folder followed at the start */
    char named[REACH_NAMED_MAX][NODE_ADDRESS_TEXT]; /* and what an operator named in an earlier run */
    int n_named;
    bool tls;          /* it was told tls:// */
    _Atomic bool told; /* that others can't be told how to reach it */
};

/* listens: the addresses of this node's RESP as config_next_address() takes them, with their real ports; "": none.
 * follows: the address in the folder; "": none. */
void reach_init(struct reach *r, const struct config *cfg, const char *listens, const char *follows);

/* What this node announces to the one at the other end: of what it has, the first that is reached as that one is (TLS
 * or not, on this machine or not); "": nothing, which is logged once. */
const char *reach_own(struct reach *r, const struct client *to);

/* For who shows it, and for Consul, where it is not known who reads it: of what is reached from elsewhere the first, if
 * there is any. */
const char *reach_shown(const struct reach *r);

/* Takes an address from another node. local: that one is on this machine. 0, and `out` is the address, or "" where it
 * leads nowhere from here; or ERR_INVALID: it is none. */
int reach_take(struct slice text, bool local, char out[NODE_ADDRESS_TEXT], struct err *err);

/* The same of what stands in Consul: its writer is on this machine if this node can only be reached there. */
int reach_take_shown(const struct reach *r, const char *text, char out[NODE_ADDRESS_TEXT], struct err *err);

/* The address as it is connected to: with tls:// before it where this node was told so. May be done in place. */
void reach_secure(const struct reach *r, const char *address, char out[NODE_ADDRESS_TEXT]);

/* Whether an operator has named it: by replica_of, by unseen clone or rejoin, or in an earlier run (reach_name(), while
 * there are no other threads). `secured`: of reach_secure(). */
bool reach_is_named(const struct reach *r, const char *secured);
void reach_name(struct reach *r, const char *secured);

/* Connects to another node, with replica_user and replica_password, as client_connect_as(). Without both: to whom the
 * operator named, by replica_of or by unseen clone or rejoin, with requirepass; to others, whom a node has told, with
 * nothing, since that password may do everything here. */
int reach_connect(const struct reach *r, const char *address, int patience_ms, size_t reply_max, struct client **client,
                  struct err *err);

#endif
