/* Files as a device sees them: what was written is not there until it was synced.
 *
 * Each file is held whole in memory, as its readers see it; the real file has what is durable. A sync copies the
 * changed sectors. At a cut every sector that was changed since the last sync is written, dropped or torn by a seeded
 * draw, each for itself, so that any order of writing back is possible; the end of the file moves or doesn't; a file
 * whose directory entry was never synced may be gone, and one whose removal wasn't may be back.
 *
 * When a sync fails, the kernel takes the changed pages for clean: readers go on to see them, and no later sync writes
 * them. So it is here. And since they are clean, the kernel may drop them whenever it wants memory: then readers see
 * what the device has (vfs_power_drops()).
 *
 * As SQLite asks for it on unix, a directory is synced with the first sync of a journal or WAL that was created in it,
 * and by a removal that says so.
 */
#ifndef UNSEEN_TESTS_VFS_POWER_H
#define UNSEEN_TESTS_VFS_POWER_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct power_file;

/* From here on files are held back. With `lying` a sync says yes and does nothing: what a disk without power
 * protection does, and what synchronous=OFF amounts to. */
void vfs_power_start(uint64_t seed, bool lying);
bool vfs_power_on(void);

/* From here on a sync that fails has the kernel drop some of the pages, by a draw: at once. */
void vfs_power_drops(void);

/* Leaves on disk what the device holds. The process must end at once: nothing of its view is true any more. */
void vfs_power_cut(void);

/* What the VFS calls; `real` is the system's file, open on the same path. */
struct power_file *power_open(const char *path, sqlite3_file *real, bool created, bool journal);
int power_read(struct power_file *f, void *out, int n, sqlite3_int64 at);
int power_write(struct power_file *f, const void *bytes, int n, sqlite3_int64 at);
int power_truncate(struct power_file *f, sqlite3_int64 size);
int power_sync(struct power_file *f, sqlite3_file *real);
void power_sync_failed(struct power_file *f); /* what it was for is lost; nobody need see it before a cut */
sqlite3_int64 power_size(struct power_file *f);
void power_delete(const char *path, bool sync_directory); /* after the real file was removed; see power_keep */
void power_keep(const char *path);                        /* before that */
bool power_exists(const char *path);                      /* held, and not empty */

#endif
