/* A file of dead letters (src/kafka/dead_letters.h) as an input of `unseen import --dead-letters`: what its letters say
 * by the rules configured now, and the file again without those that were taken.
 *
 *   open -> next, keep if it must stay, next ... -> their plays are durable -> end -> close
 *
 * What can't be read stays by itself. Until end the file is as it was, so whatever fails loses no letter; repeating it
 * is harmless, because a load is a union. One import at a time has the file.
 */
#ifndef UNSEEN_CLI_IMPORT_IMPORT_LETTERS_H
#define UNSEEN_CLI_IMPORT_IMPORT_LETTERS_H

#include <stdint.h>

#include "base/err.h"
#include "kafka/message.h"

struct import_letters;

/* change: the file is to be rewritten. ERR_NOTFOUND, ERR_LOCKED (another import has it), ERR_IO, ERR_NOMEM. */
int import_letters_open(const char *path, bool change, struct message_rules *rules, struct import_letters **letters,
                        struct err *err);
void import_letters_close(struct import_letters *l);

/* 1: *out is the next letter that can be read, until the next call; has_at is set, by the message's time if need be,
 * and n is 0 where it says nothing. 0: there are no more. ERR_INVALID: this one can't be read, and stays; the next may
 * be. Other errors end it. */
int import_letters_next(struct import_letters *l, struct message_event *out, struct err *err);
uint64_t import_letters_line(const struct import_letters *l); /* of the last one */

/* The last one stays. */
int import_letters_keep(struct import_letters *l, struct err *err);

/* Takes those that were read and not kept out of the file, durably; one without letters is removed. */
int import_letters_end(struct import_letters *l, uint64_t *taken, uint64_t *kept, struct err *err);

#endif
