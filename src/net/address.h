/* The address of a socket's end as text. */
#ifndef UNSEEN_NET_ADDRESS_H
#define UNSEEN_NET_ADDRESS_H

#include <sys/socket.h>

enum { ADDRESS_TEXT = 128 };

/* "127.0.0.1:53012" or "[::1]:53012"; "" of any other family. */
void address_text(const struct sockaddr *a, char out[ADDRESS_TEXT]);

#endif
