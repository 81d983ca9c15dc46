#include "tests/lib/vfs_fault.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite/db/read_now.h"
#include "tests/lib/vfs_power.h"

enum { RULES_MAX = 16, FILE_NAME = 64 };

struct fault_file {
    sqlite3_file base;
    struct power_file *power; /* NULL: straight to the real file */
    char name[FILE_NAME];     /* without the folder; "" for a temporary file, which no rule meets */
    sqlite3_file real[];
};

static sqlite3_vfs *system_vfs;
static pthread_mutex_t rules_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rules_changed = PTHREAD_COND_INITIALIZER;
static struct {
    struct vfs_rule rule;
    char file[FILE_NAME];
    uint64_t hits;
    bool released;
} rules[RULES_MAX];
static int n_rules;
static bool frozen, released;
static _Atomic bool skip_sleeps;
static int held;

int vfs_fault_add(const struct vfs_rule *rule)
{
    pthread_mutex_lock(&rules_mutex);
    if (n_rules == RULES_MAX || strlen(rule->file) >= FILE_NAME) {
        fputs("vfs_fault: too many rules, or too long a name\n", stderr);
        abort();
    }
    int number = n_rules++;
    rules[number].rule = *rule;
    strcpy(rules[number].file, rule->file);
    rules[number].hits = 0;
    rules[number].released = false;
    released = false;
    pthread_mutex_unlock(&rules_mutex);
    return number;
}

uint64_t vfs_fault_hits(int rule)
{
    pthread_mutex_lock(&rules_mutex);
    uint64_t hits = rules[rule].hits;
    pthread_mutex_unlock(&rules_mutex);
    return hits;
}

void vfs_fault_heal(void)
{
    pthread_mutex_lock(&rules_mutex);
    n_rules = 0;
    frozen = false;
    skip_sleeps = false;
    released = true;
    pthread_cond_broadcast(&rules_changed);
    pthread_mutex_unlock(&rules_mutex);
}

void vfs_fault_wait_held(void)
{
    pthread_mutex_lock(&rules_mutex);
    while (held == 0) {
        pthread_cond_wait(&rules_changed, &rules_mutex);
    }
    pthread_mutex_unlock(&rules_mutex);
}

void vfs_fault_release(void)
{
    pthread_mutex_lock(&rules_mutex);
    released = true;
    pthread_cond_broadcast(&rules_changed);
    pthread_mutex_unlock(&rules_mutex);
}

void vfs_fault_release_rule(int rule)
{
    pthread_mutex_lock(&rules_mutex);
    rules[rule].released = true;
    pthread_cond_broadcast(&rules_changed);
    pthread_mutex_unlock(&rules_mutex);
}

void vfs_fault_freeze(bool on)
{
    pthread_mutex_lock(&rules_mutex);
    frozen = on;
    pthread_mutex_unlock(&rules_mutex);
}

void vfs_fault_skip_sleeps(void)
{
    atomic_store(&skip_sleeps, true);
}

static int io_error(unsigned op)
{
    switch (op) {
    case VFS_READ:
        return SQLITE_IOERR_READ;
    case VFS_WRITE:
        return SQLITE_IOERR_WRITE;
    case VFS_SYNC:
        return SQLITE_IOERR_FSYNC;
    case VFS_TRUNCATE:
        return SQLITE_IOERR_TRUNCATE;
    case VFS_DELETE:
        return SQLITE_IOERR_DELETE;
    default:
        return SQLITE_CANTOPEN;
    }
}

