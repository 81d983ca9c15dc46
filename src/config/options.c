#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "config/config.h"

enum { NAME_MAX_LENGTH = 64 };

#define KIB 1024.0
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define MINUTE_MS 60000.0
#define DAY_MS (24 * 60 * MINUTE_MS)

#ifdef WITH_NGHTTP2
#define GRPC_ADDRESS "127.0.0.1:7981"
#else
#define GRPC_ADDRESS "none"
#endif

#define FIELD(name) .offset = offsetof(struct config, name)

_Static_assert(offsetof(struct config, staging_memory_auto) ==
                   offsetof(struct config, staging_memory) + sizeof(int64_t),
               "a CONFIG_MEMORY is two numbers side by side");
_Static_assert(offsetof(struct config, sweep_to) == offsetof(struct config, sweep_from) + sizeof(int64_t),
               "a daytime range is two fields side by side");

static const char *const store_words[] = {"sqlite", "memory", "memory:later", "rados",
                                          NULL}; /* the order of enum config_store */
static const char *const skewed_words[] = {"error", "now", NULL};
static const char *const damage_words[] = {"error", "answer", NULL};
static const char *const no_yes_words[] = {"no", "yes", NULL};
static const char *const mode_words[] = {"0600", "0660", "0666", NULL}; /* the order of enum config_mode */
static const char *const cluster_words[] = {"auto", "no", "yes", NULL}; /* the order of enum config_cluster */
static const char *const score_words[] = {"ms", "s", NULL};
static const char *const kafka_format_words[] = {"json", "csv", "protobuf", NULL};
static const char *const kafka_prefix_words[] = {"none", "confluent", NULL};
static const char *const kafka_key_words[] = {"none", "user", NULL};
static const char *const kafka_time_words[] = {"ms", "s", "iso", NULL};
static const char *const replica_ack_words[] = {"local", "replica", "replica-strict", NULL};
static const char *const replica_start_words[] = {"at-once", "when-heard", NULL};
static const char *const replica_failover_words[] = {"no", "in-step", "lossy", NULL};
static const char *const registry_check_words[] = {"ttl", "grpc", NULL}; /* the order of the enum */
static const char *const level_words[] = {"error", "warn", "info", "debug", NULL};
static const char *const format_words[] = {"logfmt", "json", NULL};

