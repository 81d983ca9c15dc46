/* Users in the order of their keys, out of a list in any order, in bounded memory: what is beyond goes, sorted, into a
 * temporary file that has no name, and is united again while it is read. One thread. */
#ifndef UNSEEN_STORE_RADOS_USER_SORT_H
#define UNSEEN_STORE_RADOS_USER_SORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { USER_SORT_BYTES = 32 << 20 };

struct user_sort;
/* memory: USER_SORT_BYTES, or less for tests. ERR_NOMEM. */
int user_sort_new(size_t memory, struct user_sort **sort, struct err *err);
int user_sort_add(struct user_sort *s, int64_t key, struct slice user,
                  struct err *err); /* ERR_NOMEM, ERR_IO, ERR_FULL */
/* Behind the last one; then user_sort_next() gives them, by key and then by id, each once: 1, 0 at the end, or an
 * error. The id lives until the next call. */
void user_sort_end(struct user_sort *s);
int user_sort_next(struct user_sort *s, int64_t *key, struct slice *user, struct err *err);
uint64_t user_sort_count(const struct user_sort *s); /* with repeats */
void user_sort_free(struct user_sort *s);

#endif
