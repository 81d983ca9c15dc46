/* A command's question about a user, whoever answers it: the worker at once; or, when the user is large, the thread
 * beside the workers (net/offload.h); and about a user who is still to be migrated also the Redis that they come from
 * (legacy/read_through.h), once it is known what is unseen here. While a question is away the request stays where it
 * is, parsed; when its answer has come, the command is run once more.
 *
 * So each of these is called once or more a command, with the same arguments, and returns what the asker would; or
 * AWAY: the question is away, and the command returns OUTCOME_AGAIN. (Also, with the connection in the line, while
 * there is no memory for that.) What an answer points to is good until the command returns.
 */
#ifndef UNSEEN_RESP_AWAY_H
#define UNSEEN_RESP_AWAY_H

#include <limits.h>

#include "resp/client.h"

enum { AWAY = INT_MIN };

/* error: asker_error() */
int away_filter(struct resp_client *s, struct slice user, const struct slice *items, const uint64_t *hashes, size_t n,
                uint8_t *unseen, size_t *n_unseen, double *error, struct err *err);
int away_why(struct resp_client *s, struct slice user, struct slice item, uint64_t hash,
             struct place places[PLACES_MAX], struct err *err);
int away_history(struct resp_client *s, struct slice user, struct history *out, struct err *err);

/* The command has ended, or its connection has. */
void away_end(struct resp_client *s);

#endif
