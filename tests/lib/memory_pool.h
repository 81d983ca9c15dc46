/* A pool in memory, for tests of the engine on RADOS: the rules of src/store/rados/cluster.h as an OSD keeps them, with
 * 1,024 keys a page, guards, atomic operations, versions that rise over a removal, and what goes wrong, on demand. Many
 * nodes may be connected to one pool. One thread of the pool carries out what was begun, one operation after another,
 * in an order that a test may have drawn.
 */
#ifndef UNSEEN_TESTS_MEMORY_POOL_H
#define UNSEEN_TESTS_MEMORY_POOL_H

#include "store/rados/cluster.h"

struct memory_pool;

/* Connects to the pool whose name the options say. */
extern const struct cluster_ops memory_pool_ops;

struct memory_pool *memory_pool_new(const char *name);
void memory_pool_free(struct memory_pool *p); /* nobody is connected any more */

/* From now on the next operation is drawn from all that may be carried out next, instead of the oldest. 0: the oldest.
 */
void memory_pool_shuffle(struct memory_pool *p, uint64_t seed);

/* --- what goes wrong --- */

enum {
    MEMORY_POOL_READS = 1,
    MEMORY_POOL_WRITES = 2,
    MEMORY_POOL_LOCKS = 4,
    MEMORY_POOL_UNLOCKS = 8,
    MEMORY_POOL_LISTS = 16, /* on no object: a list that is begun, or goes on */
};

/* Of operations of these kinds on objects whose names begin so, the nth from now on (1: the next) ends with `result`.
 * carried_out: a write, a lock, or its end, is carried out all the same. A lock with CLUSTER_DIFFERS is another's. */
struct memory_pool_fault {
    unsigned kinds;
    const char *object; /* "": any */
    unsigned nth;
    enum cluster_result result;
    bool carried_out;
    bool every; /* and all behind it */
};
void memory_pool_fault(struct memory_pool *p, const struct memory_pool_fault *fault); /* NULL: none any more */
unsigned memory_pool_faults(struct memory_pool *p); /* how many operations have ended so, of all faults */

/* Operations of these kinds wait, as for a frozen OSD; 0: go on. `late` ends those that wait with CLUSTER_LATE. */
void memory_pool_hold(struct memory_pool *p, unsigned kinds);
void memory_pool_wait_held(struct memory_pool *p, unsigned n); /* until so many wait */
unsigned memory_pool_held(struct memory_pool *p);              /* how many do */
void memory_pool_late(struct memory_pool *p);

/* Blocklists who is connected now: all they have under way, and will have, is CLUSTER_FENCED. */
void memory_pool_fence(struct memory_pool *p);
/* Whether what this thread allocates now is the pool's own, and not its caller's: no such allocation may fail. */
bool memory_pool_allocates(void);

/* Writes wait, but for those that must be done or ask for an answer; false: go on. */
void memory_pool_full(struct memory_pool *p, bool full);
void memory_pool_remove(struct memory_pool *p); /* the pool: everything is CLUSTER_NO_POOL */

/* --- what is there --- */

/* A key's value, copied into out (at most size - 1 bytes, ended by 0); its length, or -1: no such object or key. */
int memory_pool_value(struct memory_pool *p, const char *object, const char *key, char *out, size_t size);
/* How many keys of the object begin so; -1: there is no such object. */
int memory_pool_count(struct memory_pool *p, const char *object, const char *prefix);
size_t memory_pool_objects(struct memory_pool *p);
/* Puts a key there, or several at once, as no node of ours would have. */
void memory_pool_put(struct memory_pool *p, const char *object, const char *key, struct slice value);
void memory_pool_put_pairs(struct memory_pool *p, const char *object, const struct cluster_pair *pairs, size_t n);
void memory_pool_take(struct memory_pool *p, const char *object, const char *key); /* a key; both if they are there */
void memory_pool_drop(struct memory_pool *p, const char *object);                  /* if it is there */
/* Operations that were carried out so far. */
uint64_t memory_pool_operations(struct memory_pool *p, unsigned kinds);

#endif
