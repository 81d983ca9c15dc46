/* What a process may use, as machines and containers tell it: a table of what stands in their files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory_limit.h"

#define MIB INT64_C(1048576)

enum { FILES = 8 };

static const struct {
    const char *what;
    const char *files[FILES][2];
    int64_t limit;
    const char *from;
} rows[] = {
    {"nothing tells", {{NULL, NULL}}, 0, "machine"},
    {"a machine without cgroups",
     {{"proc/meminfo", "MemTotal:        2097152 kB\nMemFree: 1 kB\n"}},
     2048 * MIB,
     "machine"},
    {"version 2, no limit",
     {{"proc/meminfo", "MemTotal: 1048576 kB\n"},
      {"proc/self/cgroup", "0::/system.slice/unseen.service\n"},
      {"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/system.slice/memory.max", "max\n"},
      {"sys/fs/cgroup/system.slice/unseen.service/memory.max", "max\n"}},
     1024 * MIB,
     "machine"},
    {"version 2, its own limit",
     {{"proc/meminfo", "MemTotal: 1048576 kB\n"},
      {"proc/self/cgroup", "0::/system.slice/unseen.service\n"},
      {"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/system.slice/memory.max", "max\n"},
      {"sys/fs/cgroup/system.slice/unseen.service/memory.max", "157286400\n"}},
     150 * MIB,
     "cgroup"},
    {"version 2, the limit of one above it",
     {{"proc/self/cgroup", "0::/kubepods/pod1/c1\n"},
      {"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/kubepods/memory.max", "268435456\n"},
      {"sys/fs/cgroup/kubepods/pod1/memory.max", "max\n"},
      {"sys/fs/cgroup/kubepods/pod1/c1/memory.max", "536870912\n"}},
     256 * MIB,
     "cgroup"},
    {"version 2 in a container: its group is the top one",
     {{"proc/self/cgroup", "0::/\n"},
      {"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
      {"sys/fs/cgroup/memory.max", "104857600\n"}},
     100 * MIB,
     "cgroup"},
    {"version 1",
     {{"proc/meminfo", "MemTotal: 1048576 kB\n"},
      {"proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/field\n0::/\n"},
      {"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                              "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/field/memory.limit_in_bytes", "157286400\n"}},
     150 * MIB,
     "cgroup"},
    {"version 1 in a container: the mount shows its group alone",
     {{"proc/self/cgroup", "4:memory:/docker/abc\n"},
      {"proc/self/mountinfo", "31 23 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n"}},
     64 * MIB,
     "cgroup"},
    {"version 1, a path that is not to be seen from here",
     {{"proc/self/cgroup", "4:memory:/api/1\n"},
      {"proc/self/mountinfo", "31 23 0:27 /api/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n"}},
     32 * MIB,
     "cgroup"},
    {"no numbers",
     {{"proc/meminfo", "MemTotal: 1024 kB\n"},
      {"proc/self/cgroup", "0::/x\nnonsense\n"},
      {"proc/self/mountinfo", "nonsense\n30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
      {"sys/fs/cgroup/x/memory.max", "-5\n"},
      {"sys/fs/cgroup/memory.max", "99999999999999999999999\n"}},
     MIB,
     "machine"},
};

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void put(const char *root, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void test_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char root[] = "/tmp/unseen-limit-XXXXXX";
        const char *from;
        assert_non_null(mkdtemp(root));
        for (size_t k = 0; k < FILES && rows[i].files[k][0] != NULL; k++) {
            put(root, rows[i].files[k][0], rows[i].files[k][1]);
        }
        int64_t limit = process_memory_limit(root, &from);
        nftw(root, drop, 8, FTW_DEPTH | FTW_PHYS);
        if (limit != rows[i].limit || strcmp(from, rows[i].from) != 0) {
            fail_msg("%s: %lld of the %s", rows[i].what, (long long)limit, from);
        }
    }
}

static void test_here(void **state)
{
    (void)state;
    const char *from;
    assert_true(process_memory_limit("", &from) > MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
