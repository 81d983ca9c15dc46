/* What a store counts. An engine leaves at 0 what it does not have. */
#ifndef UNSEEN_STORE_STATS_H
#define UNSEEN_STORE_STATS_H

#include <stdint.h>

#include "base/buckets.h"
#include "base/figure.h"

/* Counters since start, and gauges. One table says what they are called and mean (see store_stats_each). */
struct store_stats {
    uint64_t rows_recorded, commits, commit_errors, busy_refusals, full_refusals;
    uint64_t turns, early_turns;
    uint64_t flushes, flush_errors, users_flushed, plays_flushed, plays_too_old, plays_over_capacity;
    uint64_t merges_lost;     /* another node was faster */
    uint64_t merges_early;    /* read for nothing: another node had merged before, or does */
    uint64_t reconnects;      /* the cluster had blocklisted the client */
    uint64_t rados_full;      /* gauge: 1 while the cluster has no room */
    uint64_t months_found_ms; /* when the oldest piece of what MONTHS shows of a pool was walked */
    uint64_t rados_errors;    /* operations of the cluster that ended late or with an error */
    uint64_t user_bytes;      /* gauge: memory of users who are read or changed (store = rados) */
    uint64_t user_waits;      /* for such memory */
    uint64_t rows_swept, months_dropped;
    uint64_t months_sealed, users_sealed;
    uint64_t quarantined;     /* gauge: blobs set aside and not yet accepted */
    uint64_t rows_set_aside;  /* gauge: the same of staged rows */
    uint64_t damaged_answers; /* questions answered without a damaged month */
    uint64_t shared_keys;     /* gauge */
    uint64_t users_forgotten, items_forgotten;
    uint64_t tombstones;                           /* gauge: users and items whose forget is remembered */
    uint64_t forgotten_dropped;                    /* plays and deliveries of a stated time, older than a forget */
    uint64_t staged_rows, staged_bytes;            /* gauges */
    uint64_t staging_wal_bytes, history_wal_bytes; /* gauges */
    uint64_t wal_pauses;
    uint64_t recovered_rows, recovery_us;
    uint64_t commit_us_last, commit_us_max;
    uint64_t queue_messages;                  /* gauge: waiting for the stager */
    uint64_t flush_users_done, flush_users;   /* gauges, of the flush under way */
    uint64_t flush_us_last;                   /* gauge */
    uint64_t flushed_ms, swept_ms, sealed_ms; /* when each was last found, or brought, to an end without error */
    uint64_t cache_hits, cache_misses;
    uint64_t kept_found;
    uint64_t kept_bytes;  /* gauge: of the users that readers keep */
    uint64_t cold_untold; /* gauge: 1 when it can't be told what is in memory, so that loops wait for the disk */
    uint64_t begun_ms;    /* when the folder was new; 0: by a version that didn't note it */
    uint64_t backups, backup_errors;
    uint64_t backup_ms;                              /* when the last one was whole, also before the start */
    uint64_t backup_problems;                        /* gauge: that its check found */
    uint64_t disk_bytes, disk_free_bytes;            /* gauges */
    uint64_t staging_file_bytes, history_file_bytes; /* gauges */

    /* Not in the table: how long the commits of writes took, and how many rows each had. */
    struct bucket_sums commit_us, commit_rows;
};
void store_stats_each(const struct store_stats *stats, figure_visit *visit, void *arg);

#endif
