/* A load, as a test wants it: it waits for the answer, if that comes later. */
#ifndef UNSEEN_TESTS_LOAD_WAIT_H
#define UNSEEN_TESTS_LOAD_WAIT_H

#include "store/store.h"

int store_load_wait(struct store *s, struct store_reader *reader, int64_t key, struct slice user, int first_month,
                    struct store_view *view, struct err *err);

#endif
