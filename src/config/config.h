/* The configuration: an INI file (libinih) whose options are the rows of one table. An option "legacy_NAME" stands in
 * the section [legacy] as NAME, and so do those of the other sections of config_sections; all others in [unseen].
 *
 * A value comes from the command line, else the environment, else the file, else it is the default.
 *
 * From the table come the parser, the sample file, `unseen check-config` and CONFIG GET. Sizes are
 * written as 256MiB, 1GiB, 64K, 4096 (bytes); times as 1d, 1h, 10min, 30s, 500ms.
 *
 * A running server holds on to the configuration that it was started with, and CHANGE_LIVE options may change under
 * it: so all code that a server runs reads them through config_now(), which gives a whole configuration that never
 * changes (live.c). Options of other kinds may be read either way. scripts/check-layers looks after it.
 */
#ifndef UNSEEN_CONFIG_CONFIG_H
#define UNSEEN_CONFIG_CONFIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/calendar.h"
#include "base/err.h"
#include "base/slice.h"
#include "config/policy.h"

enum {
    CONFIG_TEXT = 320,       /* room for one value, of an address with a name of 253 bytes, tls:// and port */
    CONFIG_TEXT_MAX = 255,   /* bytes of any other */
    CONFIG_LIST = 2048,      /* several in one option, split by commas or spaces */
    CONFIG_SOCKET_MAX = 107, /* bytes of a Unix socket's path: sun_path, less its NUL */
    CONFIG_HOST_TEXT = 64,
    CONFIG_ADDRESSES_MAX = 8, /* in one option */
    CONFIG_OPTIONS_MAX = 160, /* rows of the table, and more */
    CONFIG_VARIABLE_TEXT = 80,
    CONFIG_PROPERTIES_TEXT = 2048, /* all of librdkafka's that are set */
    CONFIG_PROPERTY_NAME = 64,
    CONFIG_VALUE_TEXT = 2 * CONFIG_PROPERTIES_TEXT, /* room for the text of any option */
};

/* Stands for the user's id in a key of the old Redis. */
#define CONFIG_USER "{user}"

/* What config_text() shows instead of a secret that is set. */
#define CONFIG_MASK "********"

/* Where an option's value came from; above 0: the line of the file. */
enum config_origin { ORIGIN_DEFAULT = 0, ORIGIN_ENVIRONMENT = -1, ORIGIN_COMMAND_LINE = -2 };

enum config_skewed { SKEWED_ERROR, SKEWED_NOW };
enum config_mode { MODE_OWNER, MODE_GROUP, MODE_ALL };
enum config_score { SCORE_MS, SCORE_S };
enum config_cluster { CLUSTER_AUTO, CLUSTER_NO, CLUSTER_YES };

/* Where a Redis is (config/redis_at.h). */
enum redis_at_kind {
    REDIS_AT_NONE,
    REDIS_AT_SINGLE,
    REDIS_AT_ANY, /* single or a cluster: what CLUSTER SLOTS there says */
    REDIS_AT_SENTINEL,
    REDIS_AT_CLUSTER
};
struct redis_at {
    enum redis_at_kind kind;
    int64_t database;
    char nodes[CONFIG_LIST];  /* as config_next_redis() takes them */
    char master[CONFIG_TEXT]; /* SENTINEL: the name of the master */
};
enum config_damage { DAMAGE_ERROR, DAMAGE_ANSWER };
enum config_kafka_format { KAFKA_JSON, KAFKA_CSV, KAFKA_PROTOBUF };
enum config_kafka_prefix { KAFKA_PREFIX_NONE, KAFKA_PREFIX_CONFLUENT };
enum config_kafka_key { KAFKA_KEY_NONE, KAFKA_KEY_USER };
enum config_kafka_time { KAFKA_TIME_MS, KAFKA_TIME_S, KAFKA_TIME_ISO };

enum config_ack { ACK_LOCAL, ACK_REPLICA, ACK_REPLICA_STRICT };
enum config_start { START_AT_ONCE, START_WHEN_HEARD };
enum config_failover { FAILOVER_NO, FAILOVER_IN_STEP, FAILOVER_LOSSY };
#define CONFIG_IN_CLUSTER "in-cluster"
enum config_registry_check { REGISTRY_CHECK_TTL, REGISTRY_CHECK_GRPC };

