/* An archive in a folder, whose disk fails at each step once, or whose machine loses its power there: what was
 * acknowledged is there as a whole after any power cut, what is listed is whole, and the same object put once more goes
 * through. The calls of the C library are counted and fail on demand; what was not synced is taken away at a cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/depot.h"

/* --- a disk that fails, and forgets --- */

enum fault { FAULT_NONE, FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT, FAULT_INTERRUPTED, FAULT_CUT, FAULTS };

static struct disk {
    int step;                 /* calls so far */
    int at;                   /* the call that fails; from there on all do with FAULT_CUT */
    enum fault as;            /* FAULT_SHORT and FAULT_INTERRUPTED: other calls than write() succeed then */
    bool links;               /* the file system has hard links */
    char names[64][PATH_MAX]; /* not durable; "": none */
    ino_t dirty[64];          /* files whose bytes are not durable */
    size_t n_names, n_dirty;
} disk;

static bool fails(bool writes)
{
    int step = disk.step++;
    bool now = disk.as == FAULT_CUT ? step >= disk.at : disk.as != FAULT_NONE && step == disk.at;
    if (!now || ((disk.as == FAULT_SHORT || disk.as == FAULT_INTERRUPTED) && !writes)) {
        return false;
    }
    errno = disk.as == FAULT_ENOSPC ? ENOSPC : disk.as == FAULT_INTERRUPTED ? EINTR : EIO;
    return true;
}

static void add_name(const char *path)
{
    assert_true(disk.n_names < 64);
    snprintf(disk.names[disk.n_names++], PATH_MAX, "%s", path);
}

int __real_mkdir(const char *path, mode_t mode);
int __real_link(const char *from, const char *to);
int __real_rename(const char *from, const char *to);
int __real_fsync(int fd);
int __real_close(int fd);
ssize_t __real_write(int fd, const void *bytes, size_t n);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_link(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);

int __wrap_mkdir(const char *path, mode_t mode)
{
    if (fails(false)) {
        return -1;
    }
    int rc = __real_mkdir(path, mode);
    if (rc == 0) {
        add_name(path);
    }
    return rc;
}

int __wrap_link(const char *from, const char *to)
{
    if (!disk.links) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (fails(false)) {
        return -1;
    }
    int rc = __real_link(from, to);
    if (rc == 0) {
        add_name(to);
    }
    return rc;
}

int __wrap_rename(const char *from, const char *to)
{
    if (fails(false)) {
        return -1;
    }
    int rc = __real_rename(from, to);
    if (rc == 0) {
        add_name(to);
    }
    return rc;
}

