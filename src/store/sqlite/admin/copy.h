/* What another folder is made of, page by page (store/copy.h). */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_COPY_H
#define UNSEEN_STORE_SQLITE_ADMIN_COPY_H

#include "store/copy.h"

struct sqlite_store;

extern const struct store_copy_ops sqlite_copy_ops;

void copy_adopt(struct sqlite_store *s, struct store_message *m); /* the stager's */

#endif
