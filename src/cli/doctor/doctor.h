/* `unseen doctor`: what it looks at, and what it has found. A check adds its findings in its own order; none changes
 * anything that stays. */
#ifndef UNSEEN_CLI_DOCTOR_DOCTOR_H
#define UNSEEN_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>

#include "base/buf.h"
#include "cli/lib/options.h"
#include "config/config.h"
#include "net/client.h"

enum finding_state {
    FINDING_GOOD,
    FINDING_NOTE,    /* what could not be looked at, or is only to be known */
    FINDING_WARNING, /* it works, and will not always, or not for all that is configured */
    FINDING_WRONG,   /* serve does not start, takes no plays, or may lose some */
};

enum { FINDINGS_MAX = 96, FINDING_TEXT = 640, FINDING_ADVICE = 320 };

struct finding {
    enum finding_state state;
    const char *about;
    char text[FINDING_TEXT];
    char advice[FINDING_ADVICE]; /* what to do; "" */
};

struct doctor {
    const char *config_path;            /* NULL: no file */
    const struct config *cfg;           /* as serve would run with it */
    struct client *client;              /* of the server that has the folder; NULL: none runs, or it can't be asked */
    bool served;                        /* a server has the folder, or listens where a node would */
    struct buf info;                    /* what that server answers to INFO */
    struct finding found[FINDINGS_MAX]; /* more are dropped, of which the last says */
    int n;
};

/* Adds one. advice: what to do about it; NULL: nothing. */
void doctor_finds(struct doctor *d, enum finding_state state, const char *about, const char *advice, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));

/* The value of a line of the server's INFO; false: it has none. */
bool doctor_info(const struct doctor *d, const char *name, char *out, size_t size);

/* The checks. doctor_server() comes first: what others look at depends on whether the folder is served. */
void doctor_server(struct doctor *d); /* connects, and asks it what is wrong */
void doctor_clock(struct doctor *d);
void doctor_memory(struct doctor *d);
void doctor_files(struct doctor *d);
void doctor_folder(struct doctor *d); /* its file system, room, owners, and how long a sync takes */
void doctor_ports(struct doctor *d);
void doctor_secrets(struct doctor *d); /* certificate and files with passwords */
void doctor_modules(struct doctor *d);

/* Writes all of it into a new file, which holds no id of a user or item and no secret. */
int doctor_bundle(const struct doctor *d, const char *path, struct err *err);

struct json;
void doctor_json(const struct doctor *d, struct json *j); /* "findings", as a member of the open object */

#endif
