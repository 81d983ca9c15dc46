/* A real server on a Unix socket over a fake store, with a test clock, and a client of plain bytes. */
#ifndef UNSEEN_TESTS_SERVER_FIXTURE_H
#define UNSEEN_TESTS_SERVER_FIXTURE_H

#include "base/buf.h"
#include "config/config.h"
#include "dedup/dedup.h"
#include "resp/server.h"

#define FIXTURE_NOW INT64_C(1795262400000) /* 2026-11-21T12:00:00Z */

/* Only so that a broken server ends the test instead of hanging it. */
enum { FIXTURE_STUCK_S = 30 };

struct fixture {
    struct config cfg;
    struct store *store;
    struct tier *tier; /* a test's own; NULL: no second one */
    struct dedup dedup;
    struct server *server;
    char folder[64];
};

/* The configuration as a test wants it, then the server: with fixture_attach() it answers. */
void fixture_init(struct fixture *f);
void fixture_start(struct fixture *f);
void fixture_attach(struct fixture *f);
void fixture_stop(struct fixture *f); /* the server alone */
void fixture_end(struct fixture *f);

int client_open(const struct fixture *f);
int client_open_tcp(const struct fixture *f); /* cfg.listen = 127.0.0.1:0 */
void client_send(int fd, const char *bytes, size_t len);
void client_say(int fd, const char *text);

/* Reads exactly that, and fails on anything else. */
void client_expect(int fd, const char *want);

/* Asks, and expects that answer, a line or an array: a machine slower than a short question_timeout gets more tries. */
void client_ask_in_time(int fd, const char *question, const char *want);

/* Asks until a thread is held at that question, which came too late where nobody took it before its time was over. */
void client_ask_held(const struct fixture *f, int fd, const char *question);

/* Reads to the end of the connection. */
void client_read_all(int fd, struct buf *out);

/* Whether something can be read right now. */
bool client_has_input(int fd);

/* A fresh connection: sends text, shuts its half, and returns all that comes, NUL-terminated. */
void client_ask(const struct fixture *f, const char *text, struct buf *out);

/* The number that INFO has under that name. */
long long client_info(int fd, const char *section, const char *name);

/* Prints both texts when they differ; \1 in want stands for anything. */
bool text_is(const char *want, const struct buf *got, const char *about);

#endif