/* Called before each operation: what the rules make of it. */
static int enter(unsigned op, const char *name)
{
    if (name[0] == '\0') {
        return SQLITE_OK;
    }
    int rc = SQLITE_OK;
    pthread_mutex_lock(&rules_mutex);
    for (int i = 0; i < n_rules; i++) {
        const struct vfs_rule *rule = &rules[i].rule;
        if (!(rule->ops & op) || strncmp(name, rules[i].file, strlen(rules[i].file)) != 0) {
            continue;
        }
        uint64_t hit = ++rules[i].hits;
        if (hit != rule->nth && !(rule->sticky && hit > rule->nth)) {
            continue;
        }
        switch (rule->action) {
        case VFS_COUNT:
            break;
        case VFS_EIO:
            rc = io_error(op);
            break;
        case VFS_FULL:
            rc = op == VFS_WRITE ? SQLITE_FULL : io_error(op);
            break;
        case VFS_COLD:
            if (read_now_wanted()) {
                read_now_miss();
                rc = io_error(op);
                break;
            }
            /* fall through */
        case VFS_HOLD:
            held++;
            pthread_cond_broadcast(&rules_changed);
            while (!released && !rules[i].released) {
                pthread_cond_wait(&rules_changed, &rules_mutex);
            }
            held--;
            break;
        case VFS_CUT:
            vfs_power_cut();
            _exit(VFS_EXIT_CODE);
        case VFS_EXIT:
            _exit(VFS_EXIT_CODE);
        }
    }
    if (frozen && (op & VFS_CHANGE)) { /* also what was held until the freeze */
        rc = io_error(op);
    }
    pthread_mutex_unlock(&rules_mutex);
    return rc;
}

static struct fault_file *self(sqlite3_file *file)
{
    return (struct fault_file *)file;
}

static int fault_close(sqlite3_file *file)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods ? real->pMethods->xClose(real) : SQLITE_OK;
}

static int fault_read(sqlite3_file *file, void *out, int n, sqlite3_int64 at)
{
    struct fault_file *f = self(file);
    int rc = enter(VFS_READ, f->name);
    if (rc != SQLITE_OK) {
        return rc;
    }
    return f->power ? power_read(f->power, out, n, at) : f->real->pMethods->xRead(f->real, out, n, at);
}

static int fault_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at)
{
    struct fault_file *f = self(file);
    int rc = enter(VFS_WRITE, f->name);
    if (rc != SQLITE_OK) {
        return rc;
    }
    return f->power ? power_write(f->power, bytes, n, at) : f->real->pMethods->xWrite(f->real, bytes, n, at);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct fault_file *f = self(file);
    int rc = enter(VFS_TRUNCATE, f->name);
    if (rc != SQLITE_OK) {
        return rc;
    }
    return f->power ? power_truncate(f->power, size) : f->real->pMethods->xTruncate(f->real, size);
}

static int fault_sync(sqlite3_file *file, int flags)
{
    struct fault_file *f = self(file);
    int rc = enter(VFS_SYNC, f->name);
    if (rc != SQLITE_OK) {
        if (f->power) {
            power_sync_failed(f->power);
        }
        return rc;
    }
    return f->power ? power_sync(f->power, f->real) : f->real->pMethods->xSync(f->real, flags);
}

static int fault_file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct fault_file *f = self(file);
    if (f->power) {
        *size = power_size(f->power);
        return SQLITE_OK;
    }
    return f->real->pMethods->xFileSize(f->real, size);
}

static int fault_lock(sqlite3_file *file, int level)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xLock(real, level);
}

static int fault_unlock(sqlite3_file *file, int level)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xUnlock(real, level);
}

static int fault_check_reserved(sqlite3_file *file, int *out)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xCheckReservedLock(real, out);
}

static int fault_control(sqlite3_file *file, int op, void *arg)
{
    struct fault_file *f = self(file);
    if (f->power && (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE)) {
        return SQLITE_OK; /* the real file's size is the durable one */
    }
    return f->real->pMethods->xFileControl(f->real, op, arg);
}

static int fault_sector_size(sqlite3_file *file)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xSectorSize(real);
}

static int fault_characteristics(sqlite3_file *file)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xDeviceCharacteristics(real);
}

static int fault_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xShmMap(real, page, size, extend, out);
}

static int fault_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xShmLock(real, offset, n, flags);
}

static void fault_shm_barrier(sqlite3_file *file)
{
    sqlite3_file *real = self(file)->real;
    real->pMethods->xShmBarrier(real);
}

