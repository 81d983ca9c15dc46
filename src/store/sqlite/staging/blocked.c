/* What keeps slots from being flushed, for those who are refused because of it: what is full, who holds it, and what
 * ends it.
 *
 * Who reads history.db is told by the kernel: a reader of a WAL locks a byte of history.db-shm, and /proc/locks lists
 * the locks of all processes. The file itself must not be opened to ask: closing it would drop this process's own
 * locks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/ring.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

/* The bytes of the -shm that readers lock: WAL_READ_LOCK(0 .. 4) of SQLite's wal.c. */
enum { READ_LOCK_FIRST = 123, READ_LOCK_LAST = 127, NAME_TEXT = 32 };

/* The kernel writes its list a page at a time, and what others lock meanwhile moves the rest: a line may be missing. */
enum { LOOKS = 16, PAGE = 4096 };

/* Looks through the list once. Sets *found to a process that reads, another one rather than this, and says whether any
 * line was of the file. */
static bool look_for_reader(ino_t shm, long *found)
{
    FILE *locks = fopen("/proc/locks", "re");
    char line[256], page[PAGE];
    bool any = false;
    if (locks == NULL) {
        return false;
    }
    setvbuf(locks, page, _IOFBF, sizeof page);
    while (fgets(line, sizeof line, locks) != NULL) {
        long pid;
        unsigned long inode, first, last;
        if (sscanf(line, "%*d: %*s %*s READ %ld %*x:%*x:%lu %lu %lu", &pid, &inode, &first, &last) == 4 &&
            inode == shm && first <= READ_LOCK_LAST && last >= READ_LOCK_FIRST) {
            any = true;
            *found = *found == 0 || *found == getpid() ? pid : *found;
        }
    }
    fclose(locks);
    return any;
}

/* A process that reads; another one rather than this. Not above 0: none can be seen from here, as in a container, or
 * below a ProcSubset=pid of systemd. */
static long find_reader(const char *shm)
{
    struct stat st;
    long found = 0;
    if (stat(shm, &st) == 0) {
        for (int look = 0; look < LOOKS && !look_for_reader(st.st_ino, &found); look++) {
        }
    }
    return found;
}

static void process_name(long pid, char name[NAME_TEXT])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    FILE *comm = fopen(path, "re");
    name[0] = '\0';
    if (comm != NULL) {
        if (fgets(name, NAME_TEXT, comm) != NULL) {
            name[strcspn(name, "\n")] = '\0';
        }
        fclose(comm);
    }
}

void blocked_by_reader(struct sqlite_store *s, char *out, size_t size)
{
    char shm[PATH_MAX + 16], name[NAME_TEXT],
        who[96] = "another process reads history.db (fuser history.db-shm names it)";
    snprintf(shm, sizeof shm, "%s/history.db-shm", s->folder);
    long pid = find_reader(shm);
    if (pid == getpid()) {
        snprintf(who, sizeof who, "a question or a backup of this server reads history.db");
    } else if (pid > 0) {
        process_name(pid, name);
        bool named = name[0] != '\0';
        snprintf(who, sizeof who, "process %ld%s%s%s reads history.db", pid, named ? " (" : "", name, named ? ")" : "");
    }
    snprintf(out, size, "its log is at wal_limit (%" PRId64 " MiB) because %s; it ends when that transaction does",
             config_now(s->cfg)->wal_limit >> 20, who);
}

/* The first slot with an error, else one that is on its way. */
static void blocked_by_slot(struct sqlite_store *s, char *out, size_t size)
{
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct store_slot *info = &s->slots[i].info;
        if (info->error[0] != '\0') {
            snprintf(out, size, "slot %d: %s; it is tried again by itself", i, info->error);
            break;
        }
        if (info->state == SLOT_FLUSHING) {
            snprintf(out, size, "slot %d is being flushed, %" PRIu64 " of %" PRIu64 " users; it ends when that does", i,
                     atomic_load(&s->counters.flush_users_done), atomic_load(&s->counters.flush_users));
        } else if (info->state == SLOT_EMPTYING && out[0] == '\0') {
            snprintf(out, size, "slot %d is being emptied; it ends when that is done", i);
        }
    }
    pthread_mutex_unlock(&s->ring_mutex);
}

void blocked_describe(struct sqlite_store *s, char *out, size_t size)
{
    out[0] = '\0';
    if (atomic_load(&s->wal_full)) {
        blocked_by_reader(s, out, size);
        return;
    }
    blocked_by_slot(s, out, size);
    if (out[0] == '\0' && atomic_load(&s->recovering)) {
        snprintf(out, size, "what was staged before the start is still being read; it ends when that does");
    } else if (out[0] == '\0') {
        snprintf(out, size, "%s",
                 atomic_load(&s->loading) ? "a load is under way; it ends when that does"
                                          : "no slot was flushed yet; RING shows them");
    }
}
