/* What a node is about to send: a question and the delivery of its answer are one step, though neither waits for the
 * other. All questions with DELIVER of one user that are under way share an entry, on whatever connection they came.
 * What an answer takes goes into it at once; no other answer takes that, though it may have looked at the user before
 * the delivery was recorded.
 *
 * An item leaves the entry when its record has failed; or else when that was answered, so that questions which begin
 * now find it in the store, and every question that began before has ended. Any thread. Memory: 60 bytes and the id for
 * a user with such questions, 60 to 80 an item.
 */
#ifndef UNSEEN_SERVICE_SENDING_H
#define UNSEEN_SERVICE_SENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct sendings;    /* of a node */
struct sending;     /* a question that is to deliver */
struct sent_record; /* what it delivers, while that is being recorded */

struct sendings *sendings_new(void);    /* NULL: out of memory */
void sendings_free(struct sendings *s); /* all questions and records have ended */

/* Before the question looks at the user. key: hash_user_key(). NULL: out of memory. */
struct sending *sending_begin(struct sendings *s, int64_t key, struct slice user);

/* Whether there is anything that sending_holds(). Both: q NULL is no question that delivers, and holds nothing. */
bool sending_any(const struct sending *q);
bool sending_holds(const struct sending *q, uint64_t hash);

/* Room for an answer of so many items, of which each is then taken. 0 or ERR_NOMEM. */
int sending_answer(struct sending *q, size_t most);
enum sending_taken {
    SENDING_TAKES,
    SENDING_HELD,   /* another one has it */
    SENDING_HIDDEN, /* by the rule */
    SENDING_FAILS,  /* ERR_NOMEM, of the rule */
};
/* A rule about what else is being sent: told of each item once, before the first question whether an item of a group
 * may be. With the mutex of the entry: it takes microseconds. NULL: there is none. */
struct sending_rule {
    int (*sent)(void *arg, uint64_t hash, uint64_t group); /* 0 or ERR_NOMEM */
    bool (*hides)(void *arg, uint64_t group);
    void *arg;
};
enum sending_taken sending_take(struct sending *q, uint64_t hash, uint64_t group, const struct sending_rule *rule);

/* The end of the question, which is freed; without an answer, or with one: *record then is to be told what became of
 * it, once. NULL: nothing was taken. */
void sending_end(struct sending *q); /* NULL is allowed */
struct sent_record *sending_record(struct sending *q);
void sent_recorded(struct sent_record *record, bool good); /* which is freed; NULL is allowed */

#endif
