/* The command table: one row for each command. Dispatch, COMMAND, HELP and the errors about names and argument counts
 * come from it. */
#ifndef UNSEEN_RESP_COMMAND_H
#define UNSEEN_RESP_COMMAND_H

#include <stddef.h>

#include "base/slice.h"
#include "resp/client.h"
#include "service/fields.h"

enum {
    CMD_WRITE = 1 << 0,
    CMD_READONLY = 1 << 1,
    CMD_FAST = 1 << 2,
    CMD_ADMIN = 1 << 3,
    CMD_LOADING = 1 << 4,     /* also while loading */
    CMD_IMMEDIATE = 1 << 6,   /* not queued by MULTI */
    CMD_RECORD = 1 << 7,      /* answered by the recorder; need not wait for earlier ones */
    CMD_TEST = 1 << 8,        /* only with a test clock */
    CMD_COPIES = 1 << 9,      /* is answered later, and keeps its arguments till then */
    CMD_PER_CLIENT = 1 << 10, /* the reply has a line for each client */
    CMD_PRIMARY = 1 << 11,    /* changes what is remembered, and so is a primary's alone */
};

/* The reply may take so many KiB beside REPLY_LEAST and what the request's own length allows (resp_client_may_reply()).
 */
#define CMD_REPLY(kib) ((unsigned)(kib) << 16)

static inline size_t command_reply(unsigned flags)
{
    return (size_t)(flags >> 16) * 1024;
}

/* args[0] is the name. The slices point into the input and are invalid after the command returns. */
typedef enum outcome command_fn(struct resp_client *s, const struct slice *args, size_t n);

struct command {
    const char *name; /* "client", or of a subcommand "setname" */
    int arity;        /* with the name (and the subcommand's); negative: at least */
    unsigned role;    /* enum account_role: what it needs */
    unsigned flags;
    int key; /* which argument is the user; 0: none */
    command_fn *run;
    const struct command *subs; /* instead of run, or when there are more arguments than the name */
    const char *group;
    const char *syntax; /* behind the name; of a request NULL: by the fields */
    const char *summary;
    /* A request of the service: which (service/fields.h), and what writes its outcome; NULL: a count. */
    unsigned of;
    enum request_kind kind;
    write_fn *write;
};

/* What stands behind the name. */
const char *command_syntax(const struct command *cmd, char out[FIELDS_SYNTAX]);

/* Ended by a row without name. */
extern const struct command command_table[];

/* Before the first connection. */
void command_index(void);

/* NULL: unknown. In any case of letters. */
const struct command *command_find(struct slice name);
const struct command *command_find_sub(const struct command *container, struct slice name);

/* Whether it takes so many words, with its name. */
bool command_count_fits(const struct command *cmd, size_t n);

/* Runs one request. */
enum outcome command_dispatch(struct resp_client *s, const struct slice *args, size_t n, size_t count);

/* "client|setname"; parent is NULL for a command of its own. */
enum { COMMAND_NAME = 48 };
const char *command_full_name(const struct command *parent, const struct command *cmd, char out[COMMAND_NAME]);

command_fn cmd_ping, cmd_echo, cmd_quit, cmd_reset, cmd_select, cmd_time; /* cmd_connection.c */
command_fn cmd_auth, cmd_hello, cmd_acl_whoami;                           /* cmd_login.c */
command_fn cmd_client_caching, cmd_client_getname, cmd_client_getredir, cmd_client_id, cmd_client_info, cmd_client_kill,
    cmd_client_list, cmd_client_pause, cmd_client_reply, cmd_client_tracking, cmd_client_setinfo, cmd_client_setname,
    cmd_client_switch;                       /* cmd_client.c */
command_fn cmd_multi, cmd_exec, cmd_discard; /* multi.c */
command_fn cmd_command, cmd_command_count, cmd_command_docs, cmd_command_getkeys, cmd_command_info,
    cmd_command_list;              /* cmd_command.c */
