/* What DEBUG SETTLE asks, with a test clock: whether a node has anything left to do. Each task (task.h) that runs
 * stands in a list here. Without a test clock nothing does, and nothing is counted.
 *
 * A task is idle in task_wait(), task_rest() and task_wait_real(), as long as it was not woken and the owned clock has
 * not come to its time; and in task_park(), as long as nothing has come. It is not in task_pause_real(),
 * task_rest_real() and task_await(), which end by themselves with more to do, nor anywhere else.
 */
#ifndef UNSEEN_BASE_SETTLE_H
#define UNSEEN_BASE_SETTLE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/task.h"

/* task.c's: before the thread begins, and the thread itself at its end; and when a task goes on because it was woken,
 * or a time of the owned clock has come. */
void settle_enter(struct task *t);
void settle_leave(struct task *t);
void settle_count(void);

/* Whether the node rests: busy gets the names of those tasks that are not idle, a blank between two. acts: how often
 * tasks have gone on. due_us: the next time of clock_mono_us() that an idle task waits for; INT64_MAX: there is none.
 * ERR_NOMEM when there is no memory for busy. Any thread that holds no mutex of a task. */
struct settle {
    uint64_t acts;
    int64_t due_us;
};
int settle_look(struct settle *out, struct buf *busy);

#endif
