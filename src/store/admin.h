/* The capability `admin`: what an operator does to a store that has months and files: a look at the months, backups of
 * the running service. */
#ifndef UNSEEN_STORE_ADMIN_H
#define UNSEEN_STORE_ADMIN_H

#include "store/store.h"

enum store_month_state { STORE_MONTH_LIVE, STORE_MONTH_SEALING, STORE_MONTH_SEALED, STORE_MONTH_EXPIRING };
const char *store_month_state_name(enum store_month_state state);

struct store_month_info {
    int month;
    enum store_month_state state;
    double progress; /* of the sealing or the sweep, 0..1 */
    uint64_t users;
    uint64_t plays;
    uint64_t bytes; /* of the blobs */
    bool in_window; /* asker_months() sets it: questions look at the month */
    /* Of an engine that finds these figures by walking its users, who are too many to be counted at once: when the
     * oldest of them was found, unix ms, and of which share of the users there are any. 0: all of them are of now. */
    int64_t found_ms;
    double coverage;
};

/* How the names of folders begin that a schedule makes, and deletes again. */
#define STORE_BACKUP_SCHEDULED "scheduled-"

/* A hot backup into a folder, which the caller names until done(). */
struct store_backup {
    const char *folder; /* absolute, or relative to root; doesn't exist, or is empty */
    const char *root;   /* below which it must be, and no link is followed; NULL: the caller may write anywhere */
    struct err err;
    uint64_t bytes;    /* of the copy */
    uint64_t problems; /* that the check found in it, as they are in the store itself */
    int64_t took_ms;
    void (*done)(struct store_backup *backup);
    void *owner;
};

enum store_backup_phase {
    BACKUP_NONE,      /* none is under way */
    BACKUP_PREPARING, /* the folder is looked at */
    BACKUP_STAGING,   /* what is staged is copied ... */
    BACKUP_HISTORY,   /* ... then history ... */
    BACKUP_FINISHING, /* ... then forgets that came meanwhile are carried out in the copy, and it is synced ... */
    BACKUP_CHECKING,  /* ... and read through */
};
const char *store_backup_phase_name(enum store_backup_phase phase); /* "none", "preparing", ... */

/* The backup under way, and the last one that ended since start. */
struct store_backup_state {
    enum store_backup_phase phase;
    uint64_t done, total; /* bytes; while checking, rows */
    int64_t last_ms;      /* when it ended, wall time; 0: none has */
    int64_t last_took_ms;
    uint64_t last_bytes, last_problems;
    int last_code; /* 0, or why it failed */
    char last_error[STORE_ERROR_TEXT];
    char last_folder[STORE_ERROR_TEXT];
};

struct store_admin_ops {
    /* The stored months, newest first; at most max. Returns how many, or an error. */
    int (*months)(struct store_reader *reader, struct store_month_info *out, int max, struct err *err);

    /* Copies the store, while it works, into a folder; done() once the copy is whole, synced and checked, or with
     * the error that ended it, when nothing of it is left. The copy holds every write answered before the call, and
     * nothing of a forget answered before the copy of history ended; of later ones any part. One at a time: ERR_BUSY.
     * ERR_INVALID, ERR_READONLY, ERR_FULL (not enough room, told before anything is copied; or in the middle), ERR_IO,
     * ERR_CORRUPT (the copy can't be read through), ERR_CLOSED. NULL: the engine has no folder. */
    void (*backup)(struct store *s, struct store_backup *backup);
    void (*backup_state)(struct store *s, struct store_backup_state *out);

    /* Before the end: the backup under way is given up and answered, soon; none begins any more. */
    void (*backup_stop)(struct store *s);
};

#endif
