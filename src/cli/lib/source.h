/* Where user, why, months, clock and backup get their answers: from the data folder itself if no server has it, else
 * from the running server that its lock file names. The answers are the same. A pool of Ceph is opened to be read,
 * beside the nodes that serve it.
 */
#ifndef UNSEEN_CLI_LIB_SOURCE_H
#define UNSEEN_CLI_LIB_SOURCE_H

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "dedup/dedup.h"
#include "store/admin.h"

struct source;

struct source_backup {
    uint64_t bytes, problems;
    int64_t took_ms;
    /* Called from time to time; each phase counts something else in `done`. */
    void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
    void *arg;
};

enum source_clock { SOURCE_CLOCK_LOOK, SOURCE_CLOCK_ACCEPT, SOURCE_CLOCK_SET_BACK };

struct source_ops {
    int (*history)(struct source *s, struct slice user, struct history *out, struct err *err);
    int (*why)(struct source *s, struct slice user, struct slice item, struct place *places, struct err *err);
    int (*months)(struct source *s, struct store_month_info *out, int max, struct err *err);
    int (*clock)(struct source *s, enum source_clock what, struct store_clock *out, struct err *err);
    int (*backup)(struct source *s, const char *folder, struct source_backup *backup, struct err *err);
    void (*close)(struct source *s);
};

struct source {
    const struct source_ops *ops;
};

enum { SOURCE_MONTHS_MAX = 1200, SOURCE_POLL_MS = 200 };

/* With `to`, connects to the server there. With NULL, takes the folder's lock and opens the store (recovering what is
 * staged), or connects to the server that has it. cfg must outlive the source. ERR_NOTFOUND: there is no data in the
 * folder; nothing is created. With store = rados: opens the pool, of which clock and backup have nothing: ERR_ABSENT.
 */
int source_open(const struct config *cfg, const char *to, struct source **source, struct err *err);

/* As asker_history(), asker_why() and asker_months(), but a remote source doesn't tell the month of a staged place, and
 * may find an item in the old Redis (PLACE_LEGACY), which a folder alone can't. */
int source_history(struct source *s, struct slice user, struct history *out, struct err *err);
int source_why(struct source *s, struct slice user, struct slice item, struct place places[PLACES_MAX],
               struct err *err);
int source_months(struct source *s, struct store_month_info *out, int max, struct err *err);
/* What is believed of the clock, after the change. */
int source_clock(struct source *s, enum source_clock what, struct store_clock *out, struct err *err);
/* Copies the store into a folder, by its whole path, on the machine that has the data. */
int source_backup(struct source *s, const char *folder, struct source_backup *backup, struct err *err);
void source_close(struct source *s);

/* The two kinds. */
int source_direct(const struct config *cfg, struct source **source, struct err *err);
int source_remote(const char *address, const char *password, struct source **source, struct err *err);

#endif
