#ifndef UNSEEN_KAFKA_DEAD_LETTERS_IMPL_H
#define UNSEEN_KAFKA_DEAD_LETTERS_IMPL_H

#include "kafka/dead_letters.h"

/* A sealed file's name: its number, and how many letters it has. */
bool dead_letters_is_sealed(const char *name, uint64_t *number, uint64_t *n);

/* Renames the growing file of so many letters, whose lock is held. */
int dead_letters_rename(const char *folder, uint64_t n, struct err *err);

/* Locks the growing file: *fd, or -1 when there is none and it is not to be made. Then cuts off what a crash left of a
 * line, or completes its last line; *size is what it has. */
int dead_letters_lock(const char *folder, bool make, int *fd, int64_t *size, struct err *err);

/* Lines in the first `size` bytes; the last one may lack its newline. */
int dead_letters_count(int fd, int64_t size, uint64_t *n, struct err *err);

int dead_letters_error(const char *what, struct err *err); /* by errno */

#endif
