/* The clock. Nothing but clock.c asks the system for time.
 *
 * Two clocks: the wall clock (unix ms, may jump) and the monotonic one (ms from an arbitrary start).
 * A test owns both: after clock_test_start() they stand still until they're advanced. All functions
 * may be called from any thread.
 */
#ifndef UNSEEN_BASE_CLOCK_H
#define UNSEEN_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int64_t clock_wall_ms(void);
int64_t clock_mono_ms(void); /* counts on while the machine sleeps, so that waking up is no jump of the wall clock */

/* When this program was built: a clock that says less is wrong. 0 with a test clock. */
int64_t clock_built_ms(void);

/* Both clocks at one moment, also while another thread moves a test clock. */
void clock_both_ms(int64_t *wall, int64_t *mono);

/* Real elapsed microseconds or nanoseconds, for measuring how long work took; not stopped by a test clock. */
int64_t clock_stopwatch_us(void);
int64_t clock_stopwatch_ns(void);

/* From here on the wall clock stands at unix_ms. Before threads start. */
void clock_test_start(int64_t unix_ms);
bool clock_is_test(void);
void clock_test_advance(int64_t ms); /* both clocks; ms >= 0 */
void clock_test_jump(int64_t ms);    /* the wall clock alone; any sign */
void clock_test_pass(int64_t ms);    /* real time, as the stopwatch has it, for tests of patience; ms >= 0 */

/* Waits on cond until it is signalled, or for real_ms of real time, also with a test clock. May wake early. The wait
 * uses the monotonic clock, whatever clock the cond was made with. */
void clock_cond_wait_real(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_ms);
void clock_cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_us);

#endif
