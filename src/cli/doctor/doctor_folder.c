#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/lib/data_folder.h"
#include "cli/lib/output.h"

enum {
    SYNCS = 9,
    SYNC_BYTES = 4096,
    SYNC_SLOW_US = 20 * 1000, /* a disk that turns; or one that others keep busy */
    FILES_FEW = 100,          /* that the file system has room for */
};

/* Not in linux/magic.h of all releases. */
enum { CIFS = 0xff534d42, SMB2 = 0xfe534d42, CEPH = 0x00c36400, FUSE = 0x65735546, ZFS = 0x2fc12fc1 };

struct file_system {
    uint32_t magic;
    const char *name;
    const char *problem; /* NULL: none */
    const char *advice;
};

#define NETWORK                                                                                                        \
    "its memory is not shared between processes as SQLite's write-ahead log needs it, and its locks may not hold"
#define LOCAL "put the data folder on a local disk"

static const struct file_system file_systems[] = {
    {NFS_SUPER_MAGIC, "NFS", NETWORK, LOCAL},
    {SMB_SUPER_MAGIC, "SMB", NETWORK, LOCAL},
    {CIFS, "CIFS", NETWORK, LOCAL},
    {SMB2, "SMB", NETWORK, LOCAL},
    {CEPH, "CephFS", NETWORK, "put the data folder on a local disk; for a pool of Ceph there is store = rados"},
    {V9FS_MAGIC, "9p", NETWORK, LOCAL},
    {AFS_SUPER_MAGIC, "AFS", NETWORK, LOCAL},
    {FUSE, "FUSE", "whether what it has synced is on a disk depends on the program behind it", LOCAL},
    {TMPFS_MAGIC, "tmpfs", "it is memory: at the next boot all is gone", LOCAL},
    {RAMFS_MAGIC, "ramfs", "it is memory: at the next boot all is gone", LOCAL},
    {OVERLAYFS_SUPER_MAGIC, "overlay", "it is the layer of a container: with the container all is gone",
     "mount a volume at the data folder"},
    {EXT4_SUPER_MAGIC, "ext4", NULL, NULL},
    {XFS_SUPER_MAGIC, "XFS", NULL, NULL},
    {BTRFS_SUPER_MAGIC, "btrfs", NULL, NULL},
    {ZFS, "ZFS", NULL, NULL},
    {0, NULL, NULL, NULL},
};

static void find_file_system(struct doctor *d, const char *path)
{
    struct statfs fs;
    if (statfs(path, &fs) < 0) {
        doctor_finds(d, FINDING_NOTE, "file system", NULL, "of %s: %s", path, strerror(errno));
        return;
    }
    const struct file_system *f = file_systems;
    while (f->name != NULL && f->magic != (uint32_t)fs.f_type) {
        f++;
    }
    if (f->problem != NULL) {
        doctor_finds(d, FINDING_WARNING, "file system", f->advice, "%s is on %s: %s", path, f->name, f->problem);
    } else if (f->name != NULL) {
        doctor_finds(d, FINDING_GOOD, "file system", NULL, "%s is on %s", path, f->name);
    } else {
        doctor_finds(d, FINDING_NOTE, "file system", NULL, "%s is on one of type %#" PRIx32 ", which is not known here",
                     path, (uint32_t)fs.f_type);
    }
}

static void find_room(struct doctor *d, const char *path)
{
    struct statvfs fs;
    char free_text[OUTPUT_TEXT], least[OUTPUT_TEXT];
    if (statvfs(path, &fs) < 0) {
        return; /* statfs() has told */
    }
    uint64_t free = (uint64_t)fs.f_bavail * fs.f_frsize;
    size_text(free, free_text);
    size_text((uint64_t)d->cfg->min_free, least);
    if ((fs.f_flag & ST_RDONLY) != 0) {
        doctor_finds(d, FINDING_WRONG, "room", "mount it to be written", "%s is mounted to be read only", path);
    } else if (free < (uint64_t)d->cfg->min_free) {
        doctor_finds(d, FINDING_WRONG, "room", "make room, or lower min_free",
                     "%s is free, and below min_free = %s no plays are taken", free_text, least);
    } else if (fs.f_files != 0 && fs.f_favail < FILES_FEW) {
        doctor_finds(d, FINDING_WRONG, "room", "remove some: df -i",
                     "the file system has room for %" PRIu64 " more files", (uint64_t)fs.f_favail);
    } else {
        doctor_finds(d, FINDING_GOOD, "room", NULL, "%s is free, min_free is %s", free_text, least);
    }
}

