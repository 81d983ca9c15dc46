/* The rows, and dispatch: rules for every command are applied here, in Redis's order and in its words. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "resp/command.h"

/* Rows of no request end before what only these have. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum { INDEX_SIZE = 128, NAME_MAX_LEN = 16, ERROR_ARGS_BYTES = 128 };

static const struct command acl_subs[] = {
    {"whoami", 2, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_acl_whoami, NULL, "server", "", "The account's name."},
    {0},
};

static const struct command client_subs[] = {
    {"caching", 3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_caching, NULL, "connection", "yes|no",
     "An error, since nothing is tracked."},
    {"getname", 2, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_getname, NULL, "connection", "", "The connection's name."},
    {"getredir", 2, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_getredir, NULL, "connection", "",
     "Where tracking redirects to: -1, there is none."},
    {"id", 2, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_id, NULL, "connection", "", "The connection's number."},
    {"info", 2, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_info, NULL, "connection", "",
     "This connection, as CLIENT LIST shows it."},
    {"kill", -3, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN, 0, cmd_client_kill, NULL, "connection",
     "address|[ID id] [ADDR address] [LADDR address] [USER account] [TYPE type] [MAXAGE s] [SKIPME yes|no]",
     "Closes connections of the Redis protocol for which all of that holds; answers how many."},
    {"list", -2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN | CMD_PER_CLIENT, 0, cmd_client_list, NULL, "connection",
     "[TYPE type] [ID id [id ...]]", "All connections, a line each."},
    {"no-evict", 3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_switch, NULL, "connection", "on|off",
     "No connection is evicted for its memory: OK."},
    {"no-touch", 3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_switch, NULL, "connection", "on|off",
     "There is nothing that a question could leave untouched: OK."},
    {"pause", -3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_pause, NULL, "connection", "ms [WRITE|ALL]",
     "An error, since no client is held up."},
    {"reply", 3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_reply, NULL, "connection", "on|off|skip",
     "ON: OK. OFF and SKIP are errors, since every command is answered."},
    {"setinfo", 4, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_setinfo, NULL, "connection", "LIB-NAME|LIB-VER text",
     "Says which client library this is."},
    {"setname", 3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_setname, NULL, "connection", "name",
     "Names the connection."},
    {"tracking", -3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_client_tracking, NULL, "connection", "on|off [option ...]",
     "OFF: OK. ON is an error, since no client is told when an answer changes."},
    {0},
};

static const struct command clock_subs[] = {
    {"accept", 2, ROLE_ADMIN, CMD_ADMIN | CMD_WRITE, 0, cmd_clock_accept, NULL, "unseen", "",
     "Believes the clock, although it is doubted; answers as CLOCK."},
    {"setback", 2, ROLE_ADMIN, CMD_ADMIN | CMD_WRITE, 0, cmd_clock_setback, NULL, "unseen", "",
     "Forgets that a later time than the clock's was believed; answers as CLOCK."},
    {0},
};

static const struct command command_subs[] = {
    {"count", 2, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_command_count, NULL, "server", "", "How many commands there are."},
    {"docs", -2, ROLE_ACCOUNT, CMD_LOADING | CMD_REPLY(56), 0, cmd_command_docs, NULL, "server", "[command ...]",
     "What commands are for."},
    {"getkeys", -3, ROLE_ACCOUNT, CMD_LOADING, 0, cmd_command_getkeys, NULL, "server", "command [argument ...]",
     "The user of a command, which is its key."},
    {"info", -2, ROLE_ACCOUNT, CMD_LOADING | CMD_REPLY(56), 0, cmd_command_info, NULL, "server", "[command ...]",
     "Commands for programs."},
    {"list", -2, ROLE_ACCOUNT, CMD_LOADING | CMD_REPLY(16), 0, cmd_command_list, NULL, "server",
     "[FILTERBY MODULE module|ACLCAT category|PATTERN pattern]", "The names of all commands, or of some."},
    {0},
};

static const struct command config_subs[] = {
    {"get", -3, ROLE_WATCH, CMD_LOADING | CMD_ADMIN | CMD_REPLY(32), 0, cmd_config_get, NULL, "server",
     "pattern [pattern ...]", "Options whose names match, and their values."},
    {0},
};

static const struct command debug_subs[] = {
    {"advance", 3, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN | CMD_TEST, 0, cmd_debug_advance, NULL, "server", "ms",
     "Moves both clocks, and answers when all that became due is done."},
    {"settle", 2, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN | CMD_TEST, 0, cmd_debug_settle, NULL, "server", "",
     "Tells a number that changes when anything is done, what still works or \"idle\", and in how many ms of the clock "
     "something is due; -1: nothing is."},
    {"stall", 4, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN | CMD_TEST, 0, cmd_debug_stall, NULL, "server", "thread ms",
     "Lets a thread (worker-0, stager, historian, http, aside, logins) sleep for real milliseconds, as if it were "
     "stuck."},
    {"jump", 3, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN | CMD_TEST, 0, cmd_debug_jump, NULL, "server", "ms",
     "Moves the wall clock alone, also back."},
    {0},
};

static const struct command archive_subs[] = {
    {"forgetnow", 2, ROLE_ADMIN, CMD_ADMIN, 0, cmd_archive_forget_now, NULL, "unseen", "",
     "Archives all users again, and then deletes there what is older; answers at once."},
    {"status", 2, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(8), 0, cmd_archive, NULL, "unseen", "",
     "How the archive is, as ARCHIVE alone."},
    {0},
};

static const struct command front_subs[] = {
    {"rebuild", 2, ROLE_ADMIN, CMD_ADMIN, 0, cmd_front_rebuild, NULL, "unseen", "",
     "Removes what stands in the front's Redis, and brings all users in again; answers at once."},
    {"reconcile", 2, ROLE_ADMIN, CMD_ADMIN, 0, cmd_front_reconcile, NULL, "unseen", "",
     "Compares all users with what stands in the front's Redis, and mends what differs; answers at once."},
    {"status", 2, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(8), 0, cmd_front, NULL, "unseen", "",
     "How the front is, as FRONT alone."},
    {0},
};

static const struct command latency_subs[] = {
    {"doctor", 2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, cmd_latency_doctor, NULL, "server", "",
     "Where to look for what is slow."},
    {"histogram", -2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN | CMD_REPLY(16), 0, cmd_latency_histogram, NULL, "server",
     "[command ...]", "How long commands took."},
    {"history", 3, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, cmd_latency_none, NULL, "server", "event",
     "Moments of an event: none are kept."},
    {"latest", 2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, cmd_latency_none, NULL, "server", "",
     "The latest moment of each event: none are kept."},
    {"reset", -2, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN, 0, cmd_latency_reset, NULL, "server", "[event ...]",
     "Forgets them; answers of how many events."},
    {0},
};

static const struct command legacy_subs[] = {
    {"again", 2, ROLE_ADMIN | ROLE_LOAD, CMD_ADMIN | CMD_WRITE | CMD_PRIMARY, 0, cmd_legacy_again, NULL, "unseen", "",
     "Lets all noted users be read again; answers how many."},
    {"mirror", -2, ROLE_ADMIN, CMD_ADMIN | CMD_REPLY(8), 0, cmd_legacy_mirror, NULL, "unseen", "[RESET]",
     "How the mirror is; RESET accepts what it has left out."},
    {"note", -3, ROLE_ADMIN | ROLE_LOAD, CMD_ADMIN | CMD_WRITE | CMD_PRIMARY | CMD_COPIES, 0, cmd_legacy_note, NULL,
     "unseen", "user [user ...]",
     "Notes users to be migrated; answers how many were not noted before, and how many are not for they were "
     "forgotten."},
    {"pause", 2, ROLE_ADMIN, CMD_ADMIN | CMD_WRITE | CMD_PRIMARY, 0, cmd_legacy_pause, NULL, "unseen", "",
     "Pauses the migration, also over restarts."},
    {"problems", -2, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(2048), 0, cmd_legacy_problems, NULL, "unseen",
     "[count]", "Keys of the old Redis that could not be taken over, newest first."},
    {"renote", -3, ROLE_ADMIN | ROLE_LOAD, CMD_ADMIN | CMD_WRITE | CMD_PRIMARY | CMD_COPIES, 0, cmd_legacy_renote, NULL,
     "unseen", "user [user ...]", "Notes users also when they were forgotten."},
    {"resume", 2, ROLE_ADMIN, CMD_ADMIN | CMD_WRITE | CMD_PRIMARY, 0, cmd_legacy_resume, NULL, "unseen", "",
     "Ends the pause."},
    {"state", -3, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_COPIES, 0, cmd_legacy_state, NULL, "unseen",
     "user [user ...]", "Where each user stands: none, waiting, migrated, left or forgotten."},
    {"status", 2, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(16), 0, cmd_legacy_status, NULL, "unseen", "",
     "How far the migration is."},
    {0},
};

static const struct command memory_subs[] = {
    {"doctor", 2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, cmd_memory_doctor, NULL, "server", "",
     "Where to look for what takes memory."},
    {"stats", 2, ROLE_WATCH, CMD_ADMIN, 0, cmd_memory_stats, NULL, "server", "", "What takes memory."},
    {"usage", -3, ROLE_REQUEST, CMD_READONLY, 2, cmd_memory_usage, NULL, "server", "user [SAMPLES count]",
     "The bytes of a user's filters, nil for one never heard of."},
    {0},
};

static const struct command pool_subs[] = {
    {"add", -4, ROLE_REQUEST, CMD_WRITE, 0, cmd_request, NULL, "unseen", NULL,
     "Puts items behind those of a pool; answers how many it has now, and its version, once durable.", OF_POOL_ADD,
     REQUEST_POOL_ADD, write_pool},
    {"drop", 3, ROLE_REQUEST, CMD_WRITE, 0, cmd_request, NULL, "unseen", NULL,
     "Drops a pool; answers 1, or 0 when there was none.", OF_POOL_DROP, REQUEST_POOL_DROP, NULL},
    {"get", -3, ROLE_ASK, CMD_READONLY, 0, cmd_pool_get, NULL, "unseen", "name [from [count]]",
     "What a pool is, and items of it: 1,000 from a place on, unless said otherwise; nil when there is none."},
    {"list", 2, ROLE_ASK, CMD_READONLY | CMD_REPLY(2048), 0, cmd_pool_list, NULL, "unseen", "",
     "What pools there are."},
    {"rename", 4, ROLE_REQUEST, CMD_WRITE, 0, cmd_request, NULL, "unseen", NULL,
     "Gives a pool another name, at once in place of the pool that has it; answers as POOL SET.", OF_POOL_RENAME,
     REQUEST_POOL_RENAME, write_pool},
    {"set", -4, ROLE_REQUEST, CMD_WRITE, 0, cmd_request, NULL, "unseen", NULL,
     "Makes the items a pool, in place of what it had; answers how many it has, and its version, once durable.",
     OF_POOL_SET, REQUEST_POOL_SET, write_pool},
    {0},
};

static const struct command replica_subs[] = {
    {"ask", -5, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY, 0, cmd_replica_ask, NULL, "unseen",
     "node user hashes [first_month term]",
     "Which candidates a user has not seen, and as of which event of that primary; for it, when its own disk is late."},
    {"dismiss", 3, ROLE_ADMIN, CMD_ADMIN, 0, cmd_replica_dismiss, NULL, "unseen", "node|address",
     "Gives up a replica: nothing is kept for it any more."},
    {"enlist", -3, ROLE_ADMIN, CMD_ADMIN, 0, cmd_replica_enlist, NULL, "unseen", "node [followed seq]",
     "From now on everything is kept for that replica; answers where it begins, or where it goes on that has followed "
     "another node to that seq."},
    {"fetch", 11, ROLE_ADMIN, CMD_ADMIN | CMD_REPLY(FETCH_REPLY_KIB), 0, cmd_replica_fetch, NULL, "unseen",
     "replica node run after durable bytes wait_ms now_ms term", "What was recorded since; for a replica."},
    {"hello", 6, ROLE_ADMIN, CMD_ADMIN | CMD_REPLY(8), 0, cmd_replica_hello, NULL, "unseen",
     "protocol node term address", "What a replica must know of this node, and the other way round."},
    {"meet", 5, ROLE_ADMIN, CMD_ADMIN, 0, cmd_replica_meet, NULL, "unseen", "term node address",
     "Says that a node is the primary of a term; answers this one's term, node and role."},
    {"merge", -6, ROLE_ADMIN | ROLE_RECORD | ROLE_FORGET, CMD_ADMIN | CMD_WRITE | CMD_PRIMARY | CMD_COPIES, 0,
     cmd_replica_merge, NULL, "unseen", "node run to events [FORGETS] [FORCE]",
     "Records what only an old primary has, each event once; for unseen rejoin. Answers how many forgets were left."},
    {"pool", 4, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(POOL_REPLY_KIB), 0, cmd_replica_pool, NULL, "unseen",
     "name from", "A pool's version, how many items it has, and some of them from a place on; for a replica."},
    {"pools", 2, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(PAGE_REPLY_KIB), 0, cmd_replica_pools, NULL, "unseen",
     "", "What pools there are, and their versions; for a replica."},
    {"positions", -3, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(PAGE_REPLY_KIB), 0, cmd_replica_positions, NULL,
     "unseen", "max [source]", "How far sources outside were taken, behind a source; for unseen clone."},
    {"promote", -2, ROLE_ADMIN, CMD_ADMIN, 0, cmd_replica_promote, NULL, "unseen", "[FORCE]",
     "Makes this replica the primary, once it has all that the old one has, if that answers."},
    {"status", 2, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(16), 0, cmd_replica_status, NULL, "unseen", "",
     "Who this node is, whom it follows, and who follows it."},
    {"stepdown", 5, ROLE_ADMIN, CMD_ADMIN, 0, cmd_replica_stepdown, NULL, "unseen", "term node address",
     "Takes no more writes, for a node that becomes the primary; answers the newest event, once it is durable."},
    {"tombstones", -2, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(PAGE_REPLY_KIB), 0, cmd_replica_tombstones,
     NULL, "unseen", "[key item max]", "What was forgotten, behind that; for unseen clone."},
    {"user", -3, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(PAGE_REPLY_KIB), 0, cmd_replica_user, NULL, "unseen",
     "user [protocol]", "All that history has of a user, as a snapshot."},
    {"users", 4, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY | CMD_REPLY(PAGE_REPLY_KIB), 0, cmd_replica_users, NULL, "unseen",
     "key bytes", "The next key, and snapshots of users from a key on."},
    {0},
};

static const struct command ring_subs[] = {
    {"flush", 2, ROLE_ADMIN, CMD_ADMIN | CMD_WRITE | CMD_REPLY(8), 0, cmd_ring_flush, NULL, "unseen", "",
     "Turns the ring, flushes every closed slot, and answers when done."},
    {0},
};

static const struct command slowlog_subs[] = {
    {"get", -2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN | CMD_REPLY(640), 0, cmd_slowlog_get, NULL, "server", "[count]",
     "The newest slow commands, ten unless said otherwise, -1 for all; without ids for accounts that may not ask."},
    {"len", 2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, cmd_slowlog_len, NULL, "server", "",
     "How many there are, at most 128."},
    {"reset", 2, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN, 0, cmd_slowlog_reset, NULL, "server", "", "Forgets them."},
    {0},
};

const struct command command_table[] = {
    {"acl", -2, ROLE_ACCOUNT, CMD_LOADING, 0, NULL, acl_subs, "server", "subcommand", "About accounts."},
    {"archive", -1, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(8), 0, cmd_archive, archive_subs, "unseen", "",
     "How the archive elsewhere is, and what waits for it."},
    {"auth", -2, ROLE_ANYBODY, CMD_LOADING | CMD_FAST, 0, cmd_auth, NULL, "connection", "[account] password",
     "Says who asks, and the password."},
    {"backup", 2, ROLE_ADMIN, CMD_ADMIN, 0, cmd_backup, NULL, "unseen", "folder",
     "Copies the store into a folder of the server's machine; answers when the copy is whole and checked."},
    {"block", -3, ROLE_REQUEST, CMD_WRITE | CMD_FAST, 1, cmd_request, NULL, "unseen", NULL,
     "Blocks whole numbers in a scroll session; answers how many were not blocked before.", OF_BLOCK, REQUEST_BLOCK,
     NULL},
    {"client", -2, ROLE_ACCOUNT, CMD_LOADING, 0, NULL, client_subs, "connection", "subcommand", "About connections."},
    {"clock", -1, ROLE_WATCH, CMD_ADMIN | CMD_READONLY, 0, cmd_clock, clock_subs, "unseen", "",
     "What is believed of the clock."},
    {"command", -1, ROLE_ACCOUNT, CMD_LOADING | CMD_REPLY(56), 0, cmd_command, command_subs, "server", "",
     "All commands, for programs."},
    {"config", -2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, NULL, config_subs, "server", "subcommand",
     "About the configuration."},
    {"dbsize", 1, ROLE_WATCH, CMD_READONLY, 0, cmd_dbsize, NULL, "server", "",
     "How many users there are at least: those of the stored month, or the slot, that has the most."},
    {"debug", -2, ROLE_ADMIN, CMD_LOADING | CMD_ADMIN | CMD_TEST, 0, NULL, debug_subs, "server", "subcommand",
     "Moves the clock of a server that was started with --test-clock."},
    {"delivered", -3, ROLE_REQUEST, CMD_WRITE | CMD_FAST | CMD_RECORD | CMD_LOADING, 1, cmd_request, NULL, "unseen",
     NULL, "Records items as sent to the user; answers how many, once they are durable.", OF_DELIVERED,
     REQUEST_DELIVERY, NULL},
    {"discard", 1, ROLE_ACCOUNT, CMD_LOADING | CMD_FAST | CMD_IMMEDIATE, 0, cmd_discard, NULL, "transactions", "",
     "Forgets what MULTI queued."},
    {"echo", 2, ROLE_ACCOUNT, CMD_FAST, 0, cmd_echo, NULL, "connection", "message", "Answers the message."},
    {"exec", 1, ROLE_ACCOUNT, CMD_LOADING | CMD_IMMEDIATE, 0, cmd_exec, NULL, "transactions", "",
     "Runs what MULTI queued, and answers all replies together."},
    {"exposure", -3, ROLE_REQUEST, CMD_READONLY | CMD_REPLY(40), 1, cmd_request, NULL, "unseen", NULL,
     "How often each item was sent, and how many seconds ago the last time; nil when it never was.", OF_EXPOSURE,
     REQUEST_EXPOSURE, write_exposure},
    {"feed", 1, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(8), 0, cmd_feed, NULL, "unseen", "",
     "Who consumes what is recorded here, and how far each is."},
    {"filter", -4, ROLE_REQUEST, CMD_WRITE, /* with DELIVER */ 1, cmd_filter, NULL, "unseen", NULL,
     "The candidates that the user has not seen; with DELIVER, recorded as sent.", OF_FILTER, REQUEST_QUESTION,
     write_question},
    {"forget", -2, ROLE_REQUEST, CMD_WRITE, 1, cmd_request, NULL, "unseen", NULL,
     "Erases a user, or makes single items unseen again.", OF_FORGET, REQUEST_FORGET, NULL},
    {"front", -1, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(8), 0, cmd_front, front_subs, "unseen", "",
     "How the Redis is that stands in front, and what waits for it."},
    {"hello", -1, ROLE_ANYBODY, CMD_LOADING | CMD_FAST, 0, cmd_hello, NULL, "connection",
     "[protover [AUTH username password] [SETNAME name]]", "Chooses the protocol's version, and introduces both."},
    {"history", 2, ROLE_REQUEST, CMD_READONLY | CMD_REPLY(48), 1, cmd_request, NULL, "unseen", NULL,
     "What is remembered of the user, month by month; nil when nothing ever was.", OF_HISTORY, REQUEST_HISTORY,
     write_history},
    {"info", -1, ROLE_WATCH, CMD_LOADING | CMD_REPLY(56), 0, cmd_info, NULL, "server", "[section ...]",
     "The server's state, for people."},
    {"kafka", 1, ROLE_WATCH, CMD_ADMIN | CMD_READONLY | CMD_REPLY(1536), 0, cmd_kafka, NULL, "unseen", "",
     "How far the reading from Kafka is, in all and by partition."},
    {"latency", -2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, NULL, latency_subs, "server", "subcommand",
     "How long commands take."},
    {"legacy", -2, ROLE_ADMIN, CMD_ADMIN | CMD_REPLY(8), 0, NULL, legacy_subs, "unseen", "subcommand",
     "Users who come from another Redis."},
    {"load", -2, ROLE_LOAD, CMD_WRITE | CMD_PRIMARY | CMD_ADMIN | CMD_COPIES, 0, cmd_load, NULL, "unseen",
     "parcel [parcel ...]", "Unites users of unseen export with what is here, once durable; for unseen load."},
    {"memory", -2, ROLE_ACCOUNT, CMD_LOADING, 0, NULL, memory_subs, "server", "subcommand", "What takes memory."},
    {"merge", -3, ROLE_REQUEST, CMD_WRITE, 1, cmd_request, NULL, "unseen", NULL,
     "What is known of one user becomes known of another one, too; answers 1, or 0 where nothing is.", OF_MERGE,
     REQUEST_MERGE, NULL},
    {"months", 1, ROLE_WATCH, CMD_READONLY | CMD_REPLY(96), 0, cmd_months, NULL, "unseen", "", "The stored months."},
    {"multi", 1, ROLE_ACCOUNT, CMD_LOADING | CMD_FAST | CMD_IMMEDIATE, 0, cmd_multi, NULL, "transactions", "",
     "Queues the commands that follow, until EXEC. They run one by one."},
    {"ping", -1, ROLE_ACCOUNT, CMD_FAST, 0, cmd_ping, NULL, "connection", "[message]", "Answers PONG, or the message."},
    {"played", -3, ROLE_REQUEST, CMD_WRITE | CMD_FAST | CMD_RECORD | CMD_LOADING, 1, cmd_request, NULL, "unseen", NULL,
     "Records items as played by the user, now; answers how many, once they are durable.", OF_PLAYED, REQUEST_PLAY,
     NULL},
    {"playedat", -4, ROLE_REQUEST, CMD_WRITE | CMD_FAST | CMD_RECORD | CMD_LOADING, 1, cmd_request, NULL, "unseen",
     NULL, "Records items as played at a time.", OF_PLAYEDAT, REQUEST_PLAY, NULL},
    {"policies", 1, ROLE_WATCH, CMD_READONLY | CMD_REPLY(16), 0, cmd_policies, NULL, "unseen", "",
     "What hides a candidate, by name, and what each policy hid."},
    {"pool", -2, ROLE_ACCOUNT, CMD_WRITE, 0, NULL, pool_subs, "unseen", "subcommand",
     "Lists of candidates that the server holds, for FILTER."},
    {"quit", -1, ROLE_ANYBODY, CMD_LOADING | CMD_FAST | CMD_IMMEDIATE, 0, cmd_quit, NULL, "connection", "",
     "Closes the connection."},
    {"replica", -2, ROLE_WATCH, CMD_ADMIN, 0, NULL, replica_subs, "unseen", "subcommand",
     "About a second machine that holds the same."},
    {"reset", 1, ROLE_ANYBODY, CMD_LOADING | CMD_FAST | CMD_IMMEDIATE, 0, cmd_reset, NULL, "connection", "",
     "Makes the connection as good as new."},
    {"ring", -1, ROLE_WATCH, CMD_READONLY | CMD_REPLY(56), 0, cmd_ring, ring_subs, "unseen", "",
     "The slots of staged plays."},
    {"role", 1, ROLE_WATCH, CMD_LOADING | CMD_FAST | CMD_REPLY(4), 0, cmd_role, NULL, "server", "",
     "Whether this is a primary (master) with its replicas, or a replica (slave) with its primary."},
    {"seed", 1, ROLE_ADMIN, CMD_ADMIN | CMD_READONLY, 0, cmd_seed, NULL, "unseen", "",
     "The seed that ids are hashed with, for clients that ask with hashes."},
    {"seen", -3, ROLE_REQUEST, CMD_READONLY, 1, cmd_request, NULL, "unseen", NULL,
     "For each item 1 when the user has seen it, else 0.", OF_UNSEEN, REQUEST_QUESTION, write_seen},
    {"select", 2, ROLE_ACCOUNT, CMD_LOADING | CMD_FAST, 0, cmd_select, NULL, "connection", "index",
     "There is only database 0."},
    {"slowlog", -2, ROLE_WATCH, CMD_LOADING | CMD_ADMIN, 0, NULL, slowlog_subs, "server", "subcommand",
     "Commands that took long (slowlog_slower_than)."},
    {"time", 1, ROLE_ACCOUNT, CMD_LOADING | CMD_FAST, 0, cmd_time, NULL, "server", "",
     "The server's time: seconds, and microseconds."},
    {"unblock", -2, ROLE_REQUEST, CMD_WRITE | CMD_FAST, 1, cmd_request, NULL, "unseen", NULL,
     "Takes numbers out of a scroll session, or ends it; answers how many were blocked.", OF_UNBLOCK, REQUEST_UNBLOCK,
     NULL},
    {"unseen", -3, ROLE_REQUEST, CMD_READONLY, 1, cmd_request, NULL, "unseen", NULL,
     "The items that the user has not seen, in the order asked.", OF_UNSEEN, REQUEST_QUESTION, write_question},
    {"why", -3, ROLE_REQUEST, CMD_READONLY | CMD_REPLY(24), 1, cmd_request, NULL, "unseen", NULL,
     "Where the item is seen, newest first.", OF_WHY, REQUEST_WHY, write_why},
    {0},
};