const struct config_option config_options[] = {
    {
        .name = "data",
        .type = CONFIG_STRING,
        FIELD(data),
        .min = 1,
        .max = CONFIG_TEXT_MAX,
        .default_text = "/var/lib/unseen",
        .change = CHANGE_RESTART,
        .on_change = "Another folder is another history; the old one stays.",
        .help = "The data folder, made when it is missing, of mode 0750. One process at a time serves it.",
    },
    {
        .name = "expect_data",
        .type = CONFIG_STRING,
        FIELD(expect_data),
        .min = 2,
        .max = CONFIG_TEXT - 1,
        .default_text = "no",
        .change = CHANGE_RESTART,
        .help = "Whether an empty data folder is refused by serve, import and load, as behind a mistyped path or a "
                "missing mount, where everything would be unseen again. no: a warning; yes: refused; a path outside of "
                "the data folder: the first start makes that file, and from then on an empty folder and another "
                "server's history are refused. Deleting the file, or --new, begins an empty history.",
    },
    {
        .name = "store",
        .type = CONFIG_ENUM,
        FIELD(store),
        .words = store_words,
        .default_text = "sqlite",
        .change = CHANGE_RESTART,
        .on_change = "One engine does not see what another has.",
        .help = "Where plays are kept: sqlite, in the data folder; rados, in a pool of a Ceph cluster, for any number "
                "of nodes, without a data folder; memory, only while it runs and within staging_memory, for tests of "
                "programs; memory:later, the same with late answers, for tests of Unseen.",
    },
    {
        .name = "modules",
        .type = CONFIG_STRING,
        FIELD(modules),
        .max = CONFIG_TEXT_MAX,
        .default_text = "",
        .change = CHANGE_RESTART,
        .help = "The folder of unseen_kafka.so, loaded when brokers are set, and unseen_rados.so, for store = rados. "
                "Empty: where the packages have them.",
    },
#include "config/options_edges.inc"
#include "config/options_rados.inc"
    {
        .name = "slots",
        .type = CONFIG_INT,
        FIELD(slots),
        .min = 2,
        .max = 64,
        .default_text = "6",
        .unit = "slots",
        .change = CHANGE_RESTART,
        .on_change = "Slots above a smaller number are recovered and flushed; nothing is lost.",
        .help = "How many slots the ring of staged plays has. One is written, the others wait for their flush.",
    },
    {
        .name = "slot_length",
        .type = CONFIG_DURATION,
        FIELD(slot_length_ms),
        .min = MINUTE_MS,
        .max = DAY_MS,
        .default_text = "auto",
        .zero = "auto",
        .change = CHANGE_RESTART,
        .help = "How often the ring turns: the open slot is closed and flushed, the next one opens. Longer writes less "
                "to the disk; short staging_memory turns it earlier. auto: 6 hours.",
    },
    {
        .name = "retention",
        .type = CONFIG_INT,
        FIELD(retention),
        .min = 1,
        .max = 120,
        .default_text = "6",
        .unit = "months",
        .change = CHANGE_LIVE,
        .on_change = "Longer brings nothing back. Shorter is swept over the coming nights, and the log says how much.",
        .help = "How many full calendar months (UTC) before the current one are kept.",
    },
    {
        .name = "window",
        .type = CONFIG_INT,
        FIELD(window),
        .min = 0,
        .max = 120,
        .default_text = "3",
        .unit = "months",
        .change = CHANGE_LIVE,
        .on_change = "A wider one reads months sealed for a narrower one; HISTORY states the error reached.",
        .help = "How many full calendar months before the current one a question looks at. At most retention.",
    },
    {
        .name = "error_rate",
        .type = CONFIG_RATE,
        FIELD(error_rate),
        .min = 1e-4,
        .max = 0.05,
        .default_text = "0.001",
        .change = CHANGE_LIVE,
        .on_change = "Sealed months keep theirs; HISTORY states the error reached.",
        .help = "The chance, at most, that a never-played item is hidden, over a user's whole window. A played item is "
                "never shown. Smaller needs more disk.",
    },
    {
        .name = "staging_memory",
        .type = CONFIG_MEMORY,
        FIELD(staging_memory),
        .min = 4 * MIB,
        .max = TIB,
        .default_text = "256MiB",
        .change = CHANGE_LIVE,
        .help = "Memory for plays not yet flushed. A slot turns early at half of it, or at a quarter filled within a "
                "minute. Full, with nothing freed for a minute, writes get BUSY, and questions go on. auto: a quarter "
                "of what cgroups and machine allow, at most 4GiB. One user of a load may take as much.",
    },
    {
        .name = "request_memory",
        .type = CONFIG_SIZE,
        FIELD(request_memory),
        .min = 16 * MIB,
        .max = TIB,
        .default_text = "256MiB",
        .change = CHANGE_LIVE,
        .help = "Memory for requests and answers of all connections. While it is short they wait, and one that holds "
                "some and moves nothing for 2 s is closed.",
    },
    {
        .name = "wal_limit",
        .type = CONFIG_SIZE,
        FIELD(wal_limit),
        .min = 4 * MIB,
        .max = TIB,
        .default_text = "128MiB",
        .change = CHANGE_LIVE,
        .help = "How far the write-ahead log of history.db may grow. Flushes pause there, while a reader, such as a "
                "sqlite3 shell with an open transaction, keeps it from shrinking.",
    },
    {
        .name = "min_free",
        .type = CONFIG_SIZE,
        FIELD(min_free),
        .min = 0,
        .max = 16 * TIB,
        .default_text = "256MiB",
        .change = CHANGE_LIVE,
        .help = "Plays are refused when the disk has less room, so that sweep and FORGET still work. 0: only when it "
                "is full.",
    },
    {
        .name = "sweep_window",
        .type = CONFIG_DAYTIME_RANGE,
        FIELD(sweep_from),
        .default_text = "00:00-05:00",
        .change = CHANGE_LIVE,
        .help = "The hours, in timezone, for deleting plays past retention and sealing months. May cross midnight: "
                "22:00-04:00.",
    },
    {
        .name = "backup_root",
        .type = CONFIG_STRING,
        FIELD(backup_root),
        .max = CONFIG_TEXT_MAX,
        .default_text = "",
        .change = CHANGE_LIVE,
        .help = "The only folder below which the server makes backups; none: it makes none. Empty: beside the data "
                "folder, its path with -backups behind it. Made when missing, if its parent allows that.",
    },
    {
        .name = "backup_at",
        .type = CONFIG_DAYTIME,
        FIELD(backup_at),
        .default_text = "",
        .change = CHANGE_LIVE,
        .help = "The time of day, in timezone, of a daily backup into backup_root, such as 03:30. A missed one is made "
                "up for. Empty: never.",
    },
    {
        .name = "backup_keep",
        .type = CONFIG_INT,
        FIELD(backup_keep),
        .min = 1,
        .max = 1000,
        .default_text = "7",
        .unit = "backups",
        .change = CHANGE_LIVE,
        .help = "How many backups of backup_at are kept. Older ones are deleted once a new one is checked; nothing "
                "else ever is.",
    },
    {
        .name = "timezone",
        .type = CONFIG_ZONE,
        FIELD(timezone),
        .max = CONFIG_TEXT_MAX,
        .default_text = "",
        .change = CHANGE_RESTART,
        .help = "The zone of sweep_window and backup_at, such as Europe/Berlin or UTC. Empty: the system's. Months are "
                "always UTC.",
    },
    {
        .name = "delivered_max",
        .type = CONFIG_INT,
        FIELD(delivered_max),
        .min = 1,
        .max = 10000,
        .default_text = "100",
        .unit = "items",
        .change = CHANGE_LIVE,
        .on_change = "More brings nothing back.",
        .help = "How many of the items last sent to a user count as seen.",
    },
    {
        .name = "session_ttl",
        .type = CONFIG_DURATION,
        FIELD(session_ttl_ms),
        .min = 1000,
        .max = 7 * DAY_MS,
        .default_text = "10min",
        .change = CHANGE_LIVE,
        .help = "How long after its last use a scroll session (BLOCK) ends.",
    },
    {
        .name = "session_memory",
        .type = CONFIG_SIZE,
        FIELD(session_memory),
        .min = MIB,
        .max = TIB,
        .default_text = "64MiB",
        .change = CHANGE_LIVE,
        .help = "Memory for scroll sessions. When full, those unused for longest end, counted and logged.",
    },
    {
        .name = "pool_memory",
        .type = CONFIG_SIZE,
        FIELD(pool_memory),
        .min = MIB,
        .max = TIB,
        .default_text = "256MiB",
        .change = CHANGE_LIVE,
        .on_change = "With less than they take, pools stay, and none can be set until some are dropped.",
        .help = "Memory for pools (POOL SET): the id's length and at most 16 bytes an item, old and new list while one "
                "is replaced. What doesn't fit is refused.",
    },
    {
        .name = "history_memory",
        .type = CONFIG_SIZE,
        FIELD(history_memory),
        .min = 0,
        .max = TIB,
        .default_text = "64MiB",
        .change = CHANGE_LIVE,
        .help = "Memory, shared by the workers, for what the disk has of users who are asked about often, decoded: "
                "some 6 KB for 800 plays in 4 months, for one user at most an eighth of a thread's share. A write to "
                "history.db empties it, so it saves little during a flush. 0: none.",
    },
    {
        .name = "hash_seed",
        .type = CONFIG_SEED,
        FIELD(hash_seed),
        .default_text = "",
        .change = CHANGE_FIXED,
        .on_change = "A folder with plays refuses another one.",
        .help = "The seed of all hashes, 16 hex digits; keep it secret, or clients can make ids that collide. Empty: "
                "drawn at the first start. Folders that exchange data need the same.",
    },
    {
        .name = "skewed_time",
        .type = CONFIG_ENUM,
        FIELD(skewed_time),
        .words = skewed_words,
        .default_text = "error",
        .change = CHANGE_LIVE,
        .help = "What PLAYEDAT does with a time past retention or more than a day ahead: error refuses it, now takes "
                "the server's time and counts it.",
    },
    {
        .name = "on_damage",
        .type = CONFIG_ENUM,
        FIELD(on_damage),
        .words = damage_words,
        .default_text = "error",
        .change = CHANGE_LIVE,
        .help = "What a question does with an unreadable filter that no second tier has: error names user and month; "
                "answer leaves that month out and counts it, so played items may be shown again.",
    },
    {
        .name = "log_level",
        .type = CONFIG_ENUM,
        FIELD(log_level),
        .words = level_words,
        .default_text = "info",
        .change = CHANGE_LIVE,
        .help = "The least important messages that are logged.",
    },
    {
        .name = "log_format",
        .type = CONFIG_ENUM,
        FIELD(log_format),
        .words = format_words,
        .default_text = "logfmt",
        .change = CHANGE_LIVE,
        .help = "logfmt: time, level, message and name=value pairs; json: one object a line.",
    },
    {
        .name = "question_timeout",
        .type = CONFIG_DURATION,
        FIELD(question_timeout_ms),
        .min = 0,
        .max = DAY_MS,
        .default_text = "0",
        .change = CHANGE_LIVE,
        .help = "A question that takes longer, waits before its begin not counted, gets an error: its user has very "
                "many plays, or the store is late. 0: it waits.",
    },
    {
        .name = "hedge_after",
        .type = CONFIG_DURATION,
        FIELD(hedge_after_ms),
        .min = 1,
        .max = 10 * 1000,
        .default_text = "auto",
        .zero = "auto",
        .change = CHANGE_LIVE,
        .help = "How long a question waits for the disk before the second tier (replica_hedge, or a front) is asked as "
                "well. auto: three times what 99 of 100 of the disk's answers take, from 2 to 50 ms.",
    },
    {
        .name = "slowlog_slower_than",
        .type = CONFIG_DURATION,
        FIELD(slowlog_ms),
        .min = 0,
        .max = DAY_MS,
        .default_text = "10ms",
        .change = CHANGE_LIVE,
        .help = "Commands that take so long from arrival to reply are in SLOWLOG GET. 0: all.",
    },
    {
        .name = "feed_max",
        .type = CONFIG_SIZE,
        FIELD(feed_max),
        .min = MIB,
        .max = TIB,
        .default_text = "1GiB",
        .change = CHANGE_LIVE,
        .help = "Bytes of what was recorded that may wait for a replica, the front or the archive. Beyond it a replica "
                "must be cloned again; the others are filled again by themselves.",
    },
#include "config/options_archive.inc"
#include "config/options_front.inc"
#include "config/options_kafka.inc"
#include "config/options_legacy.inc"
#include "config/options_lock.inc"
#include "config/options_registry.inc"
#include "config/options_replica.inc"
};