/* The engines of the store; store/factory.c opens them. */
enum config_store { STORE_ENGINE_SQLITE, STORE_ENGINE_MEMORY, STORE_ENGINE_MEMORY_LATER, STORE_ENGINE_RADOS };

struct config {
    int64_t store;                       /* enum config_store */
    char data[CONFIG_TEXT];              /* data folder */
    char modules[CONFIG_TEXT];           /* folder; "": see base/module.h */
    char rados_conf[CONFIG_TEXT];        /* path; "": where Ceph looks */
    char rados_pool[CONFIG_TEXT];        /* needed with store = rados */
    char rados_user[CONFIG_TEXT];        /* "client.unseen" */
    int64_t rados_timeout_ms;            /* of each operation */
    int64_t rados_memory;                /* bytes */
    char listen[CONFIG_LIST];            /* addresses as config_next_address() takes them; "none": no TCP */
    char unix_socket[CONFIG_TEXT];       /* path, "" none */
    int64_t unix_socket_mode;            /* enum config_mode */
    char unix_socket_group[CONFIG_TEXT]; /* name or number, "" the process's own */
    char http[CONFIG_LIST];              /* as listen */
    char grpc[CONFIG_LIST];
    char http_hosts[CONFIG_LIST];       /* names beside those of loopback, split by commas */
    char tls_cert[CONFIG_TEXT];         /* files in PEM; "" none */
    char tls_key[CONFIG_TEXT];          /* "": in tls_cert */
    char tls_ca[CONFIG_TEXT];           /* of those that this one connects to; "": the system's */
    char client_ca[CONFIG_TEXT];        /* "": no certificate is asked of clients */
    char requirepass[CONFIG_TEXT];      /* "" none */
    char requirepass_file[CONFIG_TEXT]; /* config_read_passwords() puts its content into requirepass */
    char accounts[CONFIG_TEXT];         /* a file, "" none */
    int64_t max_clients;
    int64_t max_clients_per_address; /* 0: no limit */
    int64_t workers;                 /* 0: one a core */
    int64_t idle_timeout_ms;         /* 0: never */
    int64_t slots;
    int64_t slot_length_ms; /* 0: auto; read it with config_slot_length_ms() */
    int64_t retention;      /* full months */
    int64_t window;         /* full months before the current one; <= retention */
    double error_rate;
    int64_t staging_memory;                      /* bytes; derived, where: */
    int64_t staging_memory_auto;                 /* 1: it is auto */
    int64_t request_memory, wal_limit, min_free; /* bytes */
    int64_t sweep_from, sweep_to;  /* minutes since local midnight, the end excluded (up to 1440); may cross midnight */
    char timezone[CONFIG_TEXT];    /* "" the system's */
    char expect_data[CONFIG_TEXT]; /* "no", "yes", or the path of a mark */
    char backup_root[CONFIG_TEXT]; /* "": see config_backup_root() */
    int64_t backup_at;             /* minute of the local day; -1: never */
    int64_t backup_keep;           /* backups */
    int64_t delivered_max;
    bool hash_seed_given;
    uint64_t hash_seed; /* 16 hex digits */
    int64_t session_ttl_ms;
    int64_t session_memory; /* bytes */
    int64_t pool_memory;    /* bytes */
    int64_t history_memory; /* bytes; 0: none */
    int64_t skewed_time;    /* enum config_skewed */
    int64_t on_damage;      /* enum config_damage */
    int64_t log_level;      /* enum log_level */
    int64_t log_format;     /* enum log_format */
    int64_t slowlog_ms;
    int64_t question_timeout_ms; /* 0: none */
    int64_t hedge_after_ms;      /* 0: auto */