static int fault_shm_unmap(sqlite3_file *file, int delete_it)
{
    sqlite3_file *real = self(file)->real;
    return real->pMethods->xShmUnmap(real, delete_it);
}

/* Version 2: no xFetch, so that every read comes through fault_read(). */
static const sqlite3_io_methods fault_methods = {
    .iVersion = 2,
    .xClose = fault_close,
    .xRead = fault_read,
    .xWrite = fault_write,
    .xTruncate = fault_truncate,
    .xSync = fault_sync,
    .xFileSize = fault_file_size,
    .xLock = fault_lock,
    .xUnlock = fault_unlock,
    .xCheckReservedLock = fault_check_reserved,
    .xFileControl = fault_control,
    .xSectorSize = fault_sector_size,
    .xDeviceCharacteristics = fault_characteristics,
    .xShmMap = fault_shm_map,
    .xShmLock = fault_shm_lock,
    .xShmBarrier = fault_shm_barrier,
    .xShmUnmap = fault_shm_unmap,
};

static const char *name_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "";
}

static int fault_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out_flags)
{
    (void)vfs;
    struct fault_file *f = self(file);
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name_of(path));
    int rc = enter(VFS_OPEN, f->name);
    if (rc != SQLITE_OK) {
        return rc;
    }
    bool created = path && access(path, F_OK) != 0;
    rc = system_vfs->xOpen(system_vfs, path, f->real, flags, out_flags);
    if (rc == SQLITE_OK) {
        f->base.pMethods = &fault_methods;
        if (path && vfs_power_on()) {
            bool journal = (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL)) != 0;
            f->power = power_open(path, f->real, created, journal);
        }
    }
    return rc;
}

static int fault_delete(sqlite3_vfs *vfs, const char *path, int sync_directory)
{
    (void)vfs;
    int rc = enter(VFS_DELETE, name_of(path));
    if (rc != SQLITE_OK) {
        return rc;
    }
    if (vfs_power_on()) {
        power_keep(path);
    }
    rc = system_vfs->xDelete(system_vfs, path, sync_directory);
    if (rc == SQLITE_OK && vfs_power_on()) {
        power_delete(path, sync_directory != 0);
    }
    return rc;
}

static int fault_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
    (void)vfs;
    int rc = system_vfs->xAccess(system_vfs, path, flags, out);
    if (rc == SQLITE_OK && flags == SQLITE_ACCESS_EXISTS && vfs_power_on() && power_exists(path)) {
        *out = 1; /* the real file may still be empty, which SQLite takes for missing */
    }
    return rc;
}

static int fault_full_path(sqlite3_vfs *vfs, const char *path, int size, char *out)
{
    (void)vfs;
    return system_vfs->xFullPathname(system_vfs, path, size, out);
}

static int fault_randomness(sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    return system_vfs->xRandomness(system_vfs, n, out);
}

static int fault_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return atomic_load(&skip_sleeps) ? us : system_vfs->xSleep(system_vfs, us);
}

static int fault_time(sqlite3_vfs *vfs, double *out)
{
    (void)vfs;
    return system_vfs->xCurrentTime(system_vfs, out);
}

static int fault_last_error(sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    return system_vfs->xGetLastError(system_vfs, n, out);
}

int vfs_fault_register(void)
{
    static sqlite3_vfs vfs;
    system_vfs = sqlite3_vfs_find(NULL);
    vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = (int)sizeof(struct fault_file) + system_vfs->szOsFile,
        .mxPathname = system_vfs->mxPathname,
        .zName = VFS_FAULT_NAME,
        .xOpen = fault_open,
        .xDelete = fault_delete,
        .xAccess = fault_access,
        .xFullPathname = fault_full_path,
        .xRandomness = fault_randomness,
        .xSleep = fault_sleep,
        .xCurrentTime = fault_time,
        .xGetLastError = fault_last_error,
    };
    return sqlite3_vfs_register(&vfs, 0);
}
