/* Names of states and counters: one table each, for everything that prints them. */
#include <stddef.h>

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

void store_stats_each(const struct store_stats *stats, void (*visit)(void *arg, const char *name, uint64_t value),
                      void *arg)
{
#define FIELD(name)                                                                                                    \
    {                                                                                                                  \
#name, offsetof(struct store_stats, name)                                                                      \
    }
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {
        FIELD(rows_recorded),       FIELD(commits),           FIELD(commit_errors),
        FIELD(busy_refusals),       FIELD(full_refusals),     FIELD(turns),
        FIELD(early_turns),         FIELD(flushes),           FIELD(flush_errors),
        FIELD(users_flushed),       FIELD(plays_flushed),     FIELD(plays_too_old),
        FIELD(plays_over_capacity), FIELD(rows_swept),        FIELD(months_dropped),
        FIELD(months_sealed),       FIELD(users_sealed),      FIELD(quarantined),
        FIELD(damaged_answers),     FIELD(shared_keys),       FIELD(users_forgotten),
        FIELD(items_forgotten),     FIELD(staged_rows),       FIELD(staged_bytes),
        FIELD(staging_wal_bytes),   FIELD(history_wal_bytes), FIELD(wal_pauses),
        FIELD(recovered_rows),      FIELD(recovery_us),       FIELD(commit_us_last),
        FIELD(commit_us_max),       FIELD(queue_messages),
    };
#undef FIELD
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        visit(arg, fields[i].name, *(const uint64_t *)((const char *)stats + fields[i].offset));
    }
}
