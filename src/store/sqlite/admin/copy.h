/* What another folder is made of, page by page (store/copy.h). */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_COPY_H
#define UNSEEN_STORE_SQLITE_ADMIN_COPY_H

#include "store/copy.h"

struct sqlite_store;

extern const struct store_copy_ops sqlite_copy_ops;

struct store_reader;
int copy_user(struct store_reader *reader, struct slice user, struct buf *out, struct err *err);

/* copy_whole.c */
int copy_whole(struct store_reader *reader, struct slice user, struct buf *out, uint64_t *as_of, struct err *err);

void copy_adopt(struct sqlite_store *s, struct store_message *m); /* the stager's */

#endif
