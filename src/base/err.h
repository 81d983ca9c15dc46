/* Errors: one enum, one table of names, one context buffer.
 *
 * A function that can fail returns 0 or a negative code and fills `struct err` with a sentence for people: what, where,
 * what was expected. Programs decide by the code, never by the text.
 */
#ifndef UNSEEN_BASE_ERR_H
#define UNSEEN_BASE_ERR_H

enum {
    ERR_NOMEM = -1,         /* an allocation failed */
    ERR_IO = -2,            /* read, write, fsync or commit failed; the outcome of a write is unknown */
    ERR_FULL = -3,          /* no room: disk full, or less than min_free is left */
    ERR_READONLY = -4,      /* the file or folder can't be written */
    ERR_CORRUPT = -5,       /* stored bytes are damaged */
    ERR_INVALID = -6,       /* the caller's input breaks a rule that the text names */
    ERR_RANGE = -7,         /* a number or time out of its range */
    ERR_BUSY = -8,          /* no progress for too long: staging memory full, or no slot free */
    ERR_LOCKED = -9,        /* another process has the data folder, or what was to be moved */
    ERR_NOTFOUND = -10,     /* no such file, option, command */
    ERR_VERSION = -11,      /* written by a newer version of the program */
    ERR_LOADING = -12,      /* recovery has not ended */
    ERR_CLOSED = -13,       /* the store or the connection is shutting down */
    ERR_SHARED = -14,       /* two users share one 64-bit key, so this can't be done for one of them */
    ERR_SEED = -15,         /* the folder holds plays hashed with another seed */
    ERR_SYSTEM = -16,       /* any other system call */
    ERR_LARGE = -17,        /* the user has too much to be read here: see store_ops.load */
    ERR_LATE = -18,         /* the deadline has passed */
    ERR_ABSENT = -19,       /* this engine of the store has no such capability */
    ERR_NOAUTH = -20,       /* the asker has not logged in */
    ERR_WRONGPASS = -21,    /* the name or the password is wrong */
    ERR_NOPERM = -22,       /* the account may not do this */
    ERR_LOGINS = -23,       /* too many failed logins: the password was not looked at */
    ERR_REPLICA = -24,      /* this node takes no writes: the text says who does */
    ERR_STALE = -25,        /* a replica that has not heard of its primary for too long */
    ERR_ALONE = -26,        /* durable here, but no replica has said that it is there, too */
    ERR_COLD = -27,         /* the answer is on the disk only, and the asker doesn't wait for that */
    ERR_POOL = -28,         /* there is no such pool */
    ERR_POOL_VERSION = -29, /* the pool is not the version that the asker knows */
    ERR_KEY = -30,          /* encrypted with another key, or not as expected */
    ERR_CONFLICT = -31,     /* what is there forbids it, as the text says */
};

struct err {
    int code;
    char text[320];
};

/* Puts code and text into err (which may be NULL) and returns the code. */
int err_set(struct err *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "what: " in front of the text that is there. Returns err->code. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A short constant name for logs and metrics, such as "io" or "full"; "ok" for 0. */
const char *err_name(int code);

#endif
