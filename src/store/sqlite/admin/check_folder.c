/* Checking the folder of a store: each file, and whether they belong together. */
#include "store/sqlite/admin/check.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/db/pair.h"
#include "store/sqlite/sqlite_store.h"

/* A server that has the folder found them good when it began, and writes both while they are read. */
static int check_unserved(const struct check_files *files, struct err *err)
{
    int unread = 0;
    struct err pair = {0};
    if (pair_look(files->folder, files->vfs, &pair) == ERR_CORRUPT) {
        files->found(files->arg, pair.text);
        return 1; /* to open them would spoil them */
    }
    int problems = check_files(files, &unread, err);
    if (problems >= 0 && unread == 0 && pair_examine(files->folder, files->vfs, &pair) == ERR_CORRUPT) {
        files->found(files->arg, pair.text);
        problems++;
    }
    return problems;
}

int sqlite_check_folder(const char *folder, bool served, void (*found)(void *arg, const char *problem),
                        void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct err *err)
{
    const struct check_files files = {.folder = folder,
                                      .history = "history",
                                      .staging = "staging",
                                      .pages = true,
                                      .found = found,
                                      .progress = progress,
                                      .arg = arg};
    int result;
    if ((result = folder_need(folder, "history.db", err)) < 0 ||
        (result = folder_need(folder, "staging.db", err)) < 0) {
        return result;
    }
    if (served) {
        return check_files(&files, NULL, err);
    }
    struct folder_lock lock;
    if ((result = folder_lock(folder, &lock, err)) < 0) {
        return result;
    }
    result = check_unserved(&files, err);
    folder_unlock(&lock);
    return result;
}
