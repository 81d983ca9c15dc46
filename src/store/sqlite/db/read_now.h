/* Reading a file of SQLite's only as far as it is in memory, and what became of it.
 *
 * Between read_now_begin() and read_now_end() a thread's reads of files don't wait for the disk: one that would have to
 * fails, SQLite ends its statement with an I/O error, and `missed` tells that from a disk that failed. What was read
 * until then stays in SQLite's cache, and the connection is as good as before. With `may_wait` they wait, and only
 * `failed` and `unsupported` are found out.
 *
 * It is done where SQLite calls pread(): there is preadv2(RWF_NOWAIT), which fails instead of waiting. But it begins to
 * read what it doesn't find, which waits where the disk's queue is full, as it is once the disk is frozen. So with
 * `look_first` each page is looked for by cachestat(), which begins nothing.
 *
 * Not all file systems can do that: tmpfs can't. Then reads wait, and `unsupported` says so. SQLite's memory map
 * (mmap_size) must be off, since its page faults can't be asked. The wal-index (-shm) is such a map by its nature; it
 * is read and written all the time, so its few pages stay in memory.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_READ_NOW_H
#define UNSEEN_STORE_SQLITE_DB_READ_NOW_H

#include <stdbool.h>

struct read_now {
    bool may_wait;
    bool look_first;  /* begins no read of the disk, where the kernel (6.5) can tell */
    bool missed;      /* something was not in memory */
    bool failed;      /* the disk failed (EIO), which SQLite takes for a file that is damaged */
    bool unsupported; /* stays set: the files of one reader are in one folder */
};

/* Puts itself below SQLite's own VFS, of the whole process. Once, after sqlite3_initialize(). */
void read_now_install(void);

/* Of the calling thread, until the end; r stays the caller's. missed and failed are reset. */
void read_now_begin(struct read_now *r);
void read_now_end(void);

/* Whether the calling thread's reads don't wait; a VFS of its own (of a test) asks, and says so when it would have to.
 */
bool read_now_wanted(void);
void read_now_miss(void);

/* Whether the thread's last read failed for that, which is no news to a log. */
bool read_now_missed(void);

#endif