/* Names by hash; 0 is free, else the row + 1. */
static unsigned char by_name[INDEX_SIZE];

/* What a row's commands are measured as. */
static enum op ops[sizeof command_table / sizeof *command_table];

static unsigned name_hash(const char *name, size_t len)
{
    unsigned h = (unsigned)len;
    for (size_t i = 0; i < len; i++) {
        h = h * 31 + (unsigned char)(name[i] | 0x20);
    }
    return h % INDEX_SIZE;
}

void command_index(void)
{
    memset(by_name, 0, sizeof by_name);
    for (unsigned i = 0; command_table[i].name != NULL; i++) {
        unsigned h = name_hash(command_table[i].name, strlen(command_table[i].name));
        while (by_name[h] != 0) {
            h = (h + 1) % INDEX_SIZE;
        }
        by_name[h] = (unsigned char)(i + 1);
        ops[i] = op_find(command_table[i].name);
    }
}

static bool is_name(const char *name, struct slice text)
{
    return strlen(name) == text.len && strncasecmp(name, text.data, text.len) == 0;
}

const struct command *command_find(struct slice name)
{
    if (name.len == 0 || name.len > NAME_MAX_LEN) {
        return NULL;
    }
    for (unsigned h = name_hash(name.data, name.len); by_name[h] != 0; h = (h + 1) % INDEX_SIZE) {
        const struct command *cmd = &command_table[by_name[h] - 1];
        if (is_name(cmd->name, name)) {
            return cmd;
        }
    }
    return NULL;
}

