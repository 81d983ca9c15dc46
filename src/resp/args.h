/* Reading arguments. */
#ifndef UNSEEN_RESP_ARGS_H
#define UNSEEN_RESP_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "resp/client.h"
#include "service/fields.h"

/* A whole number in its shortest decimal form, as in Redis; false otherwise, or outside of int64. */
bool arg_int(struct slice arg, int64_t *out);

/* Whether it is that word, in any case of letters. */
bool arg_is(struct slice arg, const char *word);

/* How much of it an error quotes: printf("%.*s", arg_shown(arg), arg.data) */
int arg_shown(struct slice arg);

/* Reads the fields of an operation (service/fields.h) from args[at] on: those that stand by their places, lists behind
 * the others, then its options. One that is a list takes all that is behind it. False: *refused says what to return. */
bool args_read(struct resp_client *s, unsigned of, const struct slice *args, size_t n, size_t at, struct asked *asked,
               enum outcome *refused);

/* n items, each with its group behind it, as two lists in memory of the loop's, until the next ones: the items, and
 * then their groups. NULL: out of memory. */
const struct slice *args_pairs(struct resp_client *s, const struct slice *args, size_t n);

/* Refuses an option that was already given: the first and the last can't both hold. */
enum outcome args_refuse_twice(struct resp_client *s, const char *option);

/* A connection's name or a library's: no blanks, no strange bytes, at most CLIENT_NAME_MAX - 1 bytes. */
bool client_set_text(char out[CLIENT_NAME_MAX], struct slice text);
#define CLIENT_NAME_ERROR "ERR Client names cannot contain spaces, newlines or special characters."

#endif
