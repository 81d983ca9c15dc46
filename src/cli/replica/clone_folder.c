#include "cli/replica/clone_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "replica/clone_mark.h"
#include "store/admin.h"
#include "store/positions.h"
#include "store/stats.h"

/* No month, nothing staged, nothing forgotten, as far as can be told. */
static int is_empty(struct store *store, bool *empty, struct err *err)
{
    struct store_stats stats;
    struct store_reader *reader;
    struct store_month_info month;
    store->ops->stats(store, &stats);
    *empty = stats.staged_rows == 0 && stats.tombstones == 0;
    if (!*empty) {
        return 0;
    }
    int rc = store->ops->reader_open(store, &reader, err);
    if (rc == 0) {
        rc = store->admin->months(reader, &month, 1, err);
        *empty = rc == 0;
        store->ops->reader_close(reader);
    }
    return rc < 0 ? rc : 0;
}

int clone_folder_look(struct store *store, const char *folder, enum clone_found *found, struct store_node *node,
                      struct err *err)
{
    char name[CLONE_MARK_TEXT];
    int64_t next;
    bool empty;
    store->node->get(store, node);
    int rc = is_empty(store, &empty, err);
    if (rc < 0) {
        return err_prefix(err, "can't tell what is in %s", folder);
    }
    if (node->role == NODE_FENCED) {
        return err_set(err, ERR_INVALID,
                       "the data folder %s was a primary's, and may have what no other has: unseen rejoin brings that "
                       "over first",
                       folder);
    }
    if (node->role == NODE_PRIMARY && !empty) {
        return err_set(err, ERR_INVALID,
                       "the data folder %s is that of a primary: a clone needs a new folder, or that of a replica",
                       folder);
    }
    bool marked = node->role == NODE_REPLICA &&
                  store->positions->find(store, slice_str(clone_mark_name(node->leader, name)), &next) == 1;
    *found = marked && next == INT64_MIN && !empty ? CLONE_OLD
             : marked && next != CLONE_MARK_ENDED  ? CLONE_BEGUN
             : empty && !marked                    ? CLONE_EMPTY
                                                   : CLONE_REPLICA;
    return 0;
}

static bool of_database(const char *name)
{
    return strncmp(name, "history.db", 10) == 0 || strncmp(name, "staging.db", 10) == 0;
}

static int system_error(struct err *err, const char *what, const char *path)
{
    return err_set(err, errno == ENOSPC ? ERR_FULL : ERR_SYSTEM, "%s %s: %s", what, path, strerror(errno));
}

int clone_folder_empty(const char *folder, struct err *err)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return errno == ENOENT ? 0 : system_error(err, "can't read the folder", folder);
    }
    int rc = 0;
    for (struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        if (of_database(e->d_name) && unlinkat(dirfd(dir), e->d_name, 0) < 0 && errno != ENOENT) {
            rc = system_error(err, "can't delete a file of", folder);
        }
    }
    closedir(dir);
    return rc;
}

void clone_folder_room(const char *folder, uint64_t *has, uint64_t *room)
{
    struct statvfs fs;
    struct stat st;
    *has = 0;
    *room = statvfs(folder, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        if (of_database(e->d_name) && fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            *has += (uint64_t)st.st_size;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Moves what isn't the database, and isn't there already: accounts, certificates. */
static int take_along(const char *from, const char *to, struct err *err)
{
    DIR *dir = opendir(from);
    if (dir == NULL) {
        return system_error(err, "can't read the folder", from);
    }
    char target[PATH_MAX];
    int rc = 0;
    for (struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || of_database(e->d_name) ||
            snprintf(target, sizeof target, "%s/%s", to, e->d_name) >= (int)sizeof target ||
            access(target, F_OK) == 0) {
            continue;
        }
        if (renameat(dirfd(dir), e->d_name, AT_FDCWD, target) < 0) {
            rc = system_error(err, "can't make", target);
        }
    }
    closedir(dir);
    return rc;
}

int clone_folder_swap(const char *folder, const char *made, struct err *err)
{
    if (renameat2(AT_FDCWD, made, AT_FDCWD, folder, RENAME_EXCHANGE) < 0) {
        return system_error(err, "can't exchange the old folder for", made);
    }
    int rc = folder_sync_name(folder, err);
    if (rc == 0) {
        rc = take_along(made, folder, err); /* made is now the old one */
    }
    if (rc == 0) {
        rc = clone_folder_empty(made, err);
    }
    if (rc < 0) {
        return err_prefix(err, "%s is the new one, and the old one, now %s, is left to be deleted", folder, made);
    }
    char lock[PATH_MAX];
    if (snprintf(lock, sizeof lock, "%s/lock", made) < (int)sizeof lock) {
        unlink(lock);
    }
    rmdir(made);
    return folder_sync_name(folder, err);
}
