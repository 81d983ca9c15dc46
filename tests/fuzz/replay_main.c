/* main() of a fuzz target in an ordinary build: gives every file of its corpus to the target once, so that what a
 * fuzzer found is tested for ever. Arguments are files or folders; without any, tests/data/fuzz/X for fuzz_X.
 *
 * With --enable-fuzz this file is left out and libFuzzer brings its own main(). */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static void die(const char *what, const char *path)
{
    fprintf(stderr, "can't %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

/* The input lies in memory of exactly its size, so that a sanitizer sees a read outside of it. */
static void replay_file(const char *path, size_t size)
{
    uint8_t *data = malloc(size > 0 ? size : 1);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL || fread(data, 1, size, file) != size) {
        die("read", path);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static unsigned replay(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        die("find", path);
    }
    if (!S_ISDIR(status.st_mode)) {
        replay_file(path, (size_t)status.st_size);
        return 1;
    }
    unsigned files = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        die("open", path);
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char inside[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        if ((size_t)snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) >= sizeof inside) {
            errno = ENAMETOOLONG;
            die("open a file of", path);
        }
        files += replay(inside);
    }
    closedir(folder);
    return files;
}

int main(int argc, char **argv)
{
    unsigned files = 0;
    for (int i = 1; i < argc; i++) {
        files += replay(argv[i]);
    }
    if (argc == 1) {
        char corpus[4096];
        const char *folder = strrchr(argv[0], '/');
        const char *name = strstr(folder != NULL ? folder : argv[0], "fuzz_");
        snprintf(corpus, sizeof corpus, SRCDIR "/tests/data/fuzz/%s", name != NULL ? name + strlen("fuzz_") : "");
        files = replay(corpus);
    }
    printf("%u inputs replayed\n", files);
    return files > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
