#include "cli/serve/serve_beside.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct running {
    const struct beside *beside;
    int ended_fd; /* readable once the thread has ended */
    int rc;
    struct err err;
};

static void *work_main(void *arg)
{
    struct running *r = arg;
    r->rc = r->beside->work(r->beside->arg, &r->err);
    eventfd_write(r->ended_fd, 1);
    return NULL;
}

static void wait_for_end(const struct running *r, int signals_fd)
{
    struct pollfd fds[] = {{.fd = r->ended_fd, .events = POLLIN}, {.fd = signals_fd, .events = POLLIN}};
    int n;
    do {
        struct signalfd_siginfo info;
        n = poll(fds, 2, -1);
        if (n > 0 && fds[1].revents != 0 && read(signals_fd, &info, sizeof info) == (ssize_t)sizeof info) {
            fds[1].fd = -1;
            r->beside->told(r->beside->arg, (int)info.ssi_signo);
        }
    } while (n > 0 ? fds[0].revents == 0 : errno == EINTR);
}

static int run(struct running *r, int signals_fd, struct err *err)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, work_main, r);
    if (rc != 0) {
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
    }
    wait_for_end(r, signals_fd);
    pthread_join(thread, NULL);
    if (r->rc < 0) {
        *err = r->err;
    }
    return r->rc;
}

int serve_beside(const struct beside *b, struct err *err)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    struct running r = {.beside = b, .ended_fd = eventfd(0, EFD_CLOEXEC)};
    int rc = ERR_SYSTEM, signals_fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_fd >= 0 && r.ended_fd >= 0) {
        rc = run(&r, signals_fd, err);
    } else {
        err_set(err, ERR_SYSTEM, "can't wait for signals: %s", strerror(errno));
    }
    if (signals_fd >= 0) {
        close(signals_fd);
    }
    if (r.ended_fd >= 0) {
        close(r.ended_fd);
    }
    return rc;
}
