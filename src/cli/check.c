#include <stdio.h>

#include "base/plural.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] =
    "Reads the data folder through: both files, every filter, every key and count.\n\n"
    "Usage: unseen check [--repair] [--json] [OPTION ...]\n\n"
    "Changes nothing, and works while a server runs. Exit code 1 when there is a problem.\n\n"
    "With --repair, which needs the folder for itself, it accepts the loss of what can't be read:\n"
    "says what is lost, sets it aside and counts anew, so that the users concerned are answered\n"
    "without it. Then it checks what is left.\n\n"
    "Options:\n"
    "      --repair           accept what is lost\n"
    "      --json             print JSON\n\n"
    "Examples:\n"
    "  unseen check --data /var/lib/unseen\n"
    "  unseen check --json | jq '.problems[]'\n"
    "  unseen check --repair --data /var/lib/unseen\n";

struct checking {
    struct progress progress;
    struct json *json; /* NULL: for people */
    uint64_t n_problems;
};

/* A line for people, or an element of the JSON list that is open. */
static void say(struct checking *c, const char *text)
{
    struct buf line = {0};
    if (c->json != NULL) {
        json_text(c->json, NULL, text);
        return;
    }
    struct progress bar = c->progress; /* goes on below what is printed */
    progress_end(&c->progress);
    c->progress = bar;
    escape_id(&line, slice_str(text));
    printf("%.*s\n", (int)line.len, line.data);
    fflush(stdout);
    buf_free(&line);
}

static void found(void *arg, const char *problem)
{
    struct checking *c = arg;
    c->n_problems++;
    say(c, problem);
}

static void repaired(void *arg, const char *what)
{
    say(arg, what);
}

static void advanced(void *arg, uint64_t done, uint64_t total)
{
    struct checking *c = arg;
    progress_show(&c->progress, done, total, "%llu problem%s", (unsigned long long)c->n_problems,
                  plural(c->n_problems));
}

static void mended(void *arg, uint64_t done, uint64_t total)
{
    struct checking *c = arg;
    progress_show(&c->progress, done, total, "users' months");
}

static int repair(struct checking *c, const struct config *cfg, struct err *err)
{
    if (c->json != NULL) {
        json_open(c->json, "repairs", '[');
    }
    progress_begin(&c->progress, "repair", c->json != NULL);
    int repairs = sqlite_repair_folder(cfg->data, repaired, mended, c, err);
    progress_end(&c->progress);
    if (c->json != NULL) {
        json_close(c->json, ']');
    } else if (repairs >= 0) {
        printf("%s: %d repair%s\n", cfg->data, repairs, plural((uint64_t)repairs));
    }
    return repairs;
}

int cli_check(int argc, char **argv)
{
    bool json = false;
    bool mend = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"repair", &mend, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"check", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct config cfg;
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    struct json j = {.out = stdout};
    struct checking checking = {.json = json ? &j : NULL};
    if (json) {
        json_open(&j, NULL, '{');
        json_text(&j, "data", cfg.data);
    }
    int repairs = mend ? repair(&checking, &cfg, &err) : 0;
    if (json) {
        json_open(&j, "problems", '[');
    }
    progress_begin(&checking.progress, "check", json);
    /* Whoever has the lock keeps it: then the files are only read. */
    bool served = false;
    int rc = repairs < 0 ? repairs : sqlite_check_folder(cfg.data, served, found, advanced, &checking, &err);
    if (rc == ERR_LOCKED && !mend) {
        served = true;
        rc = sqlite_check_folder(cfg.data, served, found, advanced, &checking, &err);
    }
    progress_end(&checking.progress);
    if (json) {
        json_close(&j, ']');
        json_bool(&j, "served", served);
        json_bool(&j, "complete", rc >= 0);
        json_close(&j, '}');
    }
    if (rc < 0) {
        return cli_fail(&err);
    }
    if (!json) {
        printf("%s: %s%llu problem%s\n", cfg.data, served ? "in use by a server, checked as it stands: " : "",
               (unsigned long long)checking.n_problems, plural(checking.n_problems));
    }
    return checking.n_problems == 0 ? EXIT_GOOD : EXIT_FAILED;
}
