/* A delivery with a group in a row of a file, staged or of the feed: it is of a kind of its own, and its item has the
 * group's hash in front, as a signed number of GROUPED_TEXT characters. So rows without groups are as they ever were,
 * and SQL finds both parts by their place. */
#ifndef UNSEEN_STORE_GROUPED_H
#define UNSEEN_STORE_GROUPED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum { GROUPED_KIND = 9, GROUPED_TEXT = 20, GROUPED_MAX = GROUPED_TEXT + 255 };

/* group: not 0; item: 1 to 255 bytes. */
struct slice grouped_write(uint64_t group, struct slice item, char out[GROUPED_MAX]);

/* False: it is none. The item points into the text. */
bool grouped_read(struct slice text, struct slice *item, uint64_t *group);

#endif
