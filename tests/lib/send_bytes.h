/* What a peer of a test says: all of it, or as much as the other side lets through before it is gone. */
#ifndef UNSEEN_TESTS_LIB_SEND_BYTES_H
#define UNSEEN_TESTS_LIB_SEND_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* Blocks. False: the other side has closed the connection. */
static inline bool send_bytes(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        text += n;
        len -= (size_t)n;
    }
    return true;
}

#endif
