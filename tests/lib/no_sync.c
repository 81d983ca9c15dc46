/* Of a test's process, SQLite in it, no sync reaches the device: a test outlives no loss of power, its pages stay in
 * the kernel however it ends, and beside other programs on one disk a sync takes longer than all else that most tests
 * do. What a loss of power takes, tests/lib/vfs_power.c plays. A sync that would be refused is refused.
 *
 * Programs that are linked with -u fsync,fdatasync get these instead of the C library's, and so do the libraries that
 * they load. No bench is. Weak: a test may define its own. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sync_of(int fd, long number)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -1;
    }
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? 0 : (int)syscall(number, fd);
}

__attribute__((weak)) int fsync(int fd)
{
    return sync_of(fd, SYS_fsync);
}

__attribute__((weak)) int fdatasync(int fd)
{
    return sync_of(fd, SYS_fdatasync);
}
