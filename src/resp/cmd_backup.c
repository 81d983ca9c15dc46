/* BACKUP: the store makes the copy, on threads of its own; the connection waits for the answer. */
#include <limits.h>
#include <string.h>

#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"
#include "store/admin.h"

struct backup_deferred {
    struct deferred deferred;
    struct store_backup backup;
    char folder[PATH_MAX], root[PATH_MAX];
};

static void on_done(struct store_backup *backup)
{
    deferred_done(backup->owner);
}

static void answer_backup(struct deferred *deferred, struct resp_client *s)
{
    const struct store_backup *backup = &((struct backup_deferred *)deferred)->backup;
    struct writer *w = &s->writer;
    switch (backup->err.code) {
    case 0:
        write_map(w, 3);
        write_pair_int(w, "bytes", (int64_t)backup->bytes);
        write_pair_int(w, "ms", backup->took_ms);
        write_pair_int(w, "problems", (int64_t)backup->problems);
        break;
    case ERR_FULL: /* not the state of the store: MISCONF would say that writes are refused */
    case ERR_IO:
    case ERR_READONLY:
        write_errorf(w, "ERR %s", backup->err.text);
        break;
    default:
        resp_client_write_err(s, &backup->err);
        break;
    }
}

enum outcome cmd_backup(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    if (args[1].len == 0 || args[1].len >= PATH_MAX || slice_has_control(args[1])) {
        char shown[64];
        return resp_client_refuse(s, "ERR the folder must be a path below backup_root, in plain characters, got '%s'",
                                  slice_show(args[1], shown, sizeof shown));
    }
    const size_t mark = sizeof STORE_BACKUP_SCHEDULED - 1;
    for (size_t i = 0; i + mark <= args[1].len; i++) {
        if ((i == 0 || args[1].data[i - 1] == '/') && memcmp(args[1].data + i, STORE_BACKUP_SCHEDULED, mark) == 0) {
            return resp_client_refuse(s, "ERR folders " STORE_BACKUP_SCHEDULED
                                         "... are those of backup_at, which deletes them");
        }
    }
    char root[PATH_MAX];
    struct err err;
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup->store->admin == NULL || dedup->store->admin->backup == NULL) {
        return resp_client_lacks(s, "backups");
    }
    if (config_backup_root(config_now(dedup->cfg), root, sizeof root, &err) < 0) {
        return resp_client_refuse(s, "ERR %s", err.text);
    }
    struct backup_deferred *t = deferred_new(sizeof *t, s, answer_backup);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    memcpy(t->folder, args[1].data, args[1].len);
    strcpy(t->root, root);
    t->backup.folder = t->folder;
    t->backup.root = t->root;
    t->backup.done = on_done;
    t->backup.owner = &t->deferred;
    dedup->store->admin->backup(dedup->store, &t->backup);
    return OUTCOME_LATER;
}
