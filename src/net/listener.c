#include "net/listener.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/owner.h"
#include "config/config.h"
#include "net/worker.h"

enum { BACKLOG = 4096, ACCEPTS_A_TURN = 64, REST_MS = 100, CROWDED_MS = 2 };

static void name_tcp(struct listener *l, const char *scheme, const char *host)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    getsockname(l->fd, (struct sockaddr *)&a, &len);
    bool v6 = a.ss_family == AF_INET6;
    int port = ntohs(v6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
    const char *tls = !l->tls             ? ""
                      : scheme[0] != '\0' ? "s"
                                          : "tls",
               *slashes = l->tls || scheme[0] != '\0' ? "://" : "";
    snprintf(l->address, sizeof l->address, v6 ? "%s%s%s[%s]:%d" : "%s%s%s%s:%d", scheme, tls, slashes, host, port);
}

static int bind_tcp(const struct sockaddr *a, socklen_t len)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a, len) < 0 || listen(fd, BACKLOG) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int add_tcp(struct listeners *all, const struct config_address *at, const char *scheme,
                   const struct conn_ops *ops, const struct worker_side *side, struct err *err)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    int fd = uv_ip4_addr(at->host, at->port, &v4) == 0   ? bind_tcp((struct sockaddr *)&v4, sizeof v4)
             : uv_ip6_addr(at->host, at->port, &v6) == 0 ? bind_tcp((struct sockaddr *)&v6, sizeof v6)
                                                         : (errno = EINVAL, -1);
    if (fd < 0) {
        bool is_v6 = strchr(at->host, ':') != NULL;
        return err_set(err, ERR_SYSTEM, is_v6 ? "can't listen on [%s]:%d: %s" : "can't listen on %s:%d: %s", at->host,
                       at->port, strerror(errno));
    }
    struct listener *l = &all->list[all->n++];
    *l = (struct listener){
        .fd = fd, .ops = ops, .side = side, .tls = at->tls, .is_loopback = config_is_loopback(at->host)};
    name_tcp(l, scheme, at->host);
    return 0;
}

int listeners_add_tcp(struct listeners *all, const char *option, const char *addresses, const char *scheme,
                      const struct conn_ops *ops, const struct worker_side *side, struct err *err)
{
    const char *at = addresses;
    struct config_address a;
    int code = 0, more;
    while (code == 0 && (more = config_next_address(&at, &a)) != 0) {
        if (more < 0 || all->n == LISTENERS_MAX) {
            return err_set(err, ERR_INVALID, "%s is %s, expected an IP address and a port, or none", option,
                           log_quote_str(addresses));
        }
        code = add_tcp(all, &a, scheme, ops, side, err);
    }
    return code;
}

