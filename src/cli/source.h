/* Where user, why and months get their answers: the data folder itself when nobody serves it, else the running server
 * that its lock file names. The answers are the same.
 */
#ifndef UNSEEN_CLI_SOURCE_H
#define UNSEEN_CLI_SOURCE_H

#include "base/err.h"
#include "base/slice.h"
#include "config/config.h"
#include "dedup/dedup.h"

struct source;

struct source_ops {
    int (*history)(struct source *s, struct slice user, struct history *out, struct err *err);
    int (*why)(struct source *s, struct slice user, struct slice item, struct place *places, struct err *err);
    int (*months)(struct source *s, struct store_month_info *out, int max, struct err *err);
    void (*close)(struct source *s);
};

struct source {
    const struct source_ops *ops;
};

enum { SOURCE_MONTHS_MAX = 1200 };

/* Takes the folder's lock and opens the store (recovering what is staged), or connects to the server that has it. cfg
 * must outlive the source. ERR_NOTFOUND: there is no data in the folder; nothing is created. */
int source_open(const struct config *cfg, struct source **source, struct err *err);

/* As asker_history(), asker_why() and asker_months(), but a remote source doesn't tell in_window, and not the month
 * of a staged place. */
int source_history(struct source *s, struct slice user, struct history *out, struct err *err);
int source_why(struct source *s, struct slice user, struct slice item, struct place places[PLACES_MAX],
               struct err *err);
int source_months(struct source *s, struct store_month_info *out, int max, struct err *err);
void source_close(struct source *s);

/* The two kinds. */
int source_direct(const struct config *cfg, struct source **source, struct err *err);
int source_remote(const char *address, const char *password, struct source **source, struct err *err);

#endif
