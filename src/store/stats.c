/* Names of states and counters: one table each, for everything that prints them. */
#include <stddef.h>

#include "store/admin.h"
#include "store/ring.h"
#include "store/stats.h"
#include "store/store.h"

const char *store_slot_state_name(enum store_slot_state state)
{
    static const char *const names[] = {"empty", "open", "closed", "flushing", "failed", "emptying"};
    return (size_t)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *store_month_state_name(enum store_month_state state)
{
    static const char *const names[] = {"live", "sealing", "sealed", "expiring"};
    return (size_t)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *store_backup_phase_name(enum store_backup_phase phase)
{
    static const char *const names[] = {"none", "preparing", "staging", "history", "finishing", "checking"};
    return (size_t)phase < sizeof names / sizeof *names ? names[phase] : "unknown";
}

const char *store_clock_state_name(const struct store_clock *clock)
{
    return !clock->known ? "unknown" : clock->doubted ? "doubted" : "believed";
}

void store_stats_each(const struct store_stats *stats, figure_visit *visit, void *arg)
{
#define COUNTER(name, metric, help)                                                                                    \
    {                                                                                                                  \
        {#name, metric "_total", FIGURE_COUNTER, help}, offsetof(struct store_stats, name)                             \
    }
#define GAUGE(name, metric, help)                                                                                      \
    {                                                                                                                  \
        {#name, metric, FIGURE_GAUGE, help}, offsetof(struct store_stats, name)                                        \
    }
#define US(name, metric, help)                                                                                         \
    {                                                                                                                  \
        {#name, metric, FIGURE_US, help}, offsetof(struct store_stats, name)                                           \
    }
#define TIME(name, metric, help)                                                                                       \
    {                                                                                                                  \
        {#name, metric, FIGURE_TIME, help}, offsetof(struct store_stats, name)                                         \
    }
    static const struct {
        struct figure figure;
        size_t offset;
    } fields[] = {
        COUNTER(rows_recorded, "rows_recorded", "Plays and deliveries that were made durable."),
        COUNTER(commits, "commits", "Commits of writes to staging.db."),
        COUNTER(commit_errors, "commit_errors", "Commits of writes that failed: their writers were told."),
        COUNTER(busy_refusals, "busy_refusals", "Batches of writes that were refused because memory was full."),
        COUNTER(full_refusals, "full_refusals", "Batches of writes that were refused because the disk was full."),
        COUNTER(turns, "turns", "Turns of the ring."),
        COUNTER(early_turns, "early_turns", "Turns of the ring because memory was short."),
        COUNTER(flushes, "flushes", "Slots that were flushed."),
        COUNTER(flush_errors, "flush_errors", "Tries to flush a slot that failed; they are repeated."),
        COUNTER(users_flushed, "users_flushed", "Users whose staged plays were merged into their filters."),
        COUNTER(plays_flushed, "plays_flushed", "Staged plays that were merged into filters."),
        COUNTER(plays_too_old, "plays_too_old", "Staged plays that were past retention when they were flushed."),
        COUNTER(plays_over_capacity, "plays_over_capacity",
                "Plays above what one user's month holds within error_rate."),
        COUNTER(merges_lost, "merges_lost", "Merges of a user that another node was faster with (store = rados)."),
        COUNTER(
            reconnects, "rados_reconnects",
            "Connections to the cluster that were made again since it had blocklisted this client (store = rados)."),
        COUNTER(rados_errors, "rados_errors",
                "Operations that the cluster answered late, or with an error (store = rados)."),
        GAUGE(rados_full, "rados_full",
              "1: the cluster or the pool is full, what needs room is refused (store = rados)."),
        TIME(months_found_ms, "months_found_timestamp_seconds",
             "When the piece of the pool that was walked least lately was, to the day; 0: none was (store = rados)."),
        GAUGE(user_bytes, "user_bytes", "Memory claimed for users who are read or changed, of rados_memory."),
        COUNTER(user_waits, "user_waits", "Questions, merges, imports and forgets that waited for such memory."),
        COUNTER(merges_early, "merges_early",
                "Merges of a user that were read for nothing: too few plays waited, or another node merges them (store "
                "= rados)."),
        COUNTER(rows_swept, "rows_swept", "Months of users that were deleted after their retention."),
        COUNTER(months_dropped, "months_dropped", "Months whose sweep came to its end."),
        COUNTER(months_sealed, "months_sealed", "Months that were sealed."),
        COUNTER(users_sealed, "users_sealed", "Users' filters that were moved to a sealed table."),
        GAUGE(quarantined, "quarantined_blobs", "Damaged blobs that were set aside and whose loss was not accepted."),
        GAUGE(rows_set_aside, "rows_set_aside",
              "Staged rows that could not be read, were set aside, and whose loss was not accepted."),
        COUNTER(damaged_answers, "damaged_answers",
                "Questions that the store answered without a damaged month; a second tier may have had it."),
        GAUGE(shared_keys, "shared_keys", "Users who share their 64-bit key with another one."),
        COUNTER(users_forgotten, "users_forgotten", "Users that were forgotten."),
        COUNTER(items_forgotten, "items_forgotten", "Single items that were made unseen again."),
        GAUGE(tombstones, "tombstones",
              "Forgotten users and items that are remembered, so that no replay brings them back."),
        COUNTER(
            forgotten_dropped, "forgotten_dropped",
            "Plays and deliveries that were dropped: their stated time is before their user or item was forgotten."),
        GAUGE(staged_rows, "staged_rows", "Plays and deliveries that are durable and not yet flushed."),
        GAUGE(staged_bytes, "staged_bytes", "Memory of the staged plays and deliveries."),
        GAUGE(staging_wal_bytes, "staging_wal_bytes", "Size of the write-ahead log of staging.db."),
        GAUGE(history_wal_bytes, "history_wal_bytes", "Size of the write-ahead log of history.db."),
        COUNTER(wal_pauses, "history_wal_pauses",
                "Times that flush and sweep had to wait because a reader kept the log of history.db from shrinking."),
        GAUGE(recovered_rows, "recovered_rows", "Staged rows that the last start has recovered."),
        TIME(begun_ms, "history_begun_timestamp_seconds",
             "When the history in the data folder was begun, empty; 0: before this was noted, or there is no folder."),
        COUNTER(backups, "backups", "Backups that were made."),
        COUNTER(backup_errors, "backup_errors",
                "Backups that failed; one that was asked for with a wrong folder is none."),
        TIME(backup_ms, "backup_last_success_timestamp_seconds",
             "When the last backup was whole and checked, also before the start; 0: none was."),
        GAUGE(backup_problems, "backup_problems",
              "Problems that the check found in the last whole backup, also before the start."),
        US(recovery_us, "recovery_duration_seconds", "How long the last start's recovery took."),
        US(commit_us_last, NULL, "How long the last commit of writes took."),
        US(commit_us_max, "commit_longest_seconds", "How long the longest commit of writes took since the start."),
        GAUGE(queue_messages, "store_queue_messages", "Batches of writes and forgets that wait for their commit."),
        GAUGE(flush_users_done, "flush_users_done", "Users that the flush under way has merged."),
        GAUGE(flush_users, "flush_users", "Users that the flush under way has to merge in all; 0: none is under way."),
        US(flush_us_last, "flush_last_duration_seconds", "How long the last flush of a slot took, without waiting."),
        TIME(flushed_ms, "flush_last_success_timestamp_seconds",
             "When a slot was last flushed; 0: not since the start."),
        TIME(swept_ms, "sweep_last_success_timestamp_seconds",
             "When the sweep last had nothing left to do for that night; 0: not since the start."),
        TIME(sealed_ms, "seal_last_success_timestamp_seconds",
             "When the sealing last had nothing left to do; 0: not since the start."),
        COUNTER(cache_hits, "cache_hits", "Pages of history.db that questions found in SQLite's caches."),
        COUNTER(cache_misses, "cache_misses", "Pages of history.db that questions read from the file."),
        COUNTER(kept_found, "kept_users_found", "Questions that found their user's history in memory, decoded."),
        GAUGE(kept_bytes, "kept_users_bytes", "Memory of the users whose history is kept decoded."),
        GAUGE(cold_untold, "cold_untold",
              "1: the file system can't tell what of history.db is in memory, so a worker waits for its disk."),
        GAUGE(disk_bytes, "disk_size_bytes", "Size of the disk that holds the data folder."),
        GAUGE(disk_free_bytes, "disk_free_bytes", "What is left on it for users other than root."),
        GAUGE(staging_file_bytes, "staging_file_bytes", "Size of staging.db, without its log."),
        GAUGE(history_file_bytes, "history_file_bytes", "Size of history.db, without its log."),
    };
#undef COUNTER
#undef GAUGE
#undef US
#undef TIME
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        visit(arg, &fields[i].figure, *(const uint64_t *)((const char *)stats + fields[i].offset));
    }
}