    /* The Redis that users come from; section [legacy]. */
    char legacy_redis[CONFIG_LIST], legacy_sentinel[CONFIG_LIST]; /* as given; legacy_at is what they say */
    int64_t legacy_cluster;                                       /* enum config_cluster */
    char legacy_sentinel_user[CONFIG_TEXT];
    char legacy_sentinel_password[CONFIG_TEXT]; /* "" none */
    char legacy_user[CONFIG_TEXT];              /* "" none */
    char legacy_password[CONFIG_TEXT];
    char legacy_password_file[CONFIG_TEXT];
    int64_t legacy_database;
    char legacy_played_key[CONFIG_TEXT];    /* holds CONFIG_USER once */
    char legacy_delivered_key[CONFIG_TEXT]; /* the same, or "" */
    int64_t legacy_score;                   /* enum config_score */
    int64_t legacy_months;                  /* whose plays are taken, the current one included */
    int64_t legacy_users_rate;              /* a second; 0: no limit */
    int64_t legacy_bytes_rate;              /* the same, bytes */
    int64_t legacy_read_through;            /* 0 no, 1 yes */
    int64_t legacy_timeout_ms;              /* of a question to it */
    int64_t legacy_mirror;                  /* 0 no, 1 yes */
    int64_t legacy_mirror_max;              /* bytes of the mirror's queue */

    /* Topics that plays come from; section [kafka]. The lists are split by config_next_word(). */
    char kafka_brokers[CONFIG_LIST]; /* a list of host:port; "": Kafka is off */
    char kafka_topics[CONFIG_LIST];  /* a list */
    char kafka_group[CONFIG_TEXT];
    char kafka_start[CONFIG_TEXT]; /* read with config_kafka_start() */
    int64_t kafka_format;          /* enum config_kafka_format */
    int64_t kafka_prefix;          /* enum config_kafka_prefix */
    int64_t kafka_key;             /* enum config_kafka_key */
    /* Where in a message: names, columns or numbers, as the format has them. src/kafka/message.h checks them. */
    char kafka_user[CONFIG_TEXT], kafka_item[CONFIG_TEXT];
    char kafka_time[CONFIG_TEXT];                              /* "": the message's own time */
    int64_t kafka_time_unit;                                   /* enum config_kafka_time */
    char kafka_type[CONFIG_TEXT];                              /* "": all are plays */
    char kafka_play[CONFIG_TEXT], kafka_delivery[CONFIG_TEXT]; /* lists: what stands in type */
    char kafka_dead_letters[CONFIG_TEXT];                      /* a folder; read with config_dead_letters() */
    int64_t kafka_dead_letters_max;                            /* bytes */
    char kafka_password_file[CONFIG_TEXT];                     /* config_read_passwords() makes it sasl.password */
    char kafka_properties[CONFIG_PROPERTIES_TEXT];             /* read with config_next_property() */

    /* Where the server registers itself; section [registry]. */
    char registry_consul[CONFIG_TEXT]; /* http[s]://host:port; "" nowhere */
    char registry_token[CONFIG_TEXT];
    char registry_token_file[CONFIG_TEXT]; /* config_read_passwords() puts its content into registry_token */
    char registry_datacenter[CONFIG_TEXT]; /* "" any */
    char registry_name[CONFIG_TEXT];
    char registry_tags[CONFIG_LIST];    /* a list, split by config_next_word() */
    char registry_address[CONFIG_TEXT]; /* "": as listened on */
    int64_t registry_check;             /* enum config_registry_check */

    /* Who keeps the primary's lock, if not Consul; section [lock]. */
    char lock_etcd[CONFIG_LIST];       /* http[s]://host:port, a list, split by config_next_word(); "": none */
    char lock_kubernetes[CONFIG_TEXT]; /* CONFIG_IN_CLUSTER, or http[s]://host:port; "": none */
    char lock_name[CONFIG_TEXT], lock_namespace[CONFIG_TEXT];
    char lock_user[CONFIG_TEXT], lock_password[CONFIG_TEXT];
    char lock_password_file[CONFIG_TEXT]; /* config_read_passwords() puts its content into lock_password */
    char lock_token_file[CONFIG_TEXT], lock_ca[CONFIG_TEXT], lock_cert[CONFIG_TEXT], lock_key[CONFIG_TEXT];

