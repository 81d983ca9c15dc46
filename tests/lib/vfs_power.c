#include "tests/lib/vfs_power.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/random.h"

enum {
    SECTOR = 512,
    PAGE = 4096,
    PATH_SIZE = 512,
    WRITE_MAX = 64 * 1024 /* SQLite's own VFS takes less than 128 KiB at once */
};

struct power_file {
    struct power_file *next;
    char path[PATH_SIZE];
    uint8_t *data; /* as readers see it */
    size_t size, room;
    uint8_t *changed; /* a byte a sector: not synced */
    size_t sectors;
    size_t durable_size;
    bool entry_durable; /* the directory knows it, whatever happens */
    bool journal;
    bool removed; /* but the removal isn't durable: it may come back as `old` */
    uint8_t *old; /* what was durable when it was removed */
    size_t old_size;
    bool old_kept;
};

static pthread_mutex_t power_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct power_file *files;
static bool power_on, power_lies, power_drops;
static uint64_t random_state;

static uint64_t draw(void)
{
    return random_next(&random_state);
}

static bool chance(unsigned percent)
{
    return draw() % 100 < percent;
}

static void out_of_memory(void)
{
    fputs("vfs_power: out of memory\n", stderr);
    abort();
}

void vfs_power_start(uint64_t seed, bool lying)
{
    pthread_mutex_lock(&power_mutex);
    random_state = seed;
    power_on = true;
    power_lies = lying;
    pthread_mutex_unlock(&power_mutex);
}

void vfs_power_drops(void)
{
    pthread_mutex_lock(&power_mutex);
    power_drops = true;
    pthread_mutex_unlock(&power_mutex);
}

bool vfs_power_on(void)
{
    pthread_mutex_lock(&power_mutex);
    bool on = power_on;
    pthread_mutex_unlock(&power_mutex);
    return on;
}

static struct power_file *find(const char *path)
{
    for (struct power_file *f = files; f; f = f->next) {
        if (strcmp(f->path, path) == 0) {
            return f;
        }
    }
    return NULL;
}

static void make_room(struct power_file *f, size_t size)
{
    if (size > f->room) {
        size_t room = size * 2;
        uint8_t *data = realloc(f->data, room);
        if (!data) {
            out_of_memory();
        }
        memset(data + f->room, 0, room - f->room);
        f->data = data;
        f->room = room;
    }
    size_t sectors = (size + SECTOR - 1) / SECTOR;
    if (sectors > f->sectors) {
        uint8_t *changed = realloc(f->changed, sectors * 2);
        if (!changed) {
            out_of_memory();
        }
        memset(changed + f->sectors, 0, sectors * 2 - f->sectors);
        f->changed = changed;
        f->sectors = sectors * 2;
    }
}

static size_t read_whole(const char *path, uint8_t **out)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    off_t end = lseek(fd, 0, SEEK_END);
    size_t size = end > 0 ? (size_t)end : 0;
    *out = malloc(size + 1);
    if (!*out) {
        out_of_memory();
    }
    for (size_t at = 0; at < size;) {
        ssize_t n = pread(fd, *out + at, size - at, (off_t)at);
        if (n <= 0) {
            fprintf(stderr, "vfs_power: can't read %s\n", path);
            abort();
        }
        at += (size_t)n;
    }
    close(fd);
    return size;
}

struct power_file *power_open(const char *path, sqlite3_file *real, bool created, bool journal)
{
    (void)real;
    pthread_mutex_lock(&power_mutex);
    struct power_file *f = find(path);
    if (!f) {
        f = calloc(1, sizeof *f);
        if (!f || strlen(path) >= sizeof f->path) {
            out_of_memory();
        }
        strcpy(f->path, path);
        f->next = files;
        files = f;
        uint8_t *data;
        size_t size = read_whole(path, &data);
        make_room(f, size > 0 ? size : SECTOR); /* so that there is memory at all times */
        if (size > 0) {
            memcpy(f->data, data, size);
        }
        free(data);
        f->size = f->durable_size = size;
        f->entry_durable = !created;
    }
    f->removed = false;
    f->journal = journal;
    pthread_mutex_unlock(&power_mutex);
    return f;
}

