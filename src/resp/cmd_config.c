/* CONFIG GET: our own options, as they stand in a file; and those of Redis that tools ask for before they do anything
 * else, as far as there is a true answer here. */
#include <inttypes.h>
#include <stdio.h>

#include "base/glob.h"
#include "resp/args.h"
#include "resp/command.h"
#include "service/slowlog.h"

enum { PATTERN_MAX = 128, PATTERNS_MAX = 128, NUMBER_TEXT = 24 };

static int64_t max_clients(const struct config *live)
{
    return live->max_clients;
}

static int64_t slowlog_us(const struct config *live)
{
    return live->slowlog_ms * 1000;
}

static int64_t slowlog_max(const struct config *live)
{
    (void)live;
    return SLOWLOG_MAX;
}

static int64_t idle_s(const struct config *live)
{
    return live->idle_timeout_ms / 1000;
}

/* In the order of names. */
static const struct redis_option {
    const char *name;
    const char *text; /* what it always is; NULL: */
    int64_t (*number)(const struct config *live);
} redis_options[] = {
    {"appendfsync", "always", NULL}, /* a write is answered after its fsync */
    {"appendonly", "yes", NULL},
    {"cluster-enabled", "no", NULL},
    {"databases", "1", NULL},
    {"latency-monitor-threshold", "0", NULL},
    {"maxclients", NULL, max_clients},
    {"maxmemory", "0", NULL}, /* nothing that was acknowledged is ever evicted */
    {"maxmemory-policy", "noeviction", NULL},
    {"notify-keyspace-events", "", NULL},
    {"replica-read-only", "yes", NULL},
    {"save", "", NULL},
    {"slave-read-only", "yes", NULL},
    {"slowlog-log-slower-than", NULL, slowlog_us},
    {"slowlog-max-len", NULL, slowlog_max},
    {"timeout", NULL, idle_s},
};

enum { N_REDIS = sizeof redis_options / sizeof *redis_options };

static bool matches(const char *name, const struct slice *patterns, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (patterns[i].len <= PATTERN_MAX && glob_fits(patterns[i], slice_str(name))) {
            return true;
        }
    }
    return false;
}

static void write_own(struct writer *w, const struct config *cfg, const struct config_option *option)
{
    char text[CONFIG_VALUE_TEXT] = "";
    config_text(cfg, option, text, sizeof text);
    write_str(w, option->name);
    write_str(w, text);
}

static void write_redis(struct writer *w, const struct config *cfg, const struct redis_option *option)
{
    char number[NUMBER_TEXT] = "";
    if (option->text == NULL) {
        snprintf(number, sizeof number, "%" PRId64, option->number(cfg));
    }
    write_str(w, option->name);
    write_str(w, option->text != NULL ? option->text : number);
}

/* CONFIG GET pattern [pattern ...] */
enum outcome cmd_config_get(struct resp_client *s, const struct slice *args, size_t n)
{
    const struct config *cfg = resp_client_config(s);
    bool own[CONFIG_OPTIONS_MAX], redis[N_REDIS];
    size_t found = 0;
    if (n - 2 > PATTERNS_MAX) {
        return resp_client_refuse(s, "ERR %zu patterns, expected at most %d", n - 2, PATTERNS_MAX);
    }
    for (size_t i = 0; i < config_options_count; i++) {
        own[i] = matches(config_options[i].name, args + 2, n - 2);
        found += own[i];
    }
    for (size_t i = 0; i < N_REDIS; i++) {
        redis[i] = matches(redis_options[i].name, args + 2, n - 2);
        found += redis[i];
    }
    write_map(&s->writer, found);
    for (size_t i = 0; i < config_options_count; i++) {
        if (own[i]) {
            write_own(&s->writer, cfg, &config_options[i]);
        }
    }
    for (size_t i = 0; i < N_REDIS; i++) {
        if (redis[i]) {
            write_redis(&s->writer, cfg, &redis_options[i]);
        }
    }
    return OUTCOME_ANSWERED;
}
