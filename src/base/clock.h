/* The clocks. Nothing but clock.c asks the system for time. There are three, and the name of each says what it is for:
 *
 * - Owned: clock_wall_ms() (unix, may jump), clock_mono_ms() and clock_mono_us() (from an arbitrary start). What
 *   decides goes by it: a deadline, a retry, an age, how long a connection has been idle. A test owns it: after
 *   clock_test_start() it stands still until it is advanced.
 * - Figures: clock_figures_us(), clock_figures_ns(). What is measured goes by it: for a log line, a metric, a bench. It
 *   decides nothing, so that it is real time with a test clock, too.
 * - Work: clock_work_us(). How long a slice of work has taken, and so when it ends. With a test clock each look takes a
 *   microsecond: how far a slice comes does not depend on how fast the machine is.
 *
 * What waits for something outside that has no test clock (a peer, a disk) decides by real time in a test, too:
 * clock_real_us(), and the waits called "real". scripts/clocks lists who uses which clock but the owned one, and why,
 * of the real ones; scripts/check-layers holds the sources to it. The list only shrinks.
 *
 * All functions may be called from any thread.
 */
#ifndef UNSEEN_BASE_CLOCK_H
#define UNSEEN_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* --- owned --- */

int64_t clock_wall_ms(void);
int64_t clock_mono_ms(void); /* counts on while the machine sleeps, so that waking up is no jump of the wall clock */
int64_t clock_mono_us(void); /* the same clock */

/* When this program was built: a clock that says less is wrong. 0 with a test clock. */
int64_t clock_built_ms(void);

/* Both clocks at one moment, also while another thread moves a test clock. */
void clock_both_ms(int64_t *wall, int64_t *mono);

/* Waits on cond until it is signalled, or clock_mono_us() is mono_us. May wake early, and does so in each second with a
 * test clock, so that the thread can beat. clock_test_advance() wakes it. */
void clock_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t mono_us);

/* --- figures, work --- */

int64_t clock_figures_us(void); /* CLOCK_MONOTONIC: stands still while the machine sleeps */
int64_t clock_figures_ns(void);

/* From an arbitrary start of the calling thread: a slice begins and ends in one. */
int64_t clock_work_us(void);

/* --- real --- */

int64_t clock_real_us(void); /* CLOCK_MONOTONIC */

/* Waits on cond until it is signalled, or for real_ms of real time, also with a test clock. May wake early. The wait
 * uses the monotonic clock, whatever clock the cond was made with. */
void clock_cond_wait_real(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_ms);
void clock_cond_wait_real_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_us);

/* --- tests --- */

/* From here on the wall clock stands at unix_ms. Before threads start. */
void clock_test_start(int64_t unix_ms);
bool clock_is_test(void);
void clock_test_advance(int64_t ms); /* both owned clocks; ms >= 0. The caller holds no mutex of who waits for them. */
void clock_test_jump(int64_t ms);    /* the wall clock alone; any sign */
void clock_test_pass(int64_t ms);    /* real time, as clock_real_us() has it, for tests of patience; ms >= 0 */

#endif
