/* A SQLite VFS for tests. It wraps the system's and can fail, hold up or cut off what goes through it.
 *
 * Rules say which operation of which file does what: the n-th write to the staging WAL fails, the third sync of the
 * history file waits until it is released, the next truncation ends the process. Rules may be set by any thread
 * at any time; they count from when they were set.
 *
 * A frozen disk takes nothing any more: every change fails. Closing a store on a frozen disk and opening it again once
 * it is thawed is what a kill at that moment is: the files hold exactly what had been written.
 *
 * For a power cut see vfs_power.h, which this VFS keeps its files in once vfs_power_start() was called.
 */
#ifndef UNSEEN_TESTS_VFS_FAULT_H
#define UNSEEN_TESTS_VFS_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#define VFS_FAULT_NAME "fault"

enum {
    VFS_READ = 1,
    VFS_WRITE = 2,
    VFS_SYNC = 4,
    VFS_TRUNCATE = 8,
    VFS_OPEN = 16,
    VFS_DELETE = 32,
    VFS_CHANGE = VFS_WRITE | VFS_SYNC | VFS_TRUNCATE | VFS_DELETE,
};

enum vfs_action {
    VFS_COUNT, /* nothing but counting */
    VFS_EIO,   /* the operation fails with the I/O error of its kind */
    VFS_FULL,  /* the disk is full */
    VFS_HOLD,  /* the operation waits for vfs_fault_release() */
    VFS_COLD,  /* the same, but a read that may not wait fails, since the page is not in memory (db/read_now.h) */
    VFS_EXIT,  /* the process ends, as by kill -9: what was written before stays */
    VFS_CUT,   /* the power fails, then the process ends; needs vfs_power_start() */
};

enum { VFS_EXIT_CODE = 42 };

struct vfs_rule {
    unsigned ops;     /* VFS_WRITE | ... */
    const char *file; /* what its name begins with: "history" is history.db, its WAL and its journal; "" any file */
    uint64_t nth;     /* from 1 */
    bool sticky;      /* each one from the nth on, or the nth alone */
    enum vfs_action action;
};

int vfs_fault_register(void); /* once; 0 or an SQLite code */

int vfs_fault_add(const struct vfs_rule *rule); /* returns its number; at most 16 */
uint64_t vfs_fault_hits(int rule);              /* how many operations it has matched */
void vfs_fault_heal(void);                      /* forgets all rules, releases and thaws */

/* Blocks until an operation is held. */
void vfs_fault_wait_held(void);
void vfs_fault_release(void);
void vfs_fault_release_rule(int rule); /* what that one holds, or would; others hold on */

void vfs_fault_freeze(bool frozen);

/* Waits for another connection's lock take no time, and give up after as many tries as ever. Until healed. */
void vfs_fault_skip_sleeps(void);

#endif
