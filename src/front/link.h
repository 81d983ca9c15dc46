/* A connection to the front's Redis that blocks: by its address, or by what Sentinels say is the master. The text of an
 * error names the address. */
#ifndef UNSEEN_FRONT_LINK_H
#define UNSEEN_FRONT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "front/scripts.h"
#include "net/reply.h"

struct front_link;

/* Connects, logs in, selects the database, and finds out whether that Redis will do: a master of 6.0 or later that does
 * not evict. Nothing that it waits for takes longer than patience_ms. ERR_SYSTEM: it can't be reached; ERR_LOADING;
 * ERR_INVALID: it refuses, or will not do, and the text says why. */
int front_link_open(const struct config *cfg, int patience_ms, struct front_link **link, struct err *err);
void front_link_close(struct front_link *link); /* NULL is fine */
void front_link_be_patient(struct front_link *link, int ms);
const char *front_link_address(const struct front_link *link);

/* Asks it again whether it will do: ERR_INVALID: not any more. *evicted: keys that it has evicted since it was started.
 */
int front_link_check(struct front_link *link, uint64_t *evicted, struct err *err);

/* Sends a command and reads its reply, which lives until the next call. An error reply is an ERR_INVALID (ERR_LOADING)
 * with its words, and leaves the connection as it is; after any other error only front_link_close() is left. */
int front_link_call(struct front_link *link, const struct slice *words, size_t n, const struct reply **reply,
                    struct err *err);

/* One of scripts.h, which Redis is given when it doesn't know it. words: the number of keys, keys, arguments. */
int front_link_run(struct front_link *link, enum front_script script, const struct slice *words, size_t n,
                   const struct reply **reply, struct err *err);

#endif
