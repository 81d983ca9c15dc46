/* `unseen import --follow`: a pipe without end, or a file that grows, into a server, for as long as it takes.
 *
 * What was read is sent in groups, each at most IMPORT_SUBMIT_MS after its first byte, and kept until the server has
 * acknowledged it. So a server may be away: it is waited for, and the group is sent again, which changes nothing where
 * it had arrived. How far a file was acknowledged is kept in a state file (follow_file.h). SIGTERM and SIGINT end it:
 * whole lines that were read are still sent; a second signal ends the process.
 */
#ifndef UNSEEN_CLI_IMPORT_FOLLOW_H
#define UNSEEN_CLI_IMPORT_FOLLOW_H

#include "cli/import/import_impl.h"

/* Opens im->remote, however long that takes. 0; ERR_INVALID: it is no use to try again; ERR_CLOSED: a signal came. */
int follow_connect(struct import *im, int64_t *retention, struct err *err);

/* im->remote is open. Returns 0 at the end of a pipe or after a signal, when all is acknowledged; else an error. */
int follow(struct import *im, const char *path, struct err *err);

#endif
