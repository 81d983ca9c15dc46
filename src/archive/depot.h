/* A depot: where objects lie, by names such as "NODE/seg/..." (catalog.h). An object is written once, is there as a
 * whole or not at all, and never changes. A depot belongs to one thread; its calls block. */
#ifndef UNSEEN_ARCHIVE_DEPOT_H
#define UNSEEN_ARCHIVE_DEPOT_H

#include <stdbool.h>
#include <stdint.h>

#include "archive/cipher.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"

struct depot;

enum { DEPOT_NAME_MAX = 160 };

/* Returns 0 to go on; what else it returns ends the list, and is returned. */
typedef int depot_each(void *arg, const char *name, uint64_t bytes, struct err *err);

/* SUSPENDED: what was kept before that stays, and nothing else is. */
enum depot_versions { DEPOT_VERSIONS_NONE, DEPOT_VERSIONS_SUSPENDED, DEPOT_VERSIONS_KEPT };

struct depot_ops {
    /* Returns 0 once it is durable. The same bytes under that name already: 0, too; others: ERR_INVALID. */
    int (*put)(struct depot *d, const char *name, struct slice bytes, struct err *err);
    /* Appends at most `most` bytes of it from its first on; 0: all of them. ERR_NOTFOUND: there is no such object. */
    int (*get)(struct depot *d, const char *name, size_t most, struct buf *out, struct err *err);
    /* All objects whose names begin with that folder ("" or "NODE/"), in no order. */
    int (*list)(struct depot *d, const char *folder, depot_each *each, void *arg, struct err *err);
    /* 0, too, when it isn't there. */
    int (*remove)(struct depot *d, const char *name, struct err *err);
    /* Of a writer that was killed: what is no object below that folder, and never will be one. */
    void (*tidy)(struct depot *d, const char *folder);
    /* Whether what was removed is kept as an older version: enum depot_versions; or it can't be asked. */
    int (*versions)(struct depot *d, struct err *err);
    void (*close)(struct depot *d);
};

struct depot {
    const struct depot_ops *ops;
    const struct cipher_keys *keys; /* of its objects; NULL: none */
};

#define DEPOT_FILE "file://"
#define DEPOT_S3 "s3://"

struct depot_order {
    const char *url;
    const struct config *cfg;       /* of s3: endpoint, region, path_style, keys_file */
    const struct cipher_keys *keys; /* outlive the depot; NULL: none */
    bool writes; /* of file: only where a file in its root says that it was written to, unless it is made */
    bool make;   /* of file: one that isn't there is made, with that file, if the folder above it is there */
    bool (*stops)(void *arg); /* NULL, or whether what is under way is to be given up */
    void *arg;
};

/* 0; or ERR_INVALID: not a URL of a depot, with what is expected; ERR_NOTFOUND, ERR_SYSTEM: it can't be reached. */
int depot_open(const struct depot_order *order, struct depot **d, struct err *err);
void depot_close(struct depot *d); /* NULL is none */

int depot_file_open(const struct depot_order *order, struct depot **d, struct err *err);
int depot_s3_open(const struct depot_order *order, struct depot **d, struct err *err);

#endif
