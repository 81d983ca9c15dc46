/* Patterns as in Redis: * any text, ? any byte, [a-c] and [^a-c] one of some, \x the byte x. */
#ifndef UNSEEN_BASE_GLOB_H
#define UNSEEN_BASE_GLOB_H

#include <stdbool.h>

#include "base/slice.h"

/* Whether the pattern matches all of text, ignoring case. It takes at most pattern.len * text.len steps, so that no
 * pattern can make it slow. */
bool glob_fits(struct slice pattern, struct slice text);

#endif
