/* The file of `unseen export`, written and read as a stream; docs/format.md describes it. It contains the seed.
 *
 * A file is a head, blocks of users (snapshots, store/codec/user_snapshot.h) in the order of their keys, and an end
 * with counts. Each block's checksum includes the one before, so a file that is damaged, cut off, or put together from
 * two is not read to its end.
 */
#ifndef UNSEEN_CLI_TRANSFER_EXPORT_FILE_H
#define UNSEEN_CLI_TRANSFER_EXPORT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct export_head {
    char program[32]; /* its version */
    uint64_t seed;
    int64_t created_ms;
    uint64_t retention, window, delivered_max; /* as they were configured there; for people */
    double error_rate;
    uint64_t shard, shards; /* which users were wanted: by slot ... */
    uint64_t range, ranges; /* ... and by key; 0 of 1: all */
};

struct export_counts {
    uint64_t users, months, plays, deliveries, exceptions, damaged; /* plays: staged; deliveries: users who have some */
    /* Which the file's end doesn't tell: */
    uint64_t migration_state; /* users of whom more stands in another Redis */
    uint64_t forgotten;       /* items, of users who are still there */
};

struct json;
void export_counts_json(struct json *j, const struct export_counts *counts); /* as members of the open object */

/* --- writing --- */

/* Takes all bytes, or fails. */
typedef int export_put(void *arg, const void *bytes, size_t len, struct err *err);

struct export_writer;
int export_writer_new(export_put *put, void *arg, const struct export_head *head, struct export_writer **writer,
                      struct err *err);
int export_writer_add(struct export_writer *w, struct slice snapshot, struct err *err);
/* The file is whole only after this. */
int export_writer_end(struct export_writer *w, struct export_counts *counts, struct err *err);
void export_writer_free(struct export_writer *w);

/* --- reading --- */

/* Reads up to size bytes; *n == 0: the end. */
typedef int export_get(void *arg, void *bytes, size_t size, size_t *n, struct err *err);

struct export_reader;
/* Reads the head. ERR_INVALID: no export; ERR_VERSION; ERR_CORRUPT; ERR_NOMEM; or what get returned. */
int export_reader_new(export_get *get, void *arg, struct export_head *head, struct export_reader **reader,
                      struct err *err);
/* 1: a snapshot, checked, hashed with the head's seed, and valid until the next call; 0: the end, complete, with its
 * counts; or an error as above, after which nothing more may be read. */
int export_reader_next(struct export_reader *r, struct slice *snapshot, struct export_counts *counts, struct err *err);
void export_reader_free(struct export_reader *r);

#endif
