/* The configuration: an INI file (libinih) whose options are the rows of one table.
 *
 * From the table come the parser, the sample file, `unseen check-config` and CONFIG GET. Sizes are
 * written as 256MiB, 1GiB, 4096 (bytes); times as 1h, 10min, 500ms; yes/no as yes, no.
 */
#ifndef UNSEEN_CONFIG_CONFIG_H
#define UNSEEN_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum { CONFIG_TEXT = 256 };

enum config_skewed { SKEWED_ERROR, SKEWED_NOW };
enum config_damage { DAMAGE_ERROR, DAMAGE_ANSWER };

struct config {
    char data[CONFIG_TEXT];        /* data folder */
    char listen[CONFIG_TEXT];      /* host:port, [v6]:port; "none": no TCP */
    char unix_socket[CONFIG_TEXT]; /* path, "" none */
    char requirepass[CONFIG_TEXT]; /* "" none */
    int64_t max_clients;
    int64_t workers;         /* 0: one a core */
    int64_t idle_timeout_ms; /* 0: never */
    int64_t slots;
    int64_t slot_length_ms;
    int64_t retention; /* full months */
    int64_t window;    /* full months before the current one; <= retention */
    double error_rate;
    int64_t staging_memory, request_memory, wal_limit, min_free; /* bytes */
    int64_t sweep_from, sweep_to; /* minutes since local midnight; sweep_window = 00:00-05:00 */
    char timezone[CONFIG_TEXT];   /* "" the system's */
    int64_t delivered_max;
    bool hash_seed_given;
    uint64_t hash_seed;  /* 16 hex digits */
    int64_t skewed_time; /* enum config_skewed */
    int64_t on_damage;   /* enum config_damage */
    int64_t log_level;   /* enum log_level */
};

enum config_type {
    CONFIG_STRING,
    CONFIG_INT,
    CONFIG_SIZE,
    CONFIG_DURATION,
    CONFIG_RATE,
    CONFIG_BOOL,
    CONFIG_ENUM,
    CONFIG_SEED,
    CONFIG_DAYTIME_RANGE
};
enum config_change { CHANGE_LIVE, CHANGE_RESTART, CHANGE_FIXED };

struct config_option {
    const char *name;
    enum config_type type;
    size_t offset;            /* in struct config */
    double min, max;          /* in the option's unit (bytes, ms, ...), where it has a range */
    const char *const *words; /* CONFIG_ENUM: the choices, in the enum's order, NULL-ended */
    const char *default_text;
    const char *unit; /* for the help: "bytes", "months", "" */
    enum config_change change;
    const char *on_change; /* what a change means for an existing folder */
    const char *help;      /* whole sentences */
};

extern const struct config_option config_options[];
extern const size_t config_options_count;

void config_defaults(struct config *cfg);

/* Sets one option from its text. ERR_NOTFOUND (unknown; the nearest name is suggested), ERR_RANGE, ERR_INVALID:
 * the text names the option, the value and what was expected. */
int config_set(struct config *cfg, const char *name, const char *value, struct err *err);

/* Reads a file over what cfg holds. The first error is returned as "path:line: ...". Every problem is given to
 * each() if it is not NULL, so that check-config can list all of them. */
int config_load(struct config *cfg, const char *path, void (*each)(void *arg, const char *problem), void *arg,
                struct err *err);

/* What one option can't see alone: window <= retention, a public listen needs a password, ... */
int config_validate(const struct config *cfg, struct err *err);

/* The option's value as it would be written in the file. */
void config_text(const struct config *cfg, const struct config_option *option, char *out, size_t out_size);

/* The sample file, with every option explained and set to its default (commented out). */
int config_write_sample(FILE *out);

#endif
