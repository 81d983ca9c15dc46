/* The commands of scenarios that reach under the store: faults, SQL, the files' bytes. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenario.h"
#include "tests/lib/vfs_fault.h"

static unsigned parse_ops(const struct scenario *s, const char *text)
{
    static const struct {
        const char *name;
        unsigned op;
    } ops[] = {{"write", VFS_WRITE}, {"sync", VFS_SYNC}, {"truncate", VFS_TRUNCATE}, {"delete", VFS_DELETE},
               {"open", VFS_OPEN},   {"read", VFS_READ}, {"change", VFS_CHANGE}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(text, ops[i].name) == 0) {
            return ops[i].op;
        }
    }
    fail(s, "\"%s\" is no operation", text);
}

int disk_fault(struct scenario *s, const struct words *w, struct err *err)
{
    (void)err;
    need_words(s, w, 4);
    struct vfs_rule rule = {
        .ops = parse_ops(s, w->word[1]),
        .file = w->word[2],
        .nth = (uint64_t)parse_number(s, w->word[3]),
        .action = strcmp(w->word[0], "hold") == 0 ? VFS_HOLD : VFS_EIO,
    };
    for (int i = 4; i < w->n; i++) {
        if (strcmp(w->word[i], "full") == 0) {
            rule.action = VFS_FULL;
        } else if (strcmp(w->word[i], "sticky") == 0) {
            rule.sticky = true;
        } else {
            fail(s, "\"%s\" is neither full nor sticky", w->word[i]);
        }
    }
    vfs_fault_add(&rule);
    return 0;
}

int disk_vfs(struct scenario *s, const struct words *w, struct err *err)
{
    (void)s;
    (void)err;
    if (strcmp(w->word[0], "held") == 0) {
        vfs_fault_wait_held();
    } else if (strcmp(w->word[0], "release") == 0) {
        vfs_fault_release();
    } else {
        vfs_fault_heal();
    }
    return 0;
}

/* sql FILE SELECT ..., exec FILE SQL ...: the rest of the line as it stands. */
int run_sql(struct scenario *s, const char *file, const char *sql, bool change, struct err *err)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.db", s->world.cfg.data, file);
    if (change && s->world.store) {
        fail(s, "exec needs the store stopped");
    }
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int rc =
        sqlite3_open_v2(path, &db, change ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY, NULL);
    const char *rest = sql;
    while (rc == SQLITE_OK && *rest) {
        rc = sqlite3_prepare_v2(db, rest, -1, &stmt, &rest);
        while (rc == SQLITE_OK && stmt && sqlite3_step(stmt) == SQLITE_ROW) {
            struct buf row = {0};
            for (int i = 0; i < sqlite3_column_count(stmt); i++) {
                const char *text = (const char *)sqlite3_column_text(stmt, i);
                buf_addf(&row, "%s%s", i > 0 ? "|" : "", text ? text : "null");
            }
            buf_add(&row, "", 1);
            add_word(s, "%s", row.data);
            buf_free(&row);
        }
        rc = rc == SQLITE_OK ? sqlite3_finalize(stmt) : rc;
        rest += strspn(rest, " ;");
    }
    int result = rc == SQLITE_OK ? 0 : err_set(err, ERR_IO, "%s: %s", path, sqlite3_errmsg(db));
    sqlite3_close(db);
    return result;
}

static int file_holds(struct scenario *s, const char *path, const char *text, struct err *err)
{
    FILE *file = fopen(path, "r");
    if (!file || fseek(file, 0, SEEK_END) < 0) {
        return err_set(err, ERR_IO, "open %s", path);
    }
    size_t size = (size_t)ftell(file);
    char *bytes = malloc(size + 1);
    rewind(file);
    bool read = bytes && fread(bytes, 1, size, file) == size;
    bool holds = read && memmem(bytes, size, text, strlen(text)) != NULL;
    fclose(file);
    free(bytes);
    add_word(s, "%d", holds);
    return read ? 0 : err_set(err, ERR_IO, "read %s", path);
}

int disk_file(struct scenario *s, const struct words *w, struct err *err)
{
    (void)err;
    need_words(s, w, 2);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", s->world.cfg.data, w->word[1]);
    if (s->world.store) {
        fail(s, "files are changed while the store is stopped");
    }
    if (strcmp(w->word[0], "remove") == 0) {
        return unlink(path) == 0 ? 0 : err_set(err, ERR_IO, "unlink %s", path);
    }
    need_words(s, w, 3);
    if (strcmp(w->word[0], "grep") == 0) {
        return file_holds(s, path, w->word[2], err);
    }
    if (strcmp(w->word[0], "truncate") == 0) {
        return truncate(path, parse_number(s, w->word[2])) == 0 ? 0 : err_set(err, ERR_IO, "truncate %s", path);
    }
    bool garble = strcmp(w->word[0], "garble") == 0;
    FILE *file = fopen(path, garble ? "r+" : "w");
    if (!file) {
        return err_set(err, ERR_IO, "open %s", path);
    }
    if (garble) {
        need_words(s, w, 4);
        fseek(file, parse_number(s, w->word[2]), SEEK_SET);
        for (int64_t i = parse_number(s, w->word[3]); i > 0; i--) {
            fputc(0xa5, file);
        }
    } else {
        fputs(w->word[2], file);
    }
    return fclose(file) == 0 ? 0 : err_set(err, ERR_IO, "write %s", path);
}
