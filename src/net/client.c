#include "net/client.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/task.h"
#include "net/patience.h"
#include "net/peer.h"

enum { READ_BYTES = 64 * 1024, SEND_BYTES = 256 * 1024, PORT_TEXT = 16 };

struct client {
    struct stream stream;
    char address[320];
    struct buf out;
    struct buf in;
    size_t used; /* bytes of `in` that belong to replies already given */
    struct arena arena;
    struct reply reply;
    const struct tls_files *tls;
    int patience_ms;
    bool whole; /* it is for all of what is waited for; else for each reply, and its bytes have time of their own */
    int64_t begun_us; /* when what is waited for began */
    bool tried;       /* what there was of the answer was read since that began */
    bool (*goes_on)(void *arg);
    void *arg;
    struct task *parks; /* client_park() */
    size_t reply_max;
};

static int lost(struct client *c, const char *what, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%s: %s: %s", c->address, what, stream_problem(&c->stream));
}

static void begin(struct client *c)
{
    c->begun_us = clock_real_us();
    c->tried = false;
}

/* moved: bytes of what is under way, a request or a reply. */
static int64_t left_us(const struct client *c, size_t moved)
{
    return patience_left_us(c->begun_us, c->patience_ms, c->whole ? 0 : moved);
}

static int lose_patience(const struct client *c, short events, size_t moved, struct err *err)
{
    const bool seconds = c->patience_ms % 1000 == 0, reads = (events & POLLIN) != 0;
    if (c->whole || moved == 0) {
        return err_set(err, ERR_SYSTEM, "%s: no %sanswer for %d %s", c->address, c->whole ? "whole " : "",
                       seconds ? c->patience_ms / 1000 : c->patience_ms, seconds ? "s" : "ms");
    }
    return patience_lost(c->address, reads ? "it sent" : "it took", reads ? "reply" : "request", moved, c->begun_us,
                         c->patience_ms, err);
}

static int ask_to_go_on(const struct client *c, struct err *err)
{
    return c->goes_on == NULL || c->goes_on(c->arg) ? 0 : err_set(err, ERR_CLOSED, "%s: interrupted", c->address);
}

/* It is parked as long as nothing comes, and what has come lies in the socket until it is no more. */
static int poll_parked(struct client *c, struct pollfd *p, int ms)
{
    const bool parks = c->parks != NULL && p->events == POLLIN && c->in.len == c->used;
    if (parks) {
        task_park(c->parks, p->fd);
    }
    int n = poll(p, 1, ms);
    if (parks && n != 0) {
        task_unpark(c->parks);
    }
    return n;
}

/* Looks once, however late: this thread may be, where others keep the machine busy, and the other side not. */
static int wait_ready(struct client *c, short events, size_t moved, struct err *err)
{
    struct pollfd p = {.fd = c->stream.fd, .events = events};
    const bool reads = (events & POLLIN) != 0;
    for (;;) {
        int rc = ask_to_go_on(c, err);
        if (rc < 0) {
            return rc;
        }
        if (reads && c->tried && left_us(c, moved) <= 0) { /* bytes of TLS that are no reply may come without end */
            return lose_patience(c, events, moved, err);
        }
        const int64_t ms = (left_us(c, moved) + 999) / 1000;
        const int64_t most = c->goes_on != NULL ? CLIENT_STEP_MS : INT_MAX;
        int n = poll_parked(c, &p, ms <= 0 ? 0 : (int)(ms < most ? ms : most));
        if (n > 0) {
            c->tried = c->tried || reads;
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return lost(c, "can't wait", err);
        }
        if (n == 0 && left_us(c, moved) <= 0) {
            return lose_patience(c, events, moved, err);
        }
    }
}

static int connect_socket(struct client *c, int family, const struct sockaddr *address, socklen_t len, struct err *err)
{
    c->stream.fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->stream.fd < 0) {
        return lost(c, "no socket", err);
    }
    int rc = 0;
    begin(c);
    if (connect(c->stream.fd, address, len) < 0) {
        rc = errno == EINPROGRESS ? wait_ready(c, POLLOUT, 0, err) : lost(c, "can't connect", err);
        int problem = 0;
        socklen_t size = sizeof problem;
        if (rc == 0 && getsockopt(c->stream.fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem != 0) {
            errno = problem;
            rc = lost(c, "can't connect", err);
        }
    }
    if (rc < 0) {
        close(c->stream.fd);
        c->stream.fd = -1;
    }
    return rc;
}