/* The path of an open folder, the inode of an open file. */
int __wrap_fsync(int fd)
{
    struct stat st;
    char link[64], path[PATH_MAX] = "";
    if (fails(false)) {
        return -1;
    }
    assert_int_equal(fstat(fd, &st), 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    for (size_t i = 0; i < disk.n_names && S_ISDIR(st.st_mode); i++) {
        const char *slash = strrchr(disk.names[i], '/');
        if (slash != NULL && (size_t)(slash - disk.names[i]) == strlen(path) &&
            strncmp(disk.names[i], path, strlen(path)) == 0) {
            disk.names[i][0] = '\0';
        }
    }
    for (size_t i = 0; i < disk.n_dirty && S_ISREG(st.st_mode); i++) {
        disk.dirty[i] = disk.dirty[i] == st.st_ino ? 0 : disk.dirty[i];
    }
    return __real_fsync(fd);
}

/* A file that can't be closed is closed all the same. */
int __wrap_close(int fd)
{
    bool bad = fails(false);
    int code = errno, rc = __real_close(fd);
    errno = bad ? code : errno;
    return bad ? -1 : rc;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    struct stat st;
    bool bad = fails(true);
    if (bad && disk.as != FAULT_SHORT) {
        return -1;
    }
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(disk.n_dirty < 64);
    disk.dirty[disk.n_dirty++] = st.st_ino;
    return __real_write(fd, bytes, bad ? n / 2 : n);
}

static int remove_any(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static void remove_all(const char *path)
{
    nftw(path, remove_any, 16, FTW_DEPTH | FTW_PHYS);
}

static int forget_bytes(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)where;
    for (size_t i = 0; kind == FTW_F && i < disk.n_dirty; i++) {
        if (disk.dirty[i] == st->st_ino) {
            assert_int_equal(truncate(path, 0), 0);
        }
    }
    return 0;
}

/* The disk as it is after a power cut. A name that was not synced may be there all the same. */
static void lose_power(const char *root, bool names_too)
{
    nftw(root, forget_bytes, 16, FTW_PHYS);
    for (size_t i = disk.n_names; names_too && i > 0; i--) {
        if (disk.names[i - 1][0] != '\0') {
            remove_all(disk.names[i - 1]);
        }
    }
    disk.n_names = disk.n_dirty = 0;
}

/* --- what is expected --- */

static const char *const names[] = {"node/seg/1", "node/base/1/a", "node/base/1/b"};
enum { OBJECTS = sizeof names / sizeof *names };

static struct slice bytes_of(size_t i)
{
    static char text[OBJECTS][96];
    memset(text[i], 'a' + (int)i, sizeof text[i]);
    return slice_of(text[i], sizeof text[i]);
}

static int is_whole(void *arg, const char *name, uint64_t bytes, struct err *err)
{
    (void)err;
    assert_int_equal(bytes, sizeof(char[96]));
    for (size_t i = 0; i < OBJECTS; i++) {
        *(unsigned *)arg |= (unsigned)(strcmp(name, names[i]) == 0) << i;
    }
    return 0;
}

struct place {
    char folder[32], url[64];
    struct depot *d;
};

/* In memory, where there is such a place: thousands of folders are made and removed. */
static void make_place(struct place *p)
{
    *p = (struct place){.folder = "/dev/shm/unseen-depot-XXXXXX"};
    if (mkdtemp(p->folder) == NULL) {
        *p = (struct place){.folder = "/tmp/unseen-depot-XXXXXX"};
        assert_non_null(mkdtemp(p->folder));
    }
    snprintf(p->url, sizeof p->url, "file://%s/archive", p->folder);
}

static int open_it(struct place *p, struct err *err)
{
    const struct depot_order order = {.url = p->url, .writes = true, .make = true};
    return p->d != NULL ? 0 : depot_open(&order, &p->d, err);
}

/* As the writer does: what failed is tried once more, in the order in which it was made. Returns what was acknowledged.
 */
static unsigned write_them(struct place *p, int tries)
{
    unsigned done = 0;
    for (size_t i = 0; i < OBJECTS && tries > 0; tries--) {
        struct err err = {0};
        if (open_it(p, &err) == 0 && p->d->ops->put(p->d, names[i], bytes_of(i), &err) == 0) {
            done |= 1u << i++;
            tries++;
        } else {
            assert_true(err.code < 0 && err.text[0] != '\0' && err.code != ERR_INVALID);
        }
    }
    return done;
}

static void assert_there(struct place *p, unsigned at_least)
{
    unsigned found = 0;
    struct err err;
    disk.as = FAULT_NONE;
    assert_int_equal(open_it(p, &err), 0);
    assert_int_equal(p->d->ops->list(p->d, "", is_whole, &found, &err), 0);
    assert_int_equal(found & at_least, at_least);
    for (size_t i = 0; i < OBJECTS; i++) {
        struct buf out = {0};
        if ((found >> i & 1) != 0) {
            assert_int_equal(p->d->ops->get(p->d, names[i], 0, &out, &err), 0);
            assert_true(slice_eq(buf_slice(&out), bytes_of(i)));
        }
        buf_free(&out);
    }
}

/* One course: the fault, tries after it, a power cut behind all, and then all of it again. Returns how many calls came
 * until the cut. */
static int course(enum fault as, int at, bool links, bool names_too)
{
    struct place p;
    make_place(&p);
    disk = (struct disk){.at = at, .as = as, .links = links};
    unsigned done = write_them(&p, as == FAULT_CUT ? 1 : 3);
    int steps = disk.step;
    assert_true(as == FAULT_CUT || done == (1u << OBJECTS) - 1); /* one fault is not the end of anything */
    depot_close(p.d);
    p.d = NULL;
    disk.as = FAULT_NONE;
    lose_power(p.folder, names_too);
    assert_there(&p, done);
    p.d->ops->tidy(p.d, "");
    assert_int_equal(write_them(&p, 1), (1u << OBJECTS) - 1);
    assert_there(&p, (1u << OBJECTS) - 1);
    depot_close(p.d);
    remove_all(p.folder);
    return steps;
}

static void each_step(enum fault as)
{
    for (int links = 0; links < 2; links++) {
        for (int names_too = as != FAULT_CUT; names_too < 2; names_too++) {
            int at = 0;
            while (at < course(as, at, links != 0, names_too != 0)) {
                at++;
            }
            assert_true(at > 5 * OBJECTS); /* calls for each */
        }
    }
}

static void test_no_fault(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_true(course(FAULT_NONE, 0, i % 2 != 0, i / 2 != 0) > 5 * OBJECTS);
    }
}

static void test_an_error_at_each_step(void **state)
{
    (void)state;
    each_step(FAULT_EIO);
}

static void test_a_full_disk_at_each_step(void **state)
{
    (void)state;
    each_step(FAULT_ENOSPC);
}

static void test_short_writes(void **state)
{
    (void)state;
    each_step(FAULT_SHORT);
    each_step(FAULT_INTERRUPTED);
}

static void test_a_power_cut_at_each_step(void **state)
{
    (void)state;
    each_step(FAULT_CUT);
}

/* A folder that a sweep emptied goes along, and is durable again before anything is put into it. */
static void test_a_folder_that_went(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    make_place(&p);
    disk = (struct disk){.links = true};
    assert_int_equal(write_them(&p, 1), (1u << OBJECTS) - 1);
    for (size_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(p.d->ops->remove(p.d, names[i], &err), 0);
    }
    assert_int_equal(p.d->ops->put(p.d, names[OBJECTS - 1], bytes_of(OBJECTS - 1), &err), 0);
    depot_close(p.d);
    p.d = NULL;
    lose_power(p.folder, true);
    assert_there(&p, 1u << (OBJECTS - 1));
    depot_close(p.d);
    remove_all(p.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_fault),
        cmocka_unit_test(test_an_error_at_each_step),
        cmocka_unit_test(test_a_full_disk_at_each_step),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_a_power_cut_at_each_step),
        cmocka_unit_test(test_a_folder_that_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
