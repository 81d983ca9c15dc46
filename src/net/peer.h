/* Whom a connection is from, as far as counting by address goes: one number. An address of IPv6 counts with its /64,
 * since the owner of one of those has them all. */
#ifndef UNSEEN_NET_PEER_H
#define UNSEEN_NET_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { PEER_TEXT = 64 };

#define PEER_UNIX UINT64_C(0) /* a Unix socket: a process of this machine that the file's mode lets in */

/* Whether it is on this machine, as far as its address tells: loopback, or a Unix socket. */
bool peer_is_local(const struct sockaddr *address);

uint64_t peer_of(const struct sockaddr_storage *address);

/* "10.0.0.7", "2001:db8:1:2::/64", "unix". */
void peer_text(uint64_t peer, char out[PEER_TEXT]);

/* The bucket of a table of `n` (a power of two). A peer can't choose addresses that share one. */
uint32_t peer_bucket(uint64_t peer, uint32_t n);

#endif
