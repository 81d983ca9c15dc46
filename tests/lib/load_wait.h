/* What is asked, as a test wants it: in one call, which waits for the answer if that comes later. */
#ifndef UNSEEN_TESTS_LOAD_WAIT_H
#define UNSEEN_TESTS_LOAD_WAIT_H

#include "dedup/dedup.h"
#include "store/store.h"

int store_load_wait(struct store *s, struct store_reader *reader, int64_t key, struct slice user, int first_month,
                    struct store_view *view, struct err *err);

/* The view of a load that was answered; returns its err.code. */
int store_load_view(struct store *s, struct store_reader *reader, struct store_load *load);

/* QUERY_FILTER by asker_ask(). */
int asker_filter(struct asker *a, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                 size_t *n_unseen, struct err *err);

#endif