command_fn cmd_request;            /* cmd_request.c */
command_fn cmd_filter;             /* cmd_ask.c */
command_fn cmd_dbsize, cmd_months; /* cmd_explain.c */
command_fn cmd_policies;           /* cmd_policies.c */
command_fn cmd_ring, cmd_ring_flush, cmd_debug_advance, cmd_debug_jump, cmd_debug_settle,
    cmd_debug_stall;                                              /* cmd_admin.c */
command_fn cmd_config_get;                                        /* cmd_config.c */
command_fn cmd_clock, cmd_clock_accept, cmd_clock_setback;        /* cmd_clock.c */
command_fn cmd_slowlog_get, cmd_slowlog_len, cmd_slowlog_reset;   /* cmd_slowlog.c */
command_fn cmd_backup;                                            /* cmd_backup.c */
command_fn cmd_load;                                              /* cmd_load.c */
command_fn cmd_feed;                                              /* cmd_feed.c */
command_fn cmd_archive, cmd_archive_forget_now;                   /* cmd_archive.c */
command_fn cmd_front, cmd_front_rebuild, cmd_front_reconcile;     /* cmd_front.c */
command_fn cmd_memory_doctor, cmd_memory_stats, cmd_memory_usage; /* cmd_memory.c */
command_fn cmd_kafka;                                             /* cmd_kafka.c */
command_fn cmd_legacy_again, cmd_legacy_note, cmd_legacy_pause, cmd_legacy_problems, cmd_legacy_renote,
    cmd_legacy_resume, cmd_legacy_state, cmd_legacy_status;                                /* cmd_legacy.c */
command_fn cmd_legacy_mirror;                                                              /* cmd_mirror.c */
command_fn cmd_info;                                                                       /* info.c */
command_fn cmd_latency_doctor, cmd_latency_histogram, cmd_latency_none, cmd_latency_reset; /* cmd_latency.c */
command_fn cmd_replica_meet, cmd_replica_merge, cmd_replica_promote, cmd_replica_status,
    cmd_replica_stepdown;                                                                      /* cmd_replica_role.c */
command_fn cmd_replica_ask;                                                                    /* cmd_replica_ask.c */
command_fn cmd_replica_dismiss, cmd_replica_enlist, cmd_replica_fetch, cmd_replica_hello;      /* cmd_replica.c */
command_fn cmd_replica_pool, cmd_replica_pools;                                                /* cmd_replica_pools.c */
command_fn cmd_replica_positions, cmd_replica_tombstones, cmd_replica_user, cmd_replica_users; /* cmd_replica_copy.c */
enum { FETCH_REPLY_KIB = 256 + 8, PAGE_REPLY_KIB = 4 * 1024, POOL_REPLY_KIB = 512 + 8 };
command_fn cmd_pool_get, cmd_pool_list; /* cmd_pool.c */
command_fn cmd_role;                    /* cmd_role.c */
command_fn cmd_seed;                    /* cmd_seed.c */

/* What write the outcomes of requests. */
write_fn write_question, write_seen;               /* cmd_ask.c */
write_fn write_why, write_history, write_exposure; /* cmd_explain.c */
write_fn write_pool;                               /* cmd_pool.c */

/* The release of Redis whose commands these are, as far as they are: clients decide by it what they send. */
#define REDIS_VERSION "7.0.0"

/* cmd_role.c: INFO replication; and what a client is to take this node for: that of HELLO, INFO and ROLE. */
void role_add_info(struct buf *out, const struct resp_client *s);
bool role_is_master(const struct resp_client *s);

/* info.c: what the process has, and what its parts have asked for. */
struct process_memory {
    size_t used, resident;
    double fragmentation; /* resident over used */
};
struct process_memory process_memory(void);

/* cmd_latency.c: sections of INFO. */
void info_add_commandstats(struct buf *out, const struct resp_client *s);
void info_add_errorstats(struct buf *out, const struct resp_client *s);
void info_add_latencystats(struct buf *out, const struct resp_client *s);

/* info.c: a line of INFO whose value is words of any kind. They stay one line, and have no '=', at which its readers
 * take a value apart. */
void info_add_text(struct buf *out, const char *name, const char *text);

/* multi.c: queues a request behind MULTI. */
enum outcome multi_queue(struct resp_client *s, const struct slice *args, size_t n);

#endif