const struct command *command_find_sub(const struct command *container, struct slice name)
{
    for (const struct command *sub = container->subs; sub != NULL && sub->name != NULL; sub++) {
        if (name.len <= NAME_MAX_LEN && is_name(sub->name, name)) {
            return sub;
        }
    }
    return NULL;
}

const char *command_full_name(const struct command *parent, const struct command *cmd, char out[COMMAND_NAME])
{
    snprintf(out, COMMAND_NAME, "%s%s%s", parent != NULL ? parent->name : "", parent != NULL ? "|" : "", cmd->name);
    return out;
}

const char *command_syntax(const struct command *cmd, char out[FIELDS_SYNTAX])
{
    return cmd->syntax != NULL ? cmd->syntax : fields_syntax(cmd->of, out);
}

static int shown(struct slice s, size_t max)
{
    return (int)(s.len < max ? s.len : max);
}

static enum outcome unknown_command(struct resp_client *s, const struct slice *args, size_t n)
{
    char list[ERROR_ARGS_BYTES + 8];
    size_t len = 0;
    for (size_t i = 1; i < n && len < ERROR_ARGS_BYTES; i++) {
        int room = (int)(ERROR_ARGS_BYTES - len);
        len += (size_t)snprintf(list + len, sizeof list - len, "'%.*s' ", shown(args[i], (size_t)room), args[i].data);
        len = len < sizeof list ? len : sizeof list - 1;
    }
    list[len] = '\0';
    return resp_client_refuse(s, "ERR unknown command '%.*s', with args beginning with: %s", shown(args[0], 128),
                              args[0].data, list);
}

