/* Heartbeats: every long-lived thread says regularly that it is not stuck.
 *
 *     struct heartbeat beat;
 *     heartbeat_begin(&beat, "stager");                      the thread itself, when it starts
 *     while (...) { heartbeat_wait(&beat, ...), or heartbeat_now(&beat); one step of work }
 *     heartbeat_end(&beat);                                  the thread itself, when it ends
 *
 * A heartbeat is due each second, also while there is nothing to do, and between any two steps of long work. Real time
 * counts, even with a test clock. All heartbeats of the process are in one list, so that a caller finds late threads
 * without knowing which exist. The thread gets the name of its heartbeat, as `ps -L` and `top -H` show it.
 */
#ifndef UNSEEN_BASE_HEARTBEAT_H
#define UNSEEN_BASE_HEARTBEAT_H

#include <pthread.h>
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
/* Begins a wait that may be long and that a restart would not shorten: for a thread with a heartbeat of its own, or for
 * a name server. Until its next heartbeat_now() the thread does not count as silent. */
void heartbeat_excuse(struct heartbeat *b);
void heartbeat_end(struct heartbeat *b);

/* Waits on cond until it is signalled, until clock_mono_us() is until_us (INT64_MAX: for ever), or for a
 * second; then beats. May wake early. */
void heartbeat_wait(struct heartbeat *b, pthread_cond_t *cond, pthread_mutex_t *held, int64_t until_us);

/* The watcher calls it each second. Time in which the whole process stood still (SIGSTOP, a machine that slept or was
 * moved) then counts for no thread. One thread. */
void heartbeat_watch(int64_t now_us); /* clock_real_us() */

/* How long the most silent thread has been silent, in ms; 0 when there is none. name (if not NULL) is set to its name,
 * or to "". Any thread. */
int64_t heartbeat_oldest_ms(char name[HEARTBEAT_NAME]);

/* How long that thread has been silent, in ms; 0 before it has begun. Any thread. */
int64_t heartbeat_silent_ms(const struct heartbeat *b);

/* All heartbeats, in no order, and how long each has been silent. Returns how many, at most max. Any thread. */
struct heartbeat_age {
    char name[HEARTBEAT_NAME];
    int64_t silent_ms;
};
int heartbeat_ages(struct heartbeat_age *out, int max);

/* For tests: the thread of this name sleeps for that time at its next heartbeat, or its end, as if it were stuck; 0:
 * one that sleeps goes on. False: there is none. Any thread. */
bool heartbeat_stall(const char *name, int64_t ms);

#endif
