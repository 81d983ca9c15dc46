/* Of a test's process no thread is nicer than the others: the test waits for the historian, or for a copy, and on a
 * busy machine would wait ten times as long for a thread that lets all others go first. */
#include "base/background.h"

int __wrap_background_enter(int nice, int slice_ms);
int __wrap_background_enter(int nice, int slice_ms)
{
    (void)nice;
    (void)slice_ms;
    return 0;
}
