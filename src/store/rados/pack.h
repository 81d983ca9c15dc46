/* A user's object, as it was read, packed as a snapshot (store/codec/user_snapshot.h). */
#ifndef UNSEEN_STORE_RADOS_PACK_H
#define UNSEEN_STORE_RADOS_PACK_H

#include "store/rados/gathered.h"
#include "store/rados/walk.h"

struct packer {
    struct rados_store *s;
    void (*damaged)(void *arg, const char *what); /* what can't be read, and is marked in the snapshot */
    void *arg;
    struct arena arena;
    struct delivered_codec codec;
};

/* Appends it to out: 1; 0: there is nothing of the user, not even a tombstone; ERR_NOMEM; ERR_CORRUPT: no snapshot can
 * be made of it. */
int pack_user(struct packer *p, int64_t key, struct slice user, const struct walked *object, struct buf *out,
              struct err *err);
/* The same of what was gathered of a user, without forgets. */
int pack_gathered(struct packer *p, int64_t key, struct slice user, const struct gathered *g, struct buf *out,
                  struct err *err);
void packer_free(struct packer *p);

#endif