/* Whether the file is a socket on which no process answers. */
static bool is_stale(const char *path, const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool refused = connect(fd, (const struct sockaddr *)a, sizeof *a) < 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* -1: the process's own. */
static int find_group(const char *name, gid_t *gid, struct err *err)
{
    *gid = (gid_t)-1;
    if (name[0] == '\0') {
        return 0;
    }
    char text[16 * 1024], *end;
    struct group entry, *found = NULL;
    if (getgrnam_r(name, &entry, text, sizeof text, &found) == 0 && found != NULL) {
        *gid = found->gr_gid;
        return 0;
    }
    unsigned long number = strtoul(name, &end, 10);
    if (!isdigit((unsigned char)name[0]) || *end != '\0' || number >= UINT32_MAX) {
        return err_set(err, ERR_INVALID, "unix_socket_group is %s, expected the name or number of a group",
                       log_quote_str(name));
    }
    *gid = (gid_t)number;
    return 0;
}

/* Through a descriptor, since a path may be swapped under us. No client can connect yet: it does not listen. */
static int give_to(const char *path, gid_t gid, mode_t mode, struct stat *st)
{
    char self[64];
    owner_as_folder(path);
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int rc = fstat(fd, st);
    if (rc == 0 && !S_ISSOCK(st->st_mode)) {
        errno = EEXIST;
        rc = -1;
    }
    if (rc == 0 && gid != (gid_t)-1) {
        rc = fchownat(fd, "", (uid_t)-1, gid, AT_EMPTY_PATH);
    }
    if (rc == 0 && (st->st_mode & 0777) != mode) {
        rc = chmod(self, mode);
    }
    int error = errno;
    close(fd);
    errno = error;
    return rc;
}

int listeners_add_unix(struct listeners *all, const struct config *cfg, const struct conn_ops *ops, struct err *err)
{
    static const mode_t modes[] = {[MODE_OWNER] = 0600, [MODE_GROUP] = 0660, [MODE_ALL] = 0666};
    const char *path = cfg->unix_socket;
    gid_t gid;
    int code = find_group(cfg->unix_socket_group, &gid, err);
    if (code < 0) {
        return code;
    }
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) > CONFIG_SOCKET_MAX) {
        return err_set(err, ERR_INVALID, "unix_socket is %s, whose %zu bytes are more than the %d of a socket's path",
                       log_quote_str(path), strlen(path), CONFIG_SOCKET_MAX);
    }
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_set(err, ERR_SYSTEM, "can't make a Unix socket: %s", strerror(errno));
    }
    fchmod(fd, 0600); /* the path is made with this mode; umask() would be all threads' */
    int bound = bind(fd, (struct sockaddr *)&a, sizeof a);
    if (bound < 0 && errno == EADDRINUSE) {
        if (is_stale(path, &a) && unlink(path) == 0) {
            bound = bind(fd, (struct sockaddr *)&a, sizeof a);
        } else {
            errno = EADDRINUSE;
        }
    }
    int error = errno;
    struct stat st;
    if (bound == 0 && (give_to(path, gid, modes[cfg->unix_socket_mode], &st) < 0 || listen(fd, BACKLOG) < 0)) {
        error = errno;
        unlink(path);
        bound = -1;
    }
    if (bound < 0) {
        close(fd);
        const char *cause = error == EADDRINUSE ? "another process answers there, or it is no socket"
                            : error == EPERM ? "its mode or unix_socket_group can't be set: is this user in the group?"
                                             : strerror(error);
        return err_set(err, ERR_SYSTEM, "can't listen on %s: %s", path, cause);
    }
    struct listener *l = &all->list[all->n++];
    *l = (struct listener){.fd = fd, .is_unix = true, .ops = ops, .dev = st.st_dev, .ino = st.st_ino};
    snprintf(l->address, sizeof l->address, "unix:%s", a.sun_path);
    return 0;
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_rested(uv_timer_t *timer)
{
    struct listener *l = timer->data;
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

static void rest(struct listener *l, uint64_t ms)
{
    uv_poll_stop(&l->poll);
    uv_timer_start(&l->rest, on_rested, ms, 0);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct listener *l = poll->data;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        if (room_is_crowded(l->worker->room)) {
            rest(l, CROWDED_MS);
            return;
        }
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        int fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR)) {
            continue;
        }
        if (fd < 0 && errno != EAGAIN) {
            /* The waiting client would wake us again and again. */
            log_warn("can't accept connections", "address=%s cause=%s", log_quote_str(l->address),
                     log_quote_str(strerror(errno)));
            rest(l, REST_MS);
        }
        if (fd < 0) {
            return;
        }
        uint64_t peer = l->is_unix ? PEER_UNIX : peer_of(&from);
        const char *refusal = room_enter(l->worker, l->ops, peer);
        if (refusal != NULL) {
            if (!l->tls) { /* whose client would not understand it */
                send(fd, refusal, strlen(refusal), MSG_DONTWAIT | MSG_NOSIGNAL);
            }
            close(fd);
            continue;
        }
        worker_deal(l, fd, peer, &from);
    }
}

int listener_start(struct listener *l, struct worker *w, struct err *err)
{
    int code = uv_poll_init(&w->loop, &l->poll, l->fd);
    if (code < 0) {
        return err_set(err, ERR_SYSTEM, "can't wait for connections on %s: %s", l->address, uv_strerror(code));
    }
    uv_timer_init(&w->loop, &l->rest);
    l->worker = w;
    l->poll.data = l->rest.data = l;
    l->started = true;
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
    return 0;
}

void listener_stop(struct listener *l)
{
    if (l->started) {
        l->started = false;
        uv_close((uv_handle_t *)&l->poll, NULL);
        uv_close((uv_handle_t *)&l->rest, NULL);
    }
}

static void free_listener(const struct listener *l)
{
    struct stat st;
    const char *path = l->address + strlen("unix:");
    if (l->is_unix && stat(path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino) {
        unlink(path);
    }
    close(l->fd);
}

void listeners_free(struct listeners *all)
{
    for (int i = 0; i < all->n; i++) {
        free_listener(&all->list[i]);
    }
    all->n = 0;
}