const size_t config_options_count = sizeof config_options / sizeof config_options[0];
_Static_assert(sizeof config_options / sizeof config_options[0] <= CONFIG_OPTIONS_MAX, "raise CONFIG_OPTIONS_MAX");

const char *const config_sections[] = {"archive", "front", "kafka", "legacy", "lock", "registry", "replica", NULL};

const char *config_section(const char *option)
{
    for (size_t i = 0; config_sections[i] != NULL; i++) {
        size_t len = strlen(config_sections[i]);
        if (strncmp(option, config_sections[i], len) == 0 && option[len] == '_') {
            return config_sections[i];
        }
    }
    return "";
}

const struct config_option *config_find(const char *name)
{
    for (size_t i = 0; i < config_options_count; i++) {
        if (strcmp(config_options[i].name, name) == 0) {
            return &config_options[i];
        }
    }
    return NULL;
}

/* How many letters must be added, dropped or changed to make b of a (Levenshtein's distance). */
static size_t distance(const char *a, const char *b)
{
    size_t nb = strlen(b);
    size_t row[NAME_MAX_LENGTH + 1];
    for (size_t k = 0; k <= nb; k++) {
        row[k] = k;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= nb; k++) {
            size_t change = diagonal + (tolower((unsigned char)a[i - 1]) != b[k - 1]);
            diagonal = row[k];
            size_t step = (row[k] < row[k - 1] ? row[k] : row[k - 1]) + 1;
            row[k] = change < step ? change : step;
        }
    }
    return row[nb];
}

const char *config_nearest(const char *name)
{
    const char *nearest = NULL;
    size_t least = strlen(name) < NAME_MAX_LENGTH ? strlen(name) / 3 + 2 : 0; /* farther away is no slip of a finger */
    for (size_t i = 0; i < config_options_count && least > 0; i++) {
        size_t d = distance(name, config_options[i].name);
        if (d < least) {
            least = d;
            nearest = config_options[i].name;
        }
    }
    return nearest;
}
