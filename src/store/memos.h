/* The capability `memos`: a few small values that belong to a folder and outlive a restart, such as the lines that the
 * page draws. Without it they end with the server. They are its node's: no feed, export or clone has them. */
#ifndef UNSEEN_STORE_MEMOS_H
#define UNSEEN_STORE_MEMOS_H

#include "base/buf.h"
#include "store/store.h"

enum { STORE_MEMO_MAX = 1 << 20 }; /* bytes of a value */

struct store_memo {
    struct store_call
        call; /* first. err: ERR_FULL, ERR_IO, ERR_NOMEM, ERR_CLOSED: this value is kept, or the one before */
    const char *name;
    struct slice value; /* the caller's until done(), as the name is */
};

struct store_memos_ops {
    /* Keeps the value in place of the one of that name; done() once it is durable. */
    void (*keep)(struct store *s, struct store_memo *memo);

    /* Appends the value that is kept; nothing if none is, or one longer than STORE_MEMO_MAX. Blocks for one read.
     * ERR_IO, ERR_NOMEM. */
    int (*read)(struct store_reader *reader, const char *name, struct buf *value, struct err *err);
};

#endif
