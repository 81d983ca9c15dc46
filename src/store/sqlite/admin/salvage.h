/* The parts of sqlite_salvage_folder(): each takes what can be read of one file into a new one. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_SALVAGE_H
#define UNSEEN_STORE_SQLITE_ADMIN_SALVAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/sqlite/db/db.h"

struct salvage {
    struct db from, to; /* of the file in hand */
    uint64_t seed;
    bool seed_known;
    int64_t high_water, flushes, settled; /* what history.db says */
    bool has_history;
    int losses; /* told */
    void (*did)(void *arg, const char *what);
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t rows;
};

void salvage_tell(struct salvage *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts a row as it is into the new file. */
int salvage_put(struct salvage *s, sqlite3_stmt *put, sqlite3_stmt *row, struct err *err);

/* Opens a damaged file for reading, without changing it. 1; 0: nothing of it can be read, which was reported. */
int salvage_open(struct salvage *s, const char *folder, const char *name, struct err *err);

/* More rows than any table of the file can have: pages that form a circle give rows without end. */
uint64_t salvage_rows_max(struct salvage *s);

/* The rows of a table with any key, from the front and then from the back. */
int salvage_copy(struct salvage *s, const char *table, const char *columns, struct err *err);

int salvage_history(struct salvage *s, struct err *err);
int salvage_staging(struct salvage *s, struct err *err);

#endif
