/* Beats: every thread that lives as long as the server says again and again that it is not stuck.
 *
 *     struct heartbeat beat;
 *     heartbeat_begin(&beat, "stager");                      the thread itself, when it starts
 *     while (...) { wait at most HEARTBEAT_EVERY_MS; heartbeat_now(&beat); one step of work }
 *     heartbeat_end(&beat);                                  the thread itself, when it ends
 *
 * A beat is due each second, also while there is nothing to do, and between any two steps of long work. Real time
 * counts, whatever a test's clock says. All beats of the process are in one list, so that whoever asks who is late
 * need not know what threads there are. The thread gets the name of its beat, as `ps -L` and `top -H` show it.
 */
#ifndef UNSEEN_BASE_HEARTBEAT_H
#define UNSEEN_BASE_HEARTBEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { HEARTBEAT_NAME = 16, HEARTBEAT_EVERY_MS = 1000 };

struct heartbeat {
    char name[HEARTBEAT_NAME];
    struct heartbeat *next;
    _Atomic int64_t at_us;
    _Atomic int64_t stall_ms; /* heartbeat_stall() */
};

void heartbeat_begin(struct heartbeat *b, const char *name); /* cut at HEARTBEAT_NAME - 1 bytes */
void heartbeat_now(struct heartbeat *b);
/* It waits for something that a restart would not speed up, and that may last: a thread that has a heartbeat itself, a
 * name server. Until its next heartbeat_now() it is not silent. */
void heartbeat_excuse(struct heartbeat *b);
void heartbeat_end(struct heartbeat *b);

/* Whoever watches the beats calls it each second. So a time in which the whole process stood still (SIGSTOP, a machine
 * that was put to sleep or moved) is no silence of any thread: what nobody could watch does not count. One thread. */
void heartbeat_watch(int64_t now_us); /* clock_stopwatch_us() */

/* For how long the one that has been silent for longest has been so, in ms; 0 when there is none. name (if it is not
 * NULL) is set to that one's, "" when there is none. Any thread. */
int64_t heartbeat_oldest_ms(char name[HEARTBEAT_NAME]);

/* All beats, in no order, and for how long each has been silent. Returns how many, at most max. Any thread. */
struct heartbeat_age {
    char name[HEARTBEAT_NAME];
    int64_t silent_ms;
};
int heartbeat_ages(struct heartbeat_age *out, int max);

/* For tests: the thread of this name sleeps at its next beat for so long, as if it were stuck. False: there is none.
 * Any thread. */
bool heartbeat_stall(const char *name, int64_t ms);

#endif
