/* A replica as the second tier (dedup/tier.h) of the primary that it follows: it is asked by REPLICA ASK, over its
 * RESP, with replica_user and replica_password. Of several the one that has most durable; and the next one, when that
 * doesn't answer or is connected no more.
 */
#ifndef UNSEEN_REPLICA_SECOND_H
#define UNSEEN_REPLICA_SECOND_H

#include "base/err.h"

struct replica;
struct second;
struct tier;

int second_start(struct replica *r, struct second **second, struct err *err);
struct tier *second_tier(struct second *s); /* NULL: NULL */
void second_stop(struct second *s);         /* once no question comes any more */
void second_free(struct second *s);         /* once the loops are gone */

#endif