static const char *upper_name(const struct command *cmd, char out[COMMAND_NAME])
{
    size_t i = 0;
    for (; cmd->name[i] != '\0' && i < COMMAND_NAME - 1; i++) {
        out[i] = (char)toupper((unsigned char)cmd->name[i]);
    }
    out[i] = '\0';
    return out;
}

static enum outcome help(struct resp_client *s, const struct command *container)
{
    size_t lines = 3;
    for (const struct command *sub = container->subs; sub->name != NULL; sub++) {
        lines += 2;
    }
    char line[160], upper[COMMAND_NAME], behind[FIELDS_SYNTAX];
    write_array(&s->writer, lines);
    snprintf(line, sizeof line,
             "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", upper_name(container, upper));
    write_simple(&s->writer, line);
    for (const struct command *sub = container->subs; sub->name != NULL; sub++) {
        const char *syntax = command_syntax(sub, behind);
        snprintf(line, sizeof line, "%s%s%.100s", upper_name(sub, upper), syntax[0] != '\0' ? " " : "", syntax);
        write_simple(&s->writer, line);
        snprintf(line, sizeof line, "    %s", sub->summary);
        write_simple(&s->writer, line);
    }
    write_simple(&s->writer, "HELP");
    write_simple(&s->writer, "    Print this help.");
    return OUTCOME_ANSWERED;
}

