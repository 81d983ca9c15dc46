/* Reads a subcommand's arguments: words, its own options, and every option of the configuration as --name value (with
 * '-' for '_').
 *
 * The configuration is built in this order: defaults, the file (-c FILE, else /etc/unseen/unseen.conf if there is one),
 * the environment, the command line. --test-clock starts the test clock at once.
 */
#ifndef UNSEEN_CLI_LIB_OPTIONS_H
#define UNSEEN_CLI_LIB_OPTIONS_H

#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "config/config.h"

#define CLI_CONFIG_PATH UNSEEN_SYSCONFDIR "/unseen/unseen.conf"

enum { CLI_OVERRIDES_MAX = 64 };

/* An option of one subcommand: exactly one of flag and value is set. */
struct cli_flag {
    const char *name; /* without the dashes; NULL ends the list */
    bool *flag;
    const char **value;
};

struct cli_syntax {
    const char *command;
    const char *help;             /* everything that --help prints, except the options that every subcommand takes */
    const char *words;            /* "USER ITEM", for the error when there are too few or too many */
    int min_words, max_words;     /* max -1: any number */
    const struct cli_flag *flags; /* NULL: none */
    bool plain;                   /* takes no configuration: no -c, no --data ... */
};

struct cli_options {
    char **words; /* point into argv, whose order changes */
    int n_words;
    const char *config_path; /* -c, or the default file if there is one, or NULL */
    struct cli_override {
        const char *name, *value;
    } overrides[CLI_OVERRIDES_MAX];
    int n_overrides;
};

/* Returns true to continue; false when the command is done (help or an error was printed), with its exit code. */
bool cli_options_read(const struct cli_syntax *syntax, int argc, char **argv, struct cli_options *out, int *exit_code);

/* Builds the configuration, validates it, and sets the time zone. An error in the file is an ERR_* with "path:line:
 * ...". No file with a password is read: a subcommand may run for a user who is not allowed to, and what connects to a
 * server reads what it needs (net/client.h). What a server runs with is read by serve_config_read(). */
int cli_options_config(const struct cli_options *options, struct config *cfg, struct err *err);

/* Sets the time zone to that of the configuration. */
int cli_options_zone(const struct config *cfg, struct err *err);

/* The same before it is validated. Every problem goes to each() if that is not NULL, as config_load() has it; the first
 * is the error. */
int cli_options_build(const struct cli_options *options, struct config *cfg, config_problem_fn *each, void *arg,
                      struct err *err);

/* Whether the configured store has a data folder that a command can work on: 0, or ERR_INVALID. */
int cli_options_has_folder(const struct config *cfg, struct err *err);

/* Prints "unseen COMMAND: ..." and returns EXIT_USAGE. */
int cli_misuse(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For suggestions: which of candidate and best (NULL: none yet) is nearer to the word; NULL when neither is near. */
const char *cli_nearer(const char *word, const char *candidate, const char *best);

/* Makes a relative path absolute, for another process to open or compare. */
int cli_whole_path(const char *path, char out[PATH_MAX], struct err *err);

#endif
