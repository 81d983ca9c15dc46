/* Looks up the name of a machine. The system's resolver can't be interrupted and may take half a minute, so a thread of
 * its own asks it. The caller may leave at any time; the thread then frees the rest when it is done. */
#ifndef UNSEEN_LEGACY_RESOLVE_H
#define UNSEEN_LEGACY_RESOLVE_H

#include "base/err.h"

enum { RESOLVE_TEXT = 64 };

struct resolve;

/* Begins. ERR_BUSY: too many abandoned look-ups are still under way. */
int resolve_begin(const char *host, struct resolve **resolve, struct err *err);

/* Readable once there is an answer. */
int resolve_fd(const struct resolve *r);

/* The answer: a numeric address, IPv4 if there is one. ERR_SYSTEM: there is none, and why. */
int resolve_answer(const struct resolve *r, char address[RESOLVE_TEXT], struct err *err);

/* With or without the answer. NULL is fine. */
void resolve_end(struct resolve *r);

#endif
