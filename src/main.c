/* unseen SUBCOMMAND ...: which of these candidates has this user not seen yet? */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

static const struct cli_command commands[] = {
    {"serve", cli_serve, "run the service"},
    {"import", cli_import, "load plays from files"},
    {"migrate", cli_migrate, "bring users over from another Redis"},
    {"kafka", cli_kafka, "show how far the reading from Kafka is"},
    {"user", cli_user, "show what is remembered of a user"},
    {"why", cli_why, "say why an item is hidden from a user"},
    {"policy", cli_policy, "show what hides a candidate, and what each policy hid"},
    {"months", cli_months, "list the stored months"},
    {"check", cli_check, "read the data folder through and list what is damaged"},
    {"clock", cli_clock, "show what is believed of the clock, or accept it"},
    {"backup", cli_backup, "copy the data folder while it is served"},
    {"archive", cli_archive, "show and check the archive elsewhere"},
    {"restore", cli_restore, "make a data folder from an archive"},
    {"clone", cli_clone, "make a replica of a running primary"},
    {"rejoin", cli_rejoin, "bring an old primary back as a replica"},
    {"replica", cli_replica, "show who follows whom, and how far behind"},
    {"front", cli_front, "show the Redis in front, compare it, fill it again"},
    {"rados", cli_rados, "make a pool of Ceph ready for store = rados"},
    {"export", cli_export, "write users into a file, to move them"},
    {"load", cli_load, "load users from such a file"},
    {"merge", cli_merge, "let what is known of a user be known of another one, too"},
    {"pool", cli_pool, "keep lists of candidates on the server"},
    {"promote", cli_promote, "make a replica the primary"},
    {"ping", cli_ping, "ask whether the server answers"},
    {"account", cli_account, "keep the file of accounts"},
    {"demo", cli_demo, "run a server with a made-up history, to try it"},
    {"size", cli_size, "reckon what a number of users takes"},
    {"doctor", cli_doctor, "look at machine, folder and server, and say what to do"},
    {"check-config", cli_check_config, "check a configuration file"},
    {"bench", cli_bench, "measure a running server"},
    {"version", cli_version, "print the versions"},
    {0},
};

static int run(int argc, char **argv)
{
    if (argc == 0) {
        return cli_no_command(commands);
    }
    if (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        return cli_help(commands, argc, argv);
    }
    if (strcmp(argv[0], "--version") == 0) {
        return cli_version(argc, argv);
    }
    for (const struct cli_command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, argv[0]) == 0) {
            return c->run(argc, argv);
        }
    }
    return cli_unknown_command(commands, argv[0]);
}

/* A closed standard stream's number would go to the next file that is opened, and what is logged or printed into that.
 * What is opened in its place can't be read or written either, so that the loss is still noticed. */
static int open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (open_standard_streams() < 0) {
        return EXIT_FAILED;
    }
    umask(0027);              /* what people watched is private */
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails, as on a full disk, and what it made is removed */
    log_set_level(LOG_LEVEL_ERROR); /* only serve tells its life */
    int exit_code = run(argc - 1, argv + 1);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "unseen: can't write to standard output: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    return exit_code;
}
