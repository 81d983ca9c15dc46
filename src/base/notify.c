#include "base/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

enum { MESSAGE_MAX = 1024 };

static int fd = -1;
static struct sockaddr_un to;
static socklen_t to_len;
static int64_t watchdog_ms;

static bool read_address(const char *path)
{
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len < 2 || len >= sizeof to.sun_path) {
        return false;
    }
    to.sun_family = AF_UNIX;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') {
        to.sun_path[0] = '\0'; /* an abstract name ends where the length says */
    }
    to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

static int64_t read_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long long n = text != NULL ? strtoll(text, &end, 10) : 0;
    return text != NULL && end != text && *end == '\0' && n > 0 ? n : 0;
}

void notify_start(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (fd >= 0 || path == NULL || path[0] == '\0') {
        return;
    }
    if (!read_address(path)) {
        log_warn("NOTIFY_SOCKET is no socket that can be used", "path=%s expected=%s", log_quote_str(path),
                 log_quote_str("/path or @name"));
        return;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        log_warn("no socket to notify the service manager with", "error=%s", log_quote_str(strerror(errno)));
        return;
    }
    struct timeval patience = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    /* It may be meant for a parent that left its environment to us. */
    if (getenv("WATCHDOG_PID") == NULL || read_number("WATCHDOG_PID") == getpid()) {
        int64_t us = read_number("WATCHDOG_USEC");
        watchdog_ms = us > 0 && us < 2000 ? 1 : us / 1000;
    }
}

int64_t notify_watchdog_ms(void)
{
    return watchdog_ms;
}

void notify_send(const char *format, ...)
{
    static struct log_limit limit;
    char message[MESSAGE_MAX];
    if (fd < 0) {
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof message ? (size_t)n : sizeof message - 1;
    if (sendto(fd, message, len, MSG_NOSIGNAL, (const struct sockaddr *)&to, to_len) < 0 && log_again(&limit)) {
        log_warn("the service manager can't be notified", "error=%s", log_quote_str(strerror(errno)));
    }
}
