/* How many bytes the filter of a user's month takes. */
#ifndef UNSEEN_CLI_LIB_USER_SIZE_H
#define UNSEEN_CLI_LIB_USER_SIZE_H

#include <stdint.h>

#include "base/err.h"

enum { USER_SIZE_PLAYS_MAX = 1000 * 1000 };

/* Makes months of `plays` plays (1 to USER_SIZE_PLAYS_MAX) as flushes do, and seals them: the bytes of a blob on
 * average, live and sealed. 0 or ERR_NOMEM. */
int user_size(uint32_t plays, double error_rate, int64_t window, double *live, double *sealed, struct err *err);

#endif