static int connect_unix(struct client *c, const char *path, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return err_set(err, ERR_INVALID, "%s: the path is longer than %zu bytes", c->address,
                       sizeof address.sun_path - 1);
    }
    strcpy(address.sun_path, path);
    return connect_socket(c, AF_UNIX, (const struct sockaddr *)&address, sizeof address, err);
}

static int shake(struct client *c, const char *host, struct err *err)
{
    int rc = stream_secure(&c->stream, c->tls, host, err);
    begin(c);
    while (rc == 0 && (rc = stream_shake(&c->stream, err)) == 0) {
        rc = wait_ready(c, stream_events(&c->stream), 0, err);
        if (rc < 0) {
            return rc;
        }
    }
    return rc < 0 ? err_prefix(err, "%s", c->address) : 0;
}

static int connect_tcp(struct client *c, struct err *err)
{
    char host[sizeof c->address], port[PORT_TEXT];
    const char *address = c->address;
    bool tls = stream_is_tls(&address);
    const char *scheme = strstr(address, "://");
    if (scheme != NULL) {
        return err_set(err, ERR_INVALID, "'%s' is a URL: expected the address of RESP, host:port or tls://host:port",
                       c->address);
    }
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || colon[1] == '\0' || strlen(colon + 1) >= sizeof port) {
        return err_set(err, ERR_INVALID, "'%s': expected host:port, [v6]:port, tls://host:port or unix:/path",
                       c->address);
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    strcpy(port, colon + 1);
    char *name = host;
    size_t len = strlen(host);
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        name = host + 1;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int code = getaddrinfo(name, port, &hints, &list);
    if (code != 0) {
        return err_set(err, ERR_SYSTEM, "%s: %s", c->address, gai_strerror(code));
    }
    int rc = ERR_SYSTEM;
    for (const struct addrinfo *a = list; a != NULL && rc < 0; a = a->ai_next) {
        rc = connect_socket(c, a->ai_family, a->ai_addr, a->ai_addrlen, err);
    }
    freeaddrinfo(list);
    return rc == 0 && tls ? shake(c, name, err) : rc;
}

static int send_all(struct client *c, struct err *err)
{
    size_t sent = 0;
    if (!c->whole) {
        begin(c);
    }
    while (sent < c->out.len || c->stream.out.len > 0) {
        struct iovec rest = {c->out.data + sent, c->out.len - sent};
        ssize_t n = rest.iov_len > 0 ? stream_write(&c->stream, &rest, 1) : stream_flush(&c->stream) - 1;
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN) {
            int rc = wait_ready(c, POLLOUT, sent, err);
            if (rc < 0) {
                return rc;
            }
        } else if (c->stream.tls != NULL && (errno == EPIPE || errno == ECONNRESET)) {
            break; /* what it said before it closed tells more */
        } else if (errno != EINTR) {
            return lost(c, "can't send", err);
        }
    }
    buf_clear(&c->out);
    return 0;
}

int client_encode(const struct slice *words, size_t n, struct buf *out)
{
    buf_addf(out, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "$%zu\r\n", words[i].len);
        buf_add(out, words[i].data, words[i].len);
        buf_add(out, "\r\n", 2);
    }
    return out->failed ? ERR_NOMEM : 0;
}

static int queued(struct client *c, int rc, struct err *err)
{
    if (rc < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a command");
    }
    return c->out.len >= SEND_BYTES ? send_all(c, err) : 0;
}

int client_queue(struct client *c, const struct slice *words, size_t n, struct err *err)
{
    if (c->out.len == 0) {
        begin(c);
    }
    return queued(c, client_encode(words, n, &c->out), err);
}

int client_queue_encoded(struct client *c, struct slice command, struct err *err)
{
    if (c->out.len == 0) {
        begin(c);
    }
    return queued(c, buf_add(&c->out, command.data, command.len), err);
}

/* An announced length costs nothing here: only what has come takes memory. */
static int tell_large(const struct client *c, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%s: a reply of more than %zu KiB, where none is so long", c->address,
                   c->reply_max / 1024);
}