    /* The other machine; section [replica], and feed_max. */
    char replica_of[CONFIG_TEXT]; /* [tls://]host:port of the primary; "": none */
    char replica_user[CONFIG_TEXT];
    char replica_password[CONFIG_TEXT];
    char replica_password_file[CONFIG_TEXT]; /* config_read_passwords() puts its content into replica_password */
    char replica_address[CONFIG_TEXT];       /* [tls://]host:port that reaches this one; "": as listened on */
    int64_t replica_ack;                     /* enum config_ack */
    int64_t replica_ack_timeout_ms;
    int64_t replica_max_age_ms; /* 0: none */
    int64_t replica_start;      /* enum config_start */
    int64_t replica_failover;   /* enum config_failover */
    int64_t replica_hedge;      /* 0 no, 1 yes */
    int64_t feed_max;           /* bytes that may wait for a replica, or the front */

    /* Where what is recorded is kept elsewhere; section [archive]. */
    char archive_url[CONFIG_TEXT];      /* file:///path, or s3://bucket/prefix; "": nowhere */
    char archive_endpoint[CONFIG_TEXT]; /* [http[s]://]host[:port]; "": that of AWS */
    char archive_region[CONFIG_TEXT];
    int64_t archive_path_style;             /* 0 no, 1 yes */
    char archive_keys_file[CONFIG_TEXT];    /* "": the environment */
    char archive_key_file[CONFIG_TEXT];     /* "": not encrypted */
    char archive_old_key_file[CONFIG_TEXT]; /* "": there was none; "none": it was not encrypted */
    int64_t archive_every_ms, archive_keep_ms, archive_rounds_ms;
    int64_t archive_rate; /* bytes a second of a round that is not spread over a day; 0: no limit */

    /* The second tier in a Redis; section [front]. */
    char front_redis[CONFIG_LIST], front_sentinel[CONFIG_LIST]; /* as given; front_at is what they say */
    char front_user[CONFIG_TEXT], front_sentinel_user[CONFIG_TEXT];
    char front_password[CONFIG_TEXT], front_sentinel_password[CONFIG_TEXT]; /* "": none */
    char front_password_file[CONFIG_TEXT];
    int64_t front_database;
    char front_prefix[CONFIG_TEXT]; /* of its keys */
    int64_t front_users_rate;       /* a second, that are brought in or compared; 0: no limit */
    int64_t front_max_age_ms;       /* of answers of serve --front-only; 0: no limit */

    struct redis_at legacy_at, front_at; /* config_validate() reads them from the options */

    struct policies policies; /* the sections [policy NAME], of the file alone; change live */

    int origin[CONFIG_OPTIONS_MAX]; /* of each row of the table: enum config_origin or a line */

    _Atomic(struct config *) changed; /* what config_now() gives in its place; NULL: itself */
    struct config *older;             /* of a changed one: the one before, which a thread may still read */
};

enum config_type {
    CONFIG_STRING,
    CONFIG_ADDRESS, /* [tls://]ip:port, more of them, or none */
    CONFIG_ZONE,
    CONFIG_HOSTS,  /* names of hosts, split by commas */
    CONFIG_SECRET, /* never printed */
    CONFIG_INT,
    CONFIG_SIZE,
    CONFIG_MEMORY, /* a size or auto: two int64_t, of which the second is 1 where the first was derived */
    CONFIG_DURATION,
    CONFIG_RATE,
    CONFIG_ENUM,
    CONFIG_SEED,    /* never printed */
    CONFIG_DAYTIME, /* 03:30, or nothing */
    CONFIG_DAYTIME_RANGE,
    CONFIG_PROPERTIES /* "name=value; name=value"; setting it adds to what is there. Secrets among them are masked */
};
enum config_change { CHANGE_LIVE, CHANGE_RESTART, CHANGE_FIXED };

struct config_option {
    const char *name;
    enum config_type type;
    size_t offset;            /* in struct config */
    double min, max;          /* in the option's unit (bytes, ms, ...), where it has a range; of a text: its length */
    const char *const *words; /* CONFIG_ENUM: the choices, in the enum's order, NULL-ended */
    const char *default_text;
    const char *zero; /* CONFIG_DURATION: a word that stands for 0, which is not in its range; NULL: none */
    const char *unit; /* said behind the range: "months", "" */
    enum config_change change;
    const char *on_change; /* what a change means for an existing folder */
    const char *help;      /* whole sentences */
    const char *instead;   /* of an old name: what says the same now; NULL: it is none */
};

