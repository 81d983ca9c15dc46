/* Patterns as Redis has them: * any text, ? any byte, [a-c] and [^a-c] one of some, \x the byte x. */
#ifndef UNSEEN_BASE_GLOB_H
#define UNSEEN_BASE_GLOB_H

#include <stdbool.h>

#include "base/slice.h"

/* Whether all of text fits, letters of either case alike. It takes at most pattern.len * text.len steps, whatever the
 * pattern: nobody can make it slow. */
bool glob_fits(struct slice pattern, struct slice text);

#endif
