/* /proc/self/cgroup names the process's group in each hierarchy, /proc/self/mountinfo where a hierarchy is mounted and
 * which of its groups that shows ("root"): a container often sees its own group as the top one, or a path that is not
 * to be seen from inside. Then what the mount's top says is all there is. */
#include "base/memory_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 2 * PATH_MAX };

struct group {
    char path[PATH_MAX]; /* of the process, in this hierarchy; "" none */
    char root[PATH_MAX], mount[PATH_MAX];
    const char *file; /* that has the limit */
};

static FILE *open_below(const char *root, const char *path)
{
    char whole[2 * PATH_MAX];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof whole ? fopen(whole, "re") : NULL;
}

/* Whether one of the words between commas is that. */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, word, len) == 0 && (at[len] == ',' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

/* "4:memory:/path", or "0::/path" of version 2. */
static void find_paths(const char *root, struct group *v1, struct group *v2)
{
    char line[LINE];
    FILE *f = open_below(root, "/proc/self/cgroup");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        struct group *g = list[1] == '\0' ? v2 : has_word(list + 1, "memory") ? v1 : NULL;
        if (g != NULL) {
            snprintf(g->path, sizeof g->path, "%.*s", PATH_MAX - 1, path);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

/* "31 23 0:27 /root /mount options ... - type source options" */
static void find_mounts(const char *root, struct group *v1, struct group *v2)
{
    char line[LINE];
    FILE *f = open_below(root, "/proc/self/mountinfo");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char top[PATH_MAX], at[PATH_MAX], type[64], options[1024];
        const char *rest = strstr(line, " - ");
        if (rest == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", top, at) != 2 ||
            sscanf(rest, " - %63s %*s %1023s", type, options) != 2) {
            continue;
        }
        struct group *g = strcmp(type, "cgroup2") == 0                                 ? v2
                          : strcmp(type, "cgroup") == 0 && has_word(options, "memory") ? v1
                                                                                       : NULL;
        if (g != NULL && g->mount[0] == '\0') {
            snprintf(g->root, sizeof g->root, "%s", top);
            snprintf(g->mount, sizeof g->mount, "%s", at);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

/* INT64_MAX: no such file, or "max". */
static int64_t read_limit(const char *root, const char *folder, const char *file)
{
    char path[2 * PATH_MAX], text[32] = "";
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = n > 0 && (size_t)n < sizeof path ? open_below(root, path) : NULL;
    bool good = f != NULL && fgets(text, sizeof text, f) != NULL && text[0] >= '0' && text[0] <= '9';
    if (f != NULL) {
        fclose(f);
    }
    errno = 0;
    unsigned long long bytes = good ? strtoull(text, NULL, 10) : ULLONG_MAX;
    return errno == 0 && bytes <= INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

static int64_t group_limit(const char *root, const struct group *g)
{
    char folder[2 * PATH_MAX];
    if (g->mount[0] == '\0') {
        return INT64_MAX;
    }
    const size_t top = strcmp(g->root, "/") == 0 ? 0 : strlen(g->root), end = strlen(g->mount);
    const bool below = strncmp(g->path, g->root, top) == 0 && (g->path[top] == '/' || g->path[top] == '\0');
    snprintf(folder, sizeof folder, "%s%s", g->mount, below ? g->path + top : "");
    int64_t least = read_limit(root, folder, g->file);
    for (char *slash; (slash = strrchr(folder, '/')) != NULL && slash >= folder + end;) {
        *slash = '\0';
        int64_t limit = read_limit(root, folder, g->file);
        least = limit < least ? limit : least;
    }
    return least;
}

static int64_t machine_memory(const char *root)
{
    char line[256];
    int64_t kib = 0;
    FILE *f = open_below(root, "/proc/meminfo");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && sscanf(line, "MemTotal: %" SCNd64 " kB", &kib) != 1) {
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib > 0 && kib <= INT64_MAX / 1024 ? kib * 1024 : INT64_MAX;
}

int64_t process_memory_limit(const char *root, const char **from)
{
    struct group v1 = {.file = "memory.limit_in_bytes"}, v2 = {.file = "memory.max"};
    int64_t machine = machine_memory(root);
    find_paths(root, &v1, &v2);
    find_mounts(root, &v1, &v2);
    int64_t a = group_limit(root, &v1), b = group_limit(root, &v2);
    int64_t group = a < b ? a : b;
    *from = group < machine ? "cgroup" : "machine";
    int64_t least = group < machine ? group : machine;
    return least == INT64_MAX ? 0 : least;
}