extern const struct config_option config_options[];
extern const size_t config_options_count;

/* The sections besides [unseen]; NULL-ended. The option is then SECTION_NAME. */
extern const char *const config_sections[];

/* Of those, the one in which the option stands; "": in [unseen]. */
const char *config_section(const char *option);

const struct config_option *config_find(const char *name); /* NULL: no such option */
const char *config_nearest(const char *name);              /* the name that was probably meant; NULL: none is near */

void config_defaults(struct config *cfg);

/* What auto stands for, where the process may use so many bytes (0: that can't be told): a quarter, at least so many.
 */
int64_t config_auto_memory(int64_t limit, double least);

/* Sets one option from its text. ERR_NOTFOUND (unknown; the nearest name is suggested), ERR_RANGE, ERR_INVALID:
 * the text names the option, the value and what was expected. "kafka_security.protocol", a name with a dot, is a
 * property, see below. */
int config_set(struct config *cfg, const char *name, const char *value, struct err *err);

struct config_address {
    char host[CONFIG_HOST_TEXT]; /* numeric, without brackets */
    int port;
    bool tls;
};

/* The next of the addresses that an option lists, split by commas or spaces: "ip:port" or "[v6]:port", perhaps with
 * tls:// before it; localhost is 127.0.0.1. "none" lists none. *at begins at the text. 1, 0 at the end, or ERR_INVALID.
 */
int config_next_address(const char **at, struct config_address *out);

/* The same of a Redis, as text: "host:port", perhaps with tls:// before it, or the one path of a socket. Returns false
 * at the end. */
bool config_next_redis(const char **at, char out[CONFIG_TEXT]);

/* Whether it looks like "host:port" or "[v6]:port"; and that, or tls:// before it. */
bool config_is_host_port(const char *text);
bool config_is_port(const char *text);
bool config_is_node(const char *text);

/* An option names a tls:// address: 0, or ERR_INVALID where there is no OpenSSL. */
int config_validate_tls(const char *option, const char *value, struct err *err);

/* What leads to the Redis that users come from, as given: legacy_sentinel or legacy_redis; "": there is none. */
const char *config_legacy(const struct config *cfg);
bool config_is_loopback(const char *host);
bool config_is_wildcard(const char *host); /* all addresses, of which none leads here from elsewhere */

/* The next word of a list that is split by commas or spaces; false: there are no more. *at begins at the text. */
bool config_next_word(const char **at, struct slice *word);

/* librdkafka's own properties, which [kafka] hands through: security.*, sasl.*, ssl.* by their names, any other as
 * rdkafka.NAME. Those that the service must decide itself are refused by config_set(). Whether librdkafka knows a
 * name, only its module can say, when the service starts.
 *
 *   const char *at = cfg->kafka_properties;
 *   while (config_next_property(&at, &property)) rd_kafka_conf_set(conf, property.name, property.value, ...)
 */
struct config_property {
    char name[CONFIG_PROPERTY_NAME]; /* without "rdkafka." */
    char value[CONFIG_TEXT];
    bool secret; /* never to be logged */
};
bool config_next_property(const char **at, struct config_property *out);

/* Where a partition is begun that this folder has never held: unix ms, or one of these, which have librdkafka's
 * values. cfg is a validated one. */
enum { CONFIG_START_EARLIEST = -2, CONFIG_START_LATEST = -1 };
int64_t config_kafka_start(const struct config *cfg);

/* The folder of dead letters: the option's, or the data folder. */
const char *config_dead_letters(const struct config *cfg);

/* Reads a file over what cfg holds; an error leaves cfg as it was. The first error is returned as "path:line: ...".
 * Every problem is given to each() if it is not NULL, so that check-config can list all of them. */
typedef void config_problem_fn(void *arg, const char *problem);
int config_load(struct config *cfg, const char *path, config_problem_fn *each, void *arg, struct err *err);

/* Applies the environment to cfg, in the same way: UNSEEN_SLOTS is slots. A variable UNSEEN_* that is no option is an
 * error when its name is close to an option's, and ignored otherwise. */
