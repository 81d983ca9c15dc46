/* A RESP client that has come to the port of another protocol is told where RESP is spoken, in an error that it shows.
 */
#ifndef UNSEEN_NET_STRAY_H
#define UNSEEN_NET_STRAY_H

#include <stdbool.h>

#include "base/slice.h"

struct conn;

/* Whether this is how a RESP client begins, as redis-cli does or a person on telnet. Never true of what HTTP/1 or
 * HTTP/2 begin with. */
bool stray_is_resp(struct slice input);

/* Answers, and ends the connection. protocol: what is spoken here, "HTTP". */
void stray_send_on(struct conn *c, const char *protocol);

#endif
