/* What the parts of `unseen migrate` share. */
#ifndef UNSEEN_CLI_MIGRATE_MIGRATE_H
#define UNSEEN_CLI_MIGRATE_MIGRATE_H

#include <stdbool.h>

#include "base/err.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/lib/server.h"
#include "config/config.h"
#include "legacy/parse.h"
#include "legacy/redis.h"
#include "net/client.h"

enum { MIGRATE_QUOTED = 64 };

struct migrate {
    struct config cfg; /* with the server's [legacy], but for the password */
    struct client *client;
    struct redis *redis; /* of --scan and --verify */
    struct progress progress;
    bool json, quiet, forgotten;
    uint64_t doubtful;                   /* keys of one user's plays or another's deliveries: skipped */
    char first_doubtful[MIGRATE_QUOTED]; /* how the first begins */
};

/* LEGACY NAME [ARGUMENT] ("": none). */
int migrate_command(struct migrate *m, const char *name, const char *argument, const struct reply **reply,
                    struct err *err);

/* Prints its progress; watch: until no user is waiting. */
int migrate_status(struct migrate *m, bool watch, struct err *err);

/* Asks the server to note the users of a file ("-": standard input), or of all keys in the old Redis; prints how many
 * there were of each kind. */
int migrate_keys(struct migrate *m, const char *path, struct err *err);
int migrate_scan(struct migrate *m, struct err *err);

/* Visits all keys of plays or of deliveries in the old Redis. each() gets the user's id; a result other than 0 ends it.
 * Ambiguous keys are skipped, and counted with the plays. */
int migrate_each_key(struct migrate *m, enum legacy_key kind,
                     int (*each)(void *arg, struct slice user, struct err *err), void *arg, struct err *err);

/* Compares the plays of `users` users (0: all) with SEEN and prints what is missing. Returns 1 when something is. */
int migrate_verify(struct migrate *m, uint64_t users, struct err *err);

#endif
