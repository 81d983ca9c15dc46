/* A test's program that starts a thread, its own or that of a library, says so: its path is a line of the file that
 * UNSEEN_NOTE_THREADS names. What holds for one thread alone needs no thread sanitizer, and scripts/test gives the
 * others to it. A sanitizer has a pthread_create of its own: in its build nothing is noted.
 *
 * Programs that are linked with -u pthread_create get this instead of the C library's, and so do the libraries that
 * they load. */
#include "tests/lib/rounds.h"

#if !UNDER_SANITIZER
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static atomic_bool noted;

static void note(void)
{
    const char *path = getenv("UNSEEN_NOTE_THREADS");
    char line[4096];
    ssize_t n = path != NULL && !atomic_exchange(&noted, true) ? readlink("/proc/self/exe", line, sizeof line - 1) : 0;
    int fd = n > 0 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) {
        return;
    }
    line[n++] = '\n';
    if (write(fd, line, (size_t)n) != n) {
        perror(path);
        abort(); /* else the thread sanitizer would not see this program */
    }
    close(fd);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr, void *(*begin)(void *),
                   void *restrict arg)
{
    static int (*_Atomic real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    }
    note();
    return real(thread, attr, begin, arg);
}
#endif
