/* The command line: one file a subcommand, a table of them in main.c.
 *
 * A subcommand gets argv from its own name on and returns the exit code. Results go to standard output, an error, in
 * one line, to standard error.
 */
#ifndef UNSEEN_CLI_CLI_H
#define UNSEEN_CLI_CLI_H

#include "base/err.h"

/* EXIT_CONFIG, EX_CONFIG of sysexits.h: serve can't start, nor can it when it is tried again. */
enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CONFIG = 78 };

struct cli_command {
    const char *name; /* NULL ends the table */
    int (*run)(int argc, char **argv);
    const char *summary;
};

int cli_archive(int argc, char **argv);
int cli_restore(int argc, char **argv);
int cli_account(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_user(int argc, char **argv);
int cli_why(int argc, char **argv);
int cli_months(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_clock(int argc, char **argv);
int cli_front(int argc, char **argv);
int cli_kafka(int argc, char **argv);
int cli_merge(int argc, char **argv);
int cli_migrate(int argc, char **argv);
int cli_backup(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_load(int argc, char **argv);
int cli_pool(int argc, char **argv);
int cli_promote(int argc, char **argv);
int cli_ping(int argc, char **argv);
int cli_policy(int argc, char **argv);
int cli_check_config(int argc, char **argv);
int cli_size(int argc, char **argv);
int cli_demo(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_clone(int argc, char **argv);
int cli_rados(int argc, char **argv);
int cli_replica(int argc, char **argv);
int cli_rejoin(int argc, char **argv);
int cli_version(int argc, char **argv);

/* `unseen help [SUBCOMMAND]`. */
int cli_help(const struct cli_command *commands, int argc, char **argv);

/* Printed when no subcommand, or an unknown one, is given. Both return EXIT_USAGE. */
int cli_no_command(const struct cli_command *commands);
int cli_unknown_command(const struct cli_command *commands, const char *name);

/* Prints "unseen: <text>" and returns EXIT_FAILED. */
int cli_fail(const struct err *err);

#endif