int power_read(struct power_file *f, void *out, int n, sqlite3_int64 at)
{
    pthread_mutex_lock(&power_mutex);
    size_t from = (size_t)at, want = (size_t)n;
    size_t have = from >= f->size ? 0 : f->size - from;
    size_t take = have < want ? have : want;
    if (take > 0) {
        memcpy(out, f->data + from, take);
    }
    pthread_mutex_unlock(&power_mutex);
    if (take < want) {
        memset((uint8_t *)out + take, 0, want - take);
        return SQLITE_IOERR_SHORT_READ;
    }
    return SQLITE_OK;
}

int power_write(struct power_file *f, const void *bytes, int n, sqlite3_int64 at)
{
    pthread_mutex_lock(&power_mutex);
    size_t from = (size_t)at, to = from + (size_t)n;
    make_room(f, to > f->size ? to : f->size);
    if (from > f->size) {
        memset(f->data + f->size, 0, from - f->size);
        memset(f->changed + f->size / SECTOR, 1, from / SECTOR - f->size / SECTOR);
    }
    memcpy(f->data + from, bytes, (size_t)n);
    for (size_t s = from / SECTOR; s * SECTOR < to; s++) {
        f->changed[s] = 1;
    }
    if (to > f->size) {
        f->size = to;
    }
    pthread_mutex_unlock(&power_mutex);
    return SQLITE_OK;
}

int power_truncate(struct power_file *f, sqlite3_int64 size)
{
    pthread_mutex_lock(&power_mutex);
    size_t to = (size_t)size;
    make_room(f, to);
    if (to < f->size) {
        memset(f->data + to, 0, f->size - to);
    } else if (to > f->size) {
        memset(f->changed + f->size / SECTOR, 1, (to + SECTOR - 1) / SECTOR - f->size / SECTOR);
    }
    f->size = to;
    pthread_mutex_unlock(&power_mutex);
    return SQLITE_OK;
}

/* The directory of `path` is on the device as it is now: what was created stays, what was removed stays away. */
static void sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    for (struct power_file *f = files; f; f = f->next) {
        if (strncmp(f->path, path, folder) != 0 || strchr(f->path + folder, '/')) {
            continue;
        }
        f->entry_durable = !f->removed;
        free(f->old);
        f->old = NULL;
        f->old_kept = false;
    }
}

int power_sync(struct power_file *f, sqlite3_file *real)
{
    int rc = SQLITE_OK;
    pthread_mutex_lock(&power_mutex);
    if (power_lies) {
        goto out;
    }
    if (f->size < f->durable_size) {
        rc = real->pMethods->xTruncate(real, (sqlite3_int64)f->size);
    }
    for (size_t s = 0; s * SECTOR < f->size && rc == SQLITE_OK;) {
        size_t first = s;
        while (s * SECTOR < f->size && f->changed[s] && (s - first) * SECTOR < WRITE_MAX) {
            f->changed[s++] = 0;
        }
        size_t from = first * SECTOR, to = s * SECTOR < f->size ? s * SECTOR : f->size;
        if (s > first) {
            rc = real->pMethods->xWrite(real, f->data + from, (int)(to - from), (sqlite3_int64)from);
        } else {
            s++;
        }
    }
    memset(f->changed, 0, f->sectors);
    f->durable_size = f->size;
    if (f->journal && !f->entry_durable) {
        sync_directory_of(f->path);
    }
out:
    pthread_mutex_unlock(&power_mutex);
    return rc;
}

static bool page_changed(const struct power_file *f, size_t page)
{
    bool changed = false;
    for (size_t s = page * PAGE / SECTOR; s < (page + 1) * PAGE / SECTOR && s < f->sectors; s++) {
        changed = changed || f->changed[s];
    }
    return changed;
}

/* Some of the changed pages are read anew when they are wanted next: what the device has, or zeros behind its end. */
static void drop_pages(struct power_file *f)
{
    uint8_t *durable;
    size_t durable_size = read_whole(f->path, &durable);
    for (size_t page = 0; page * PAGE < f->size; page++) {
        if (!page_changed(f, page) || chance(50)) {
            continue;
        }
        size_t from = page * PAGE, to = from + PAGE < f->size ? from + PAGE : f->size;
        for (size_t at = from; at < to; at++) {
            f->data[at] = at < durable_size ? durable[at] : 0;
        }
    }
    free(durable);
}