static int receive(struct client *c, struct err *err)
{
    if (c->in.len >= c->reply_max) {
        return tell_large(c, err);
    }
    if (c->tried && left_us(c, c->in.len) <= 0) { /* also if it never stops sending */
        return lose_patience(c, POLLIN, c->in.len, err);
    }
    int rc = ask_to_go_on(c, err);
    if (rc < 0) {
        return rc;
    }
    c->tried = true;
    if (buf_reserve(&c->in, READ_BYTES) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a reply");
    }
    for (;;) {
        ssize_t n = stream_read(&c->stream, c->in.data + c->in.len, c->in.cap - c->in.len);
        if (n > 0) {
            c->in.len += (size_t)n;
            return 0;
        }
        if (n == 0) {
            return err_set(err, ERR_CLOSED, "%s: the server closed the connection", c->address);
        }
        if (errno == EAGAIN) {
            rc = wait_ready(c, POLLIN, c->in.len, err);
            if (rc < 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return lost(c, "can't receive", err);
        }
    }
}

int client_read(struct client *c, const struct reply **reply, struct err *err)
{
    int rc = send_all(c, err);
    if (!c->whole) {
        begin(c);
    }
    if (rc == 0 && c->in.data == NULL) {
        rc = receive(c, err);
    }
    while (rc == 0) {
        size_t used = 0;
        arena_reset(&c->arena);
        rc = reply_parse(c->in.data + c->used, c->in.len - c->used, &c->arena, &c->reply, &used, err);
        if (rc < 0) {
            return c->arena.refused ? tell_large(c, err) : err_prefix(err, "%s", c->address);
        }
        c->used += used;
        if (rc == REPLY_DONE && !c->reply.push) {
            *reply = &c->reply;
            return 0;
        }
        if (rc == REPLY_MORE) {
            /* Only here may the bytes move: the last reply points into them. */
            if (c->used > 0) {
                c->in.len -= c->used;
                memmove(c->in.data, c->in.data + c->used, c->in.len);
                c->used = 0;
            }
            rc = receive(c, err);
        } else {
            rc = 0;
        }
    }
    return rc;
}

int client_wait(struct client *c, int ms, struct err *err)
{
    int rc = send_all(c, err);
    if (rc < 0 || c->in.len > c->used) {
        return rc < 0 ? rc : 1;
    }
    if (stream_has_read(&c->stream)) {
        return 1;
    }
    struct pollfd p = {.fd = c->stream.fd, .events = POLLIN};
    int n = poll(&p, 1, ms);
    return n >= 0 || errno == EINTR ? n > 0 : lost(c, "can't wait", err);
}

int client_answer(struct client *c, const struct reply **reply, struct err *err)
{
    int rc = client_read(c, reply, err);
    if (rc == 0 && (*reply)->kind == REPLY_ERROR) {
        struct slice text = (*reply)->text;
        bool loading = text.len >= 7 && memcmp(text.data, "LOADING", 7) == 0;
        rc = err_set(err, loading ? ERR_LOADING : ERR_INVALID, "%s: %.*s", c->address, (int)text.len, text.data);
    }
    return rc;
}

int client_call(struct client *c, const struct slice *words, size_t n, const struct reply **reply, struct err *err)
{
    int rc = client_queue(c, words, n, err);
    return rc < 0 ? rc : client_answer(c, reply, err);
}

static struct tls_files files; /* of client_prepare() */

/* Who logs in; NULL: `default`. */
static const char *account(const char *user)
{
    const char *name = user != NULL ? user : getenv("UNSEEN_USER");
    return name != NULL && name[0] != '\0' ? name : NULL;
}

static int greet(struct client *c, const char *name, const char *password, const char *password_is, struct err *err)
{
    struct slice words[] = {slice_str("HELLO"), slice_str("3"), slice_str("AUTH"), slice_str(name),
                            slice_str(password)};
    const struct reply *reply = NULL;
    int rc = client_call(c, words, password[0] != '\0' ? 5 : 2, &reply, err);
    if (rc == ERR_INVALID && reply != NULL && reply->kind == REPLY_ERROR) {
        bool missing = strncmp(reply->text.data, "NOAUTH", 6) == 0;
        if (missing || strncmp(reply->text.data, "WRONGPASS", 9) == 0) {
            return err_set(err, ERR_INVALID, "%s: %s: it is %s", c->address,
                           missing ? "the server wants a password" : "the password is wrong", password_is);
        }
    }
    if (rc == ERR_CLOSED && c->stream.tls == NULL && strncmp(c->address, "unix:", 5) != 0) {
        return err_set(err, rc,
                       "%s: the server closed the connection before it said anything: where TLS is spoken, the "
                       "address is tls://%s",
                       c->address, c->address);
    }
    return rc;
}

int client_prepare_user(const struct config *cfg, const char *user, const char **password, struct err *err)
{
    static struct config read;
    read = *cfg;
    files = tls_files_to_connect(&read);
    *password = getenv("UNSEEN_PASSWORD");
    int rc = config_read_requirepass(&read, err);
    if (*password != NULL && (rc < 0 || account(user) != NULL)) {
        return 0;
    }
    if (rc == 0 && read.requirepass[0] != '\0') {
        *password = read.requirepass;
    }
    return rc;
}

int client_prepare(const struct config *cfg, const char **password, struct err *err)
{
    return client_prepare_user(cfg, NULL, password, err);
}

static void bound_reply(struct client *c, size_t max)
{
    c->reply_max = max;
    c->arena.limit = max; /* of items, which take more here than on the way */
}

static int open_client(const char *address, const struct tls_files *tls, int patience_ms, struct client **client,
                       struct err *err)
{
    struct client *c = *client = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    c->stream.fd = -1;
    c->tls = tls;
    client_be_patient(c, patience_ms);
    bound_reply(c, CLIENT_ANSWER_MAX); /* until it has greeted */
    snprintf(c->address, sizeof c->address, "%s", address);
    return strncmp(address, "unix:", 5) == 0 ? connect_unix(c, address + 5, err) : connect_tcp(c, err);
}

int client_connect_user(const char *address, const char *user, const char *password, struct client **client,
                        struct err *err)
{
    const char *name = account(user);
    struct client *c;
    int rc = open_client(address, &files, CLIENT_CONNECT_MS, &c, err);
    if (rc == 0) {
        client_bound_silence(c, CLIENT_SILENCE_MS);
        rc = greet(c, name != NULL ? name : "default", password != NULL ? password : "",
                   "requirepass of the configuration, in --password-file, or $UNSEEN_PASSWORD, which is that of the "
                   "account $UNSEEN_USER if there is one",
                   err);
    }
    if (rc < 0) {
        client_close(c);
        return rc;
    }
    bound_reply(c, CLIENT_REPLY_MAX);
    *client = c;
    return 0;
}

int client_connect(const char *address, const char *password, struct client **client, struct err *err)
{
    return client_connect_user(address, NULL, password, client, err);
}

int client_connect_as(const char *address, const struct client_how *how, struct client **client, struct err *err)
{
    struct client *c;
    int rc = open_client(address, &how->tls, how->patience_ms, &c, err);
    if (rc == 0) {
        rc = greet(c, how->user[0] != '\0' ? how->user : "default", how->password, how->password_is, err);
    }
    if (rc < 0) {
        client_close(c);
        return rc;
    }
    c->tls = NULL; /* the caller's */
    bound_reply(c, how->reply_max > 0 ? how->reply_max : CLIENT_REPLY_MAX);
    *client = c;
    return 0;
}

void client_be_patient(struct client *c, int ms)
{
    c->patience_ms = ms;
    c->whole = true;
}

void client_bound_silence(struct client *c, int ms)
{
    c->patience_ms = ms;
    c->whole = false;
}

void client_go_on(struct client *c, bool (*goes_on)(void *arg), void *arg)
{
    c->goes_on = goes_on;
    c->arg = arg;
}

void client_park(struct client *c, struct task *t)
{
    if (c->parks != NULL) {
        task_unpark(c->parks);
    }
    c->parks = t;
}

const char *client_address(const struct client *c)
{
    return c->address;
}

bool client_is_local(const struct client *c)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    return getpeername(c->stream.fd, (struct sockaddr *)&a, &len) == 0 && peer_is_local((struct sockaddr *)&a);
}

bool client_has_tls(const struct client *c)
{
    return c->stream.tls != NULL;
}

void client_close(struct client *c)
{
    if (c == NULL) {
        return;
    }
    stream_close(&c->stream);
    buf_free(&c->out);
    buf_free(&c->in);
    arena_free(&c->arena);
    free(c);
}

struct stream client_detach(struct client *c)
{
    struct stream stream = c->stream;
    c->stream = (struct stream){.fd = -1};
    client_close(c);
    return stream;
}
