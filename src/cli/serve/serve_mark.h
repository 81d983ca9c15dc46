/* The mark that a service has had data: a file outside of the data folder, as expect_data names it. A data folder that
 * holds nothing is then no first start, but a mistyped path or a disk that isn't mounted, and is refused. */
#ifndef UNSEEN_CLI_SERVE_SERVE_MARK_H
#define UNSEEN_CLI_SERVE_SERVE_MARK_H

#include <stdbool.h>

#include "base/err.h"
#include "config/config.h"

/* Before the store is opened. 0: the folder holds data, or may be begun: begin_new says that --new was given.
 * ERR_NOTFOUND: it holds none, and should. Nothing is created. */
int serve_mark_check(const struct config *cfg, bool begin_new, struct err *err);

/* Once the store is open: makes the mark, or has it name this folder. */
int serve_mark_leave(const struct config *cfg, struct err *err);

#endif
