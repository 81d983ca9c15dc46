/* Whether the cluster has room.
 *
 * A cluster that is full (mon_osd_full_ratio) answers no plain write: it holds it back. A write may ask for an answer
 * instead, but then only one that makes an object is refused: keys of an object don't count as room. Plays of users who
 * are there would go on, beyond osd_failsafe_full_ratio, too, until the OSDs find no block for their database and end
 * themselves, all of them at once. So writes that need room are plain; and when one is not answered within a second, a
 * probe that asks for an answer tells why: an object that is made, and removed. As long as it says full, writes that
 * need room are refused at once, and those under way are given up.
 */
#ifndef UNSEEN_STORE_RADOS_FULLNESS_H
#define UNSEEN_STORE_RADOS_FULLNESS_H

#include <stdbool.h>

#include "base/err.h"

struct rados_store;
struct update;

int fullness_init(struct rados_store *s); /* ERR_NOMEM */
void fullness_destroy(struct rados_store *s);

/* Begins the update's write, which needs room, and knows of it until fullness_written(), the first thing of its done().
 * ERR_NOMEM: it was not begun. */
int fullness_write(struct update *u);
void fullness_written(struct update *u);

/* The store's thread calls it at least once a second. */
void fullness_look(struct rados_store *s);

bool fullness_known(struct rados_store *s); /* that there is no room */
/* ERR_FULL, with err set; 0. */
int fullness_refusal(struct rados_store *s, struct err *err);

#endif
