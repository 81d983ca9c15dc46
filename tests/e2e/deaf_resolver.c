/* Preloaded in front of the C library: whoever looks up deaf.example waits for ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT,
                                                                                                "getaddrinfo");
    while (node != NULL && strcmp(node, "deaf.example") == 0) {
        pause();
    }
    return real(node, service, hints, list);
}