static int compare_us(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* What each commit waits for at least: an append to a file, and its sync. The file has no name, so that nothing is left
 * behind, whatever happens. */
static void find_sync(struct doctor *d, const char *path)
{
    char block[SYNC_BYTES] = {0};
    int64_t us[SYNCS];
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        if (errno != EACCES && errno != EROFS) { /* of these others tell */
            doctor_finds(d, FINDING_NOTE, "disk", NULL, "how long it takes to sync can't be measured: %s",
                         strerror(errno));
        }
        return;
    }
    int error = 0;
    for (int i = 0; i < SYNCS && error == 0; i++) {
        int64_t begin = clock_figures_us();
        ssize_t n = write(fd, block, sizeof block);
        error = n == SYNC_BYTES && fdatasync(fd) == 0 ? 0 : n >= 0 && n < SYNC_BYTES ? ENOSPC : errno;
        us[i] = clock_figures_us() - begin;
    }
    close(fd);
    if (error != 0) {
        doctor_finds(d, FINDING_WRONG, "disk", NULL, "a file in %s can't be written and synced: %s", path,
                     strerror(error));
        return;
    }
    qsort(us, SYNCS, sizeof *us, compare_us);
    bool slow = us[SYNCS / 2] > SYNC_SLOW_US;
    doctor_finds(d, slow ? FINDING_WARNING : FINDING_GOOD, "disk",
                 slow ? "a disk without moving parts, or with less beside it, commits sooner" : NULL,
                 "a sync takes %.2f ms (median of %d)", (double)us[SYNCS / 2] / 1000, SYNCS);
}

static const char *user_name(uid_t uid, char out[32])
{
    char text[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, text, sizeof text, &found) == 0 && found != NULL) {
        snprintf(out, 32, "%s", entry.pw_name);
    } else {
        snprintf(out, 32, "user %ld", (long)uid);
    }
    return out;
}

/* What a command made that root ran, in the folder of another user, the service can't open. */
static void find_owners(struct doctor *d, const char *path, const struct stat *folder)
{
    DIR *dir = opendir(path);
    int foreign = 0;
    char first[NAME_MAX + 1] = "", name[32], owner[32], advice[64];
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_uid != folder->st_uid && foreign++ == 0) {
            snprintf(first, sizeof first, "%s", e->d_name);
            user_name(st.st_uid, name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (foreign > 0) {
        snprintf(advice, sizeof advice, "chown -R %s the folder", user_name(folder->st_uid, owner));
        doctor_finds(d, FINDING_WRONG, "owners", advice, "%s/%s belongs to %s, and the folder to %s%s", path, first,
                     name, owner, foreign > 1 ? "; others, too" : "");
    }
}

/* The folder above, which exists. */
static void nearest_folder(const char *path, char out[PATH_MAX])
{
    char copy[PATH_MAX];
    snprintf(out, PATH_MAX, "%s", path);
    while (access(out, F_OK) < 0 && errno == ENOENT && strcmp(out, "/") != 0 && strcmp(out, ".") != 0) {
        snprintf(copy, sizeof copy, "%s", out);
        snprintf(out, PATH_MAX, "%s", dirname(copy));
    }
}

static void find_access(struct doctor *d, const char *path, bool exists)
{
    struct stat st;
    char who[32], owner[32];
    user_name(geteuid(), who);
    if (stat(path, &st) < 0) {
        doctor_finds(d, FINDING_WRONG, "folder", NULL, "%s: %s", path, strerror(errno));
    } else if (!S_ISDIR(st.st_mode)) {
        doctor_finds(d, FINDING_WRONG, "folder", "name a folder with --data", "%s is no folder", path);
    } else if (access(path, R_OK | W_OK | X_OK) < 0 && errno != EROFS) {
        doctor_finds(d, FINDING_WRONG, "folder", "run this as the user of the service, or give it the folder: chown",
                     "%s belongs to %s, and %s may not write there", path, user_name(st.st_uid, owner), who);
    } else if (!exists) {
        doctor_finds(d, FINDING_GOOD, "folder", NULL, "%s does not exist, and serve makes it", d->cfg->data);
    } else {
        doctor_finds(d, FINDING_GOOD, "folder", NULL, "%s belongs to %s", path, user_name(st.st_uid, owner));
        find_owners(d, path, &st);
        if ((st.st_mode & 0007) != 0) {
            doctor_finds(d, FINDING_WARNING, "folder", "chmod o= it, unless that is meant",
                         "every user of the machine may look into %s", path);
        }
    }
}

void doctor_folder(struct doctor *d)
{
    char nearest[PATH_MAX];
    struct err err;
    if (cli_options_has_folder(d->cfg, &err) < 0) {
        doctor_finds(d, FINDING_NOTE, "folder", NULL, "%s", err.text);
        return;
    }
    nearest_folder(d->cfg->data, nearest);
    find_access(d, nearest, strcmp(nearest, d->cfg->data) == 0);
    if (data_folder_check(d->cfg, "serve", false, &err) < 0) {
        doctor_finds(d, FINDING_WRONG, "folder", NULL, "%s", err.text);
    }
    find_file_system(d, nearest);
    find_room(d, nearest);
    find_sync(d, nearest);
}