/* An error at queue time makes EXEC refuse the rest. */
static enum outcome reject(struct resp_client *s, enum outcome refused)
{
    if (refused == OUTCOME_ANSWERED) {
        s->rejected = true;
        s->multi_failed = s->in_multi;
    }
    return refused;
}

static enum outcome wrong_count(struct resp_client *s, const struct command *parent, const struct command *cmd)
{
    char name[COMMAND_NAME];
    command_full_name(parent, cmd, name);
    if (cmd->run == cmd_exec) {
        resp_client_end_multi(s);
        return resp_client_refuse(
            s, "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command");
    }
    return reject(s, resp_client_refuse(s, "ERR wrong number of arguments for '%s' command", name));
}

bool command_count_fits(const struct command *cmd, size_t n)
{
    return cmd->arity >= 0 ? n == (size_t)cmd->arity : n >= (size_t)-cmd->arity;
}

enum outcome command_dispatch(struct resp_client *s, const struct slice *args, size_t n, size_t count)
{
    const struct command *cmd = command_find(args[0]), *parent = NULL;
    if (cmd == NULL) {
        return reject(s, unknown_command(s, args, n));
    }
    s->conn.op = (int)ops[cmd - command_table];
    bool help_wanted = false;
    char upper[COMMAND_NAME];
    if (cmd->subs != NULL && n > 1) {
        parent = cmd;
        cmd = command_find_sub(parent, args[1]);
        help_wanted = cmd == NULL && n == 2 && is_name("help", args[1]);
        if (cmd == NULL && !help_wanted) {
            return reject(s, resp_client_refuse(s, "ERR unknown subcommand '%.*s'. Try %s HELP.", shown(args[1], 128),
                                                args[1].data, upper_name(parent, upper)));
        }
    }
    if (!help_wanted && (!command_count_fits(cmd, n) || cmd->run == NULL)) {
        return wrong_count(s, parent, cmd);
    }
    const struct command *row = help_wanted ? parent : cmd;
    struct err err;
    if (account_check(resp_client_account(s), row->role, &err) < 0) {
        return reject(s, resp_client_refuse_err(s, &err));
    }
    if (count > n) {
        return reject(s, resp_client_refuse(s, "ERR %zu arguments are too many: a command takes at most %d items",
                                            count, ITEMS_MAX));
    }
    if ((row->flags & CMD_TEST) != 0 && !clock_is_test()) {
        return reject(s, resp_client_refuse(s, "ERR DEBUG needs a server that was started with --test-clock"));
    }
    bool takes =
        (row->flags & CMD_LOADING) != 0 && ((row->flags & CMD_RECORD) == 0 || service_of(&s->conn)->recording != NULL);
    if (service_dedup(&s->conn) == NULL && !takes) {
        service_loading(s->conn.worker->pool->service, &err);
        return reject(s, resp_client_refuse_err(s, &err));
    }
    if ((row->flags & CMD_PRIMARY) != 0 && role_may_write(service_dedup(&s->conn)->role, &err) < 0) {
        return reject(s, resp_client_refuse_err(s, &err));
    }
    if ((row->flags & CMD_RECORD) == 0 && s->pending > 0) {
        return OUTCOME_AGAIN;
    }
    if (s->in_multi && (row->flags & CMD_IMMEDIATE) == 0) {
        s->conn.op = OP_OTHER;
        return multi_queue(s, args, n);
    }
    enum outcome later;
    if (!resp_client_may_reply(s, row, &later)) {
        return later;
    }
    s->last = row;
    return help_wanted ? help(s, parent) : cmd->run(s, args, n);
}
