/* Commands in the protocol's form. */
#ifndef UNSEEN_LEGACY_REDIS_WORDS_H
#define UNSEEN_LEGACY_REDIS_WORDS_H

#include "base/buf.h"
#include "base/slice.h"

/* Appends "*n\r\n", and "$len\r\nbytes\r\n". */
void redis_words_count(struct buf *out, size_t n);
void redis_words_add(struct buf *out, struct slice word);

/* A whole command. */
void redis_words_all(struct buf *out, const struct slice *words, size_t n);

#endif
