/* The RESP server: listeners, worker threads, connections, commands.
 *
 * Order of a process's life:
 *
 *   server_start()    the ports open; a client that connects is told -LOADING, but may say HELLO, AUTH or INFO
 *   server_record()   the store is open, and still has to recover: plays and deliveries are taken
 *   ...               the store recovers, in the caller's thread
 *   server_attach()   from here on commands are answered
 *   server_stop()     nothing new is accepted, what the store already holds is answered, all threads end
 *   store close       answers what is left
 *   server_free()
 *
 * All of these are called from one thread, which also handles signals: the server's threads block all of them.
 */
#ifndef UNSEEN_RESP_SERVER_H
#define UNSEEN_RESP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"
#include "dedup/dedup.h"

struct account_set;
struct listeners;
struct worker_pool;
struct server;

enum {
    SERVER_ADDRESS_TEXT = 320,
    SERVER_STOP_MS = 10 * 1000, /* how long server_stop() waits for the store and for slow readers */
};

/* `beside`: the bound listeners of other edges, which are the server's from here on; NULL: there are none. Opens cfg's
 * TCP addresses (port 0: any free one; "none": no TCP) and Unix socket and starts cfg->workers threads. A stale socket
 * file is removed, but only when no process answers on it. cfg must outlive the server. Returns 0, or ERR_INVALID (an
 * address that can't be read, a file of accounts that is wrong), ERR_SYSTEM (can't be bound: the text says which and
 * why), ERR_NOMEM. */
int server_start(const struct config *cfg, const struct listeners *beside, struct server **server, struct err *err);

/* While the store recovers: plays and deliveries are taken from here on (service_record()). Returns 0 or ERR_NOMEM. */
int server_record(struct server *server, const struct dedup *dedup, struct err *err);

/* How far it is, to be told to those who are refused. */
void server_recovering(struct server *server, uint64_t rows, uint64_t of);

/* Ends the loading state: opens an asker for each worker (in the calling thread), hands it over, and waits until all
 * have it: from then on every connection is answered. Not on a worker's thread. dedup must outlive server_stop(), its
 * store server_free()'s caller: see the order above. Returns 0 or asker_open()'s error, and then the server is still
 * loading. */
int server_attach(struct server *server, struct dedup *dedup, struct err *err);

/* The accounts as they are from here on (service/login.h), which the server takes over; NULL: there is no file. False:
 * they were the same. */
bool server_replace_accounts(struct server *server, struct account_set *set);

/* The configuration was changed (config_change()). */
void server_reconfigured(struct server *server);

/* The files that TLS reads may have changed. An error is logged, and leaves all as it was. */
int server_reload_tls(struct server *server, struct err *err);

/* The bound addresses, i = 0, 1, ...: "127.0.0.1:7979", "[::1]:7979", "unix:/run/unseen.sock". Returns how long the
 * text is, or -1 when there is no i-th one. */
int server_address(const struct server *server, int i, char *out, size_t out_size);

/* The workers, for the watchdog and INFO. */
struct worker_pool *server_pool(struct server *server);

/* Blocks until all threads have ended: at most SERVER_STOP_MS and a little. Closes the askers. A write that the store
 * has not answered by then gets no answer. */
void server_stop(struct server *server);
void server_stop_within(struct server *server, int64_t ms);

/* After server_stop() and after the store was closed, so that no done() can follow. */
void server_free(struct server *server);

#endif
