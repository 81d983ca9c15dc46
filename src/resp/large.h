/* A command's question about a user, whoever answers it: the worker at once, or, when the user is large, the thread
 * beside the workers (net/aside.h). Then the request stays where it is, parsed, and the command is run once more when
 * the answer has come.
 *
 * So each of these is called once or twice a command, with the same arguments, and returns what the asker would; or
 * ERR_LARGE: the question went aside, and the command returns OUTCOME_AGAIN. (Also, with the connection in the line,
 * while there is no memory for that.) What an answer points to is good until the command returns.
 */
#ifndef UNSEEN_RESP_LARGE_H
#define UNSEEN_RESP_LARGE_H

#include "resp/session.h"

/* error: asker_error() */
int large_filter(struct session *s, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                 size_t *n_unseen, double *error, struct err *err);
int large_why(struct session *s, struct slice user, uint64_t hash, struct place places[PLACES_MAX], struct err *err);
int large_history(struct session *s, struct slice user, struct history *out, struct err *err);

/* The command has ended, or its connection has. */
void large_end(struct session *s);

#endif