void power_sync_failed(struct power_file *f)
{
    pthread_mutex_lock(&power_mutex);
    if (power_drops) {
        drop_pages(f);
    }
    memset(f->changed, 0, f->sectors);
    pthread_mutex_unlock(&power_mutex);
}

sqlite3_int64 power_size(struct power_file *f)
{
    pthread_mutex_lock(&power_mutex);
    sqlite3_int64 size = (sqlite3_int64)f->size;
    pthread_mutex_unlock(&power_mutex);
    return size;
}

bool power_exists(const char *path)
{
    pthread_mutex_lock(&power_mutex);
    const struct power_file *f = find(path);
    bool exists = f && !f->removed && f->size > 0;
    pthread_mutex_unlock(&power_mutex);
    return exists;
}

void power_keep(const char *path)
{
    pthread_mutex_lock(&power_mutex);
    struct power_file *f = find(path);
    if (f && f->entry_durable && !f->old_kept) {
        f->old_size = read_whole(path, &f->old);
        f->old_kept = true;
    }
    pthread_mutex_unlock(&power_mutex);
}

void power_delete(const char *path, bool sync_directory)
{
    pthread_mutex_lock(&power_mutex);
    struct power_file *f = find(path);
    if (f) {
        f->removed = true;
        f->entry_durable = false;
        f->size = f->durable_size = 0;
        if (f->room > 0) {
            memset(f->data, 0, f->room);
            memset(f->changed, 0, f->sectors);
        }
    }
    if (sync_directory && !power_lies) {
        sync_directory_of(path);
    }
    pthread_mutex_unlock(&power_mutex);
}

static void put_file(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t at = 0;
    while (fd >= 0 && at < size) {
        ssize_t n = write(fd, data + at, size - at);
        if (n <= 0) {
            break;
        }
        at += (size_t)n;
    }
    if (fd < 0 || at < size || close(fd) < 0) {
        fprintf(stderr, "vfs_power: can't write %s\n", path);
        abort();
    }
}

/* How a file that was written to and not synced comes out of a cut. */
static void tear(const struct power_file *f)
{
    static const unsigned survivals[] = {0, 10, 50, 90, 100};
    unsigned survival = survivals[draw() % 5];
    bool new_end = chance(50), garbage = chance(50);
    uint8_t *durable;
    size_t durable_size = read_whole(f->path, &durable);
    size_t most = f->size > durable_size ? f->size : durable_size;
    uint8_t *image = calloc(1, most + SECTOR);
    if (!image) {
        out_of_memory();
    }
    if (durable_size > 0) {
        memcpy(image, durable, durable_size);
    }
    size_t end = new_end ? f->size : durable_size;
    for (size_t s = 0; s * SECTOR < f->size; s++) {
        size_t from = s * SECTOR;
        size_t len = f->size - from < SECTOR ? f->size - from : SECTOR;
        if (!f->changed[s]) {
            continue;
        }
        if (chance(survival)) {
            if (chance(5)) {
                len = (size_t)draw() % len; /* torn in the middle */
            }
            memcpy(image + from, f->data + from, len);
            if (from + len > end) {
                end = from + len;
            }
        } else if (garbage && from >= durable_size) {
            for (size_t i = 0; i < len; i++) {
                image[from + i] = (uint8_t)draw(); /* a block that never held anything of ours */
            }
        }
    }
    put_file(f->path, image, end);
    free(durable);
    free(image);
}

void vfs_power_cut(void)
{
    pthread_mutex_lock(&power_mutex); /* never unlocked: nobody writes or acknowledges any more */
    for (struct power_file *f = files; f; f = f->next) {
        bool back = f->old_kept && chance(50);
        if (f->removed || (!f->entry_durable && chance(50))) {
            unlink(f->path);
            if (back) {
                put_file(f->path, f->old, f->old_size);
            }
        } else {
            tear(f);
        }
    }
}
