#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/lib/source.h"

static const char help[] =
    "Copies the data folder into DIR while it is served, and checks the copy.\n\n"
    "Usage: unseen backup DIR [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "DIR must be empty or not exist yet, and have room. The running server makes the copy, and\n"
    "only below its backup_root. When none runs, this command makes it, anywhere. The copy holds\n"
    "every play that was acknowledged before, and nothing that was forgotten before. It is whole\n"
    "when this command ends with 0: then DIR holds staging.db and history.db, each one plain file.\n"
    "When this command is interrupted the server goes on: see INFO backup, or the log.\n\n"
    "To restore, stop the server, put both files into the data folder (and nothing else), run\n"
    "`unseen check`, start.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --json             print JSON\n\n"
    "Examples:\n"
    "  unseen backup /var/lib/unseen-backups/2026-11-21\n"
    "  cd /var/lib/unseen-backups && unseen backup \"$(date +%F)\" && unseen check --data \"$(date +%F)\"\n"
    "  unseen backup /var/lib/unseen-backups/copy --json | jq .bytes\n";

static void show(void *arg, const char *phase, uint64_t done, uint64_t total)
{
    progress_show(arg, done, total, "%s", phase);
}

static void print_result(const char *folder, const struct source_backup *b, bool json)
{
    char size[OUTPUT_TEXT];
    if (json) {
        struct json j = {.out = stdout};
        json_open(&j, NULL, '{');
        json_text(&j, "folder", folder);
        json_number(&j, "bytes", (int64_t)b->bytes);
        json_number(&j, "ms", b->took_ms);
        json_number(&j, "problems", (int64_t)b->problems);
        json_close(&j, '}');
        return;
    }
    printf("%s: %s, copied and checked in %.1f s\n", folder, size_text(b->bytes, size), (double)b->took_ms / 1000);
    if (b->problems > 0) {
        printf("the check found %llu problem%s, which the data folder has too: `unseen check` names %s\n",
               (unsigned long long)b->problems, plural(b->problems), b->problems == 1 ? "it" : "them");
    }
}

int cli_backup(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"backup", help, "DIR", 1, 1, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (options.words[0][0] == '\0') {
        return cli_misuse("backup", "DIR is empty, expected the path of a folder");
    }
    struct config cfg;
    struct source *source;
    struct err err;
    char folder[PATH_MAX];
    /* Of another machine only it knows which folder that is. */
    if ((to != NULL ? snprintf(folder, sizeof folder, "%s", options.words[0]) >= (int)sizeof folder &&
                          err_set(&err, ERR_INVALID, "the path is too long")
                    : cli_whole_path(options.words[0], folder, &err) < 0) ||
        cli_options_config(&options, &cfg, &err) < 0 || source_open(&cfg, to, &source, &err) < 0) {
        return cli_fail(&err);
    }
    struct progress progress;
    struct source_backup backup = {.progress = show, .arg = &progress};
    progress_begin(&progress, "backup", json);
    int rc = source_backup(source, folder, &backup, &err);
    progress_end(&progress);
    if (rc < 0) {
        cli_fail(&err);
    } else {
        print_result(folder, &backup, json);
    }
    source_close(source);
    return rc < 0 ? EXIT_FAILED : EXIT_GOOD;
}
