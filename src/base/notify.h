/* Messages to the service manager (systemd), by the protocol of sd_notify(3): one datagram of NAME=VALUE lines to the
 * socket that $NOTIFY_SOCKET names, by path or, behind an @, in the abstract namespace. Without that variable nothing
 * happens. Any thread, after notify_start().
 */
#ifndef UNSEEN_BASE_NOTIFY_H
#define UNSEEN_BASE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the environment, the first time. A socket that can't be used is logged, and nothing is ever sent. */
void notify_start(void);

/* The interval within which WATCHDOG=1 is expected of this process, in ms; 0: never. */
int64_t notify_watchdog_ms(void);

/* Sends lines such as "READY=1\nSTATUS=...". Waits at most a second for a manager that does not read. A message that
 * can't be sent is logged once in a while. */
void notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
