/* A folder with everything in it that a start has to read, and what must be answered from it: a month half swept, one
 * half sealed, a blob set aside, exceptions (one of which a staged play ends), two users with one key, deliveries, rows
 * in every slot, users who come from another Redis, the mirror's queue, pools, kept sessions. */
#ifndef UNSEEN_TESTS_WHOLE_FOLDER_H
#define UNSEEN_TESTS_WHOLE_FOLDER_H

#include "tests/lib/store_calls.h"

/* What list_pools() says of it. */
#define WHOLE_FOLDER_POOLS "cold=k hot=abcde"

/* A closed store over an empty folder, with such a folder kept aside. */
struct store_fixture *whole_folder_new(const char *name);
void whole_folder_free(struct store_fixture *f);

/* Puts the folder back as it was made, and the clock. The store is closed. */
void whole_folder_restore(struct store_fixture *f);

/* Compares all answers of the open store with what they must be. Returns NULL, or what is wrong. sessions: they are
 * there still, and are taken and kept again. */
const char *whole_folder_wrong(struct store_fixture *f, bool sessions);

#endif
