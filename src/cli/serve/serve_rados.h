/* What doesn't go with store = rados. */
#ifndef UNSEEN_CLI_SERVE_SERVE_RADOS_H
#define UNSEEN_CLI_SERVE_SERVE_RADOS_H

#include "config/config.h"

/* 0; or ERR_INVALID, naming the option and what stands instead: nothing that is set is passed over silently. */
int serve_rados_check(const struct config *cfg, struct err *err);

#endif
