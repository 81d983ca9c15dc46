/* A small blocking client of a running Unseen server, for the other subcommands. One thread. */
#ifndef UNSEEN_NET_CLIENT_H
#define UNSEEN_NET_CLIENT_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "net/reply.h"
#include "net/stream.h"

struct client;
struct task;

enum {
    CLIENT_CONNECT_MS = 5 * 1000,
    CLIENT_SILENCE_MS = 60 * 1000,       /* a server that says nothing for this long is taken for dead */
    CLIENT_STEP_MS = 50,                 /* at most so long client_go_on() isn't asked */
    CLIENT_ANSWER_MAX = 1024 * 1024,     /* for reply_max, where answers are short; of HELLO's in any case */
    CLIENT_REPLY_MAX = 64 * 1024 * 1024, /* where none is said: a user of 25 million plays, as a replica fetches them */
};

/* What client_connect() needs of the configuration: over TLS whom to trust and, where it has one, its own certificate;
 * and the server's password: requirepass of the configuration, the one line of requirepass_file, or $UNSEEN_PASSWORD,
 * which comes first where an account is named. *password is NULL when there is none; it is valid until the next call.
 * Returns 0, or the error of a file that can't be read. user: the account; NULL: that of $UNSEEN_USER, if it names one.
 */
int client_prepare(const struct config *cfg, const char **password, struct err *err);
int client_prepare_user(const struct config *cfg, const char *user, const char **password, struct err *err);

/* No reply takes more than CLIENT_REPLY_MAX, from any server: what is longer is an error, as soon as so much has come.
 *
 * Connects to "host:port", "[v6]:port", "tls://host:port" or "unix:/path" and says HELLO 3; password "" or NULL: none.
 * The text of an error names the address. ERR_LOADING: the server is still recovering. */
int client_connect(const char *address, const char *password, struct client **client, struct err *err);
int client_connect_user(const char *address, const char *user, const char *password, struct client **client,
                        struct err *err);
void client_close(struct client *c);

/* The same for a service, which has its own account and certificates, and no time: no address, handshake or call may
 * take longer than patience_ms, as a whole. A call begins with the first command that is queued after all were sent. */
struct client_how {
    const char *user, *password; /* "": `default`; none */
    struct tls_files tls;
    const char *password_is; /* the options that hold it, said when it is wrong or missing */
    int patience_ms;
    size_t reply_max; /* bytes of one reply, and of what its items take; more is ERR_SYSTEM. 0: CLIENT_REPLY_MAX */
};
int client_connect_as(const char *address, const struct client_how *how, struct client **client, struct err *err);

/* From the next call on: ms for the whole of each; or, where replies may be long, for each reply alone, and with the
 * time that its bytes take (net/patience.h), as of client_connect(). */
void client_be_patient(struct client *c, int ms);
void client_bound_silence(struct client *c, int ms);

/* While it waits from here on, and between the pieces of a reply, it asks whether to go on; else ERR_CLOSED. */
void client_go_on(struct client *c, bool (*goes_on)(void *arg), void *arg);

/* From here on t is parked (base/task.h) while it waits for the first byte of a reply. NULL: no more. */
void client_park(struct client *c, struct task *t);

/* As it was given. */
const char *client_address(const struct client *c);

/* Whether the server is on this machine, as far as its address tells; and whether it is spoken to over TLS. */
bool client_is_local(const struct client *c);
bool client_has_tls(const struct client *c);

/* Frees the client and hands over its socket, which is non-blocking and idle. */
struct stream client_detach(struct client *c);

/* Sends one command and reads its reply, which lives until the next call. An error reply is an ERR_INVALID (or
 * ERR_LOADING) with the server's words. */
int client_call(struct client *c, const struct slice *words, size_t n, const struct reply **reply, struct err *err);

/* Its two halves, for pipelining: queued commands are sent when they are many, or by the next client_read(). An error
 * reply is a reply here. */
int client_queue(struct client *c, const struct slice *words, size_t n, struct err *err);
int client_queue_encoded(struct client *c, struct slice command, struct err *err);
int client_encode(const struct slice *words, size_t n, struct buf *out); /* appends a command; 0 or ERR_NOMEM */
int client_read(struct client *c, const struct reply **reply, struct err *err);

/* Reads a reply as client_call() does: an error reply is an error. */
int client_answer(struct client *c, const struct reply **reply, struct err *err);

/* Sends queued commands and waits at most that long for a reply: 1 there is something to read, 0 not yet, or an error.
 * For commands that take longer than CLIENT_SILENCE_MS. */
int client_wait(struct client *c, int ms, struct err *err);

#endif