int config_environment(struct config *cfg, config_problem_fn *each, void *arg, struct err *err);
void config_variable(const struct config_option *option, char out[CONFIG_VARIABLE_TEXT]); /* "UNSEEN_SLOTS" */

/* Reads requirepass_file, legacy_password_file, kafka_password_file and registry_token_file, where they are given, into
 * requirepass, legacy_password, the property sasl.password and registry_token; once a configuration. ERR_INVALID (given
 * both ways, or not one line), ERR_NOTFOUND, ERR_IO. Programs that need no password don't read them, and so may run for
 * users who are not allowed to. */
int config_read_passwords(struct config *cfg, struct err *err);
int config_read_requirepass(struct config *cfg, struct err *err);
int config_read_legacy_password(struct config *cfg, struct err *err);

/* Checks what concerns several options: window <= retention, a public listen needs a password, ... And reads legacy_at
 * and front_at. */
int config_validate(struct config *cfg, struct err *err);

/* The complete configuration in force. started: what the server was started with. Any thread; it stays readable until
 * config_forget_changes(). Work that must see one configuration, such as a question, asks once. */
static inline const struct config *config_now(const struct config *started)
{
    const struct config *changed = atomic_load_explicit(&started->changed, memory_order_acquire);
    return changed != NULL ? changed : started;
}

/* Takes the CHANGE_LIVE options that `read` has otherwise, all at once or, when the result would not be valid, none:
 * an error of config_validate(). each() is told of every option that differs: of CHANGE_LIVE ones how they were and
 * are; of the others, which need a restart, what was configured at the start (`started` itself may have been fitted to
 * the machine since) and what was read. Secrets come as CONFIG_MASK. Policies count as one option, of which it isn't
 * told. One thread. Returns how many live options changed. */
typedef void config_change_fn(void *arg, const struct config_option *option, const char *before, const char *after);
int config_change(struct config *started, const struct config *configured, const struct config *read,
                  config_change_fn *each, void *arg, struct err *err);

/* Returns to what the server was started with. Only when no thread reads any other. */
void config_forget_changes(struct config *started);

/* Below which the server may be told to make backups: backup_root, or the data folder's path with "-backups" behind it.
 * ERR_INVALID: none at all; ERR_SYSTEM: the data folder is not there. */
int config_backup_root(const struct config *cfg, char *out, size_t size, struct err *err);

/* When the next backup of backup_at is due, which has passed while it is overdue; 0: never. */
int64_t config_backup_next_ms(const struct config *cfg, int64_t last_good_ms, int64_t now_ms);

/* After how long the ring turns. What a flush writes is the pages of all who played in the slot: with 6 h a quarter of
 * what it is with 1 h (docs/scale.md), and where memory is short the ring turns earlier by itself. */
static inline int64_t config_slot_length_ms(const struct config *cfg)
{
    return cfg->slot_length_ms != 0 ? cfg->slot_length_ms : INT64_C(6) * 3600 * 1000;
}

/* Whether clients must say who they are. A file with the password counts, whether it was read yet or not. */
static inline bool config_wants_login(const struct config *cfg)
{
    return cfg->requirepass[0] != '\0' || cfg->requirepass_file[0] != '\0' || cfg->accounts[0] != '\0';
}

/* Whether the sweep may run then, by the local clock. */
static inline bool config_in_sweep_window(const struct config *cfg, int64_t now_ms)
{
    return calendar_is_between(now_ms, (int)cfg->sweep_from, (int)cfg->sweep_to);
}

/* "10min": a time as options have it, whatever their range. False: it is none. */
bool config_read_duration(const char *text, int64_t *ms);
void config_print_duration(int64_t ms, char *out, size_t out_size);

/* The option's value as it would be written in the file; a secret that is set is CONFIG_MASK. */
void config_text(const struct config *cfg, const struct config_option *option, char *out, size_t out_size);

/* The range of an option for people, such as "4MiB to 1TiB" or "1 to 120 months"; "" where it has none. */
void config_range_text(const struct config_option *option, char *out, size_t out_size);

/* The sample file, with every option explained and set to its default (commented out). 0 or ERR_IO. */
int config_write_sample(FILE *out);

#endif
