#ifndef UNSEEN_NET_PASSWORD_H
#define UNSEEN_NET_PASSWORD_H

#include <stdbool.h>

#include "base/slice.h"

/* Takes the same time wherever the first difference is, and whatever the length. */
bool password_right(const char *want, struct slice given);

#endif
