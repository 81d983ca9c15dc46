/* A new password: asked for twice on the terminal, which doesn't show it, or the one line of standard input. */
#ifndef UNSEEN_CLI_ACCOUNT_PASSWORD_INPUT_H
#define UNSEEN_CLI_ACCOUNT_PASSWORD_INPUT_H

#include <stdbool.h>

#include "base/err.h"
#include "service/account.h"

enum { PASSWORD_TEXT = ACCOUNT_PASSWORD_MAX + 1 };

/* ERR_INVALID (empty, too long, not the same twice ...), ERR_SYSTEM (there is no terminal), ERR_IO. */
int password_input(const char *account, bool from_stdin, char out[PASSWORD_TEXT], struct err *err);

#endif
