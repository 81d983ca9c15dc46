#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/rados/pool_rate.h"
#include "cli/replica/mend.h"
#include "store/rados/rados_store.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] =
    "Reads the data folder through: both files, every filter, every key and count, and whether both\n"
    "files belong together.\n\n"
    "Usage: unseen check [--repair [--nameless WHAT] [--from ADDRESS [--force]] | --salvage DIR] [--json] [OPTION "
    "...]\n\n"
    "Changes nothing, and works while a server runs. Exit code 1 when there is a problem.\n\n"
    "With --repair, which needs the folder for itself, it accepts the loss of what can't be read:\n"
    "says what is lost, sets it aside and recounts, so that the users concerned are answered\n"
    "without it. Then it checks what is left. Plays whose user's name is lost are kept: a user with\n"
    "their key is answered with them. With --nameless drop they are deleted.\n\n"
    "With --from, what this and earlier repairs gave up comes from another node that has the same\n"
    "users: a replica, or the primary that this is a replica of. Nothing is done unless that one has\n"
    "all that this folder had acknowledged. What can't be read there either stays lost.\n\n"
    "With --salvage, for files that are cut short or overwritten in part, it saves what can be read\n"
    "into DIR, which is new or empty, and leaves the folder as it is. Users who may have lost plays\n"
    "are marked there: their questions get an error until --repair accepts the loss.\n\n"
    "With store = rados it reads the pool through instead: every object, key and value, whether they\n"
    "belong together, and when the nightly walk came by last. Nodes go on meanwhile. It repairs nothing:\n"
    "that is refused, and says what stands instead.\n\n"
    "Options:\n"
    "      --rate N           of a pool: read at most N objects a second (default 2000; 0: no limit)\n"
    "      --repair           accept what is lost\n"
    "      --nameless WHAT    with --repair: keep (default) or drop plays without a user's name\n"
    "      --from ADDRESS     with --repair: repair what is lost from another node, host:port\n"
    "      --force            with --from: also when that node lacks some of what the folder had\n"
    "      --user NAME        with --from: the account there, of role admin\n"
    "      --salvage DIR      save what can be read into DIR\n"
    "      --json             print JSON\n\n"
    "Examples:\n"
    "  unseen check --data /var/lib/unseen\n"
    "  unseen check --json | jq '.problems[]'\n"
    "  unseen check --repair --data /var/lib/unseen\n"
    "  unseen check --repair --from 10.0.0.2:7979 --data /var/lib/unseen\n"
    "  unseen check --salvage /var/lib/unseen.saved --data /var/lib/unseen\n";

struct checking {
    struct progress progress;
    struct json *json; /* NULL: for people */
    uint64_t n_problems;
    enum sqlite_nameless nameless;
    struct mend from; /* address NULL: no node has what is lost */
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
    struct mend *from = &c->from;
    progress_begin(&c->progress, "repair", c->json != NULL);
    int repairs = from->address != NULL ? mend_open(from, err) : 0;
    repairs = repairs < 0 ? repairs : sqlite_repair_folder(cfg->data, c->nameless, repaired, mended, c, err);
    if (repairs >= 0 && from->address != NULL) {
        int came = mend_losses(from, err);
        repairs = came < 0 ? came : repairs + came;
    }
    mend_close(from);
    progress_end(&c->progress);
    if (c->json != NULL) {
        json_close(c->json, ']');
    } else if (repairs >= 0) {
        printf("%s: %d repair%s\n", cfg->data, repairs, plural((uint64_t)repairs));
    }
    return repairs;
}

static void saved(void *arg, uint64_t done, uint64_t total)
{
    struct checking *c = arg;
    (void)total;
    progress_show(&c->progress, done, 0, "rows");
}

static int salvage(struct checking *c, const struct config *cfg, const char *target)
{
    char path[PATH_MAX];
    struct err err = {0};
    const struct sqlite_salvage order = {.folder = cfg->data,
                                         .target = path,
                                         .seed = cfg->hash_seed_given ? &cfg->hash_seed : NULL,
                                         .did = repaired,
                                         .progress = saved,
                                         .arg = c};
    int losses = cli_whole_path(target, path, &err);
    if (c->json != NULL) {
        json_open(c->json, NULL, '{');
        json_text(c->json, "data", cfg->data);
        json_text(c->json, "target", path);
        json_open(c->json, "losses", '[');
    }
    progress_begin(&c->progress, "salvage", c->json != NULL);
    losses = losses == 0 ? sqlite_salvage_folder(&order, &err) : losses;
    progress_end(&c->progress);
    if (c->json != NULL) {
        json_close(c->json, ']');
        json_bool(c->json, "complete", losses >= 0);
        json_close(c->json, '}');
    }
    if (losses < 0) {
        return cli_fail(&err);
    }
    if (c->json == NULL) {
        printf("%s: saved into %s, %d loss%s\n", cfg->data, path, losses, losses == 1 ? "" : "es");
        if (losses > 0) {
            printf("next: unseen check --data %s names the users whose questions get an error until --repair\n", path);
        }
    }
    return EXIT_GOOD;
}

static int check(struct checking *c, const struct config *cfg, bool mend)
{
    struct err err = {0};
    if (c->json != NULL) {
        json_open(c->json, NULL, '{');
        json_text(c->json, "data", cfg->data);
    }
    int repairs = mend ? repair(c, cfg, &err) : 0;
    if (c->json != NULL) {
        json_open(c->json, "problems", '[');
    }
    progress_begin(&c->progress, "check", c->json != NULL);
    /* If another has the lock, it keeps it: then the files are only read. */
    bool served = false;
    int rc = repairs < 0 ? repairs : sqlite_check_folder(cfg->data, served, found, advanced, c, &err);
    if (rc == ERR_LOCKED && !mend) {
        served = true;
        rc = sqlite_check_folder(cfg->data, served, found, advanced, c, &err);
    }
    progress_end(&c->progress);
    if (c->json != NULL) {
        json_close(c->json, ']');
        json_bool(c->json, "served", served);
        json_bool(c->json, "complete", rc >= 0);
        json_close(c->json, '}');
    }
    if (rc < 0) {
        return cli_fail(&err);
    }
    if (c->json == NULL) {
        printf("%s: %s%llu problem%s\n", cfg->data, served ? "in use by a server, checked as it stands: " : "",
               (unsigned long long)c->n_problems, plural(c->n_problems));
    }
    return c->n_problems == 0 ? EXIT_GOOD : EXIT_FAILED;
}

/* --- a pool --- */

static void walked(void *arg, uint64_t done, uint64_t total)
{
    advanced(arg, done, total);
}

static void print_pool(struct checking *c, const struct config *cfg, const struct rados_checked *p, bool complete)
{
    char users[OUTPUT_TEXT], plays[OUTPUT_TEXT], waiting[OUTPUT_TEXT];
    if (c->json != NULL) {
        json_close(c->json, ']');
        json_number(c->json, "objects", (int64_t)p->objects);
        json_number(c->json, "users", (int64_t)p->users);
        json_number(c->json, "forgotten", (int64_t)p->forgotten);
        json_number(c->json, "plays", (int64_t)p->plays);
        json_number(c->json, "waiting_plays", (int64_t)p->waiting);
        json_bool(c->json, "complete", complete);
        json_close(c->json, '}');
    } else if (complete) {
        printf("pool %s: %s user%s, %s play%s, %s to be merged: %llu problem%s\n", cfg->rados_pool,
               count_text(p->users, users), plural(p->users), count_text(p->plays, plays), plural(p->plays),
               count_text(p->waiting, waiting), (unsigned long long)c->n_problems, plural(c->n_problems));
    }
}

static int check_pool(struct checking *c, const struct config *cfg, uint64_t rate)
{
    struct err err = {0};
    struct rados_checked pool;
    const struct rados_check order = {.rate = rate, .found = found, .progress = walked, .arg = c};
    if (c->json != NULL) {
        json_open(c->json, NULL, '{');
        json_text(c->json, "pool", cfg->rados_pool);
        json_open(c->json, "problems", '[');
    }
    progress_begin(&c->progress, "check", c->json != NULL);
    int rc = rados_check_pool(cfg, &order, &pool, &err);
    progress_end(&c->progress);
    print_pool(c, cfg, &pool, rc == 0);
    return rc < 0 ? cli_fail(&err) : c->n_problems == 0 ? EXIT_GOOD : EXIT_FAILED;
}

/* What mends a folder's files has none to work on. */
static int refuse_mending(const char *option)
{
    struct err err;
    err_set(
        &err, ERR_INVALID,
        "--%s doesn't go with store = rados: Ceph repairs what a disk has spoilt (ceph pg repair); a user whom that "
        "doesn't repair is answered without what is damaged by on_damage = answer, or is forgotten, and loaded from "
        "an export",
        option);
    return cli_fail(&err);
}

int cli_check(int argc, char **argv)
{
    bool json = false, force = false;
    bool mend = false;
    const char *nameless = NULL;
    const char *target = NULL;
    const char *from = NULL, *user = NULL, *rate_text = NULL;
    const struct cli_flag flags[] = {{"json", &json, NULL},      {"repair", &mend, NULL}, {"nameless", NULL, &nameless},
                                     {"from", NULL, &from},      {"user", NULL, &user},   {"salvage", NULL, &target},
                                     {"rate", NULL, &rate_text}, {"force", &force, NULL}, {NULL, NULL, NULL}};
    uint64_t rate;
    const struct cli_syntax syntax = {"check", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (target != NULL && mend) {
        return cli_misuse("check", "--salvage saves what --repair would give up: first the one, then the other");
    }
    if (nameless != NULL && (!mend || (strcmp(nameless, "keep") != 0 && strcmp(nameless, "drop") != 0))) {
        return cli_misuse("check", "--nameless is \"%s\", expected keep or drop, with --repair", nameless);
    }
    if ((from != NULL && !mend) || ((user != NULL || force) && from == NULL)) {
        return cli_misuse("check", "--from goes with --repair, and --user and --force with --from");
    }
    if (!pool_rate_read(rate_text, &rate)) {
        return cli_misuse("check", "--rate '%s': expected a number of objects a second, at most %d", rate_text,
                          POOL_RATE_MAX);
    }
    static struct config cfg; /* the client keeps what it needs of it */
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    struct json j = {.out = stdout};
    if (cfg.store == STORE_ENGINE_RADOS) {
        struct checking pool = {.json = json ? &j : NULL};
        return mend || target != NULL ? refuse_mending(mend ? "repair" : "salvage") : check_pool(&pool, &cfg, rate);
    }
    if (rate_text != NULL) {
        return cli_misuse("check", "--rate goes with store = rados");
    }
    if (cli_options_has_folder(&cfg, &err) < 0) {
        return cli_fail(&err);
    }
    struct checking checking = {.json = json ? &j : NULL,
                                .nameless = nameless != NULL && nameless[0] == 'd' ? NAMELESS_DROP : NAMELESS_KEEP};
    checking.from = (struct mend){.cfg = &cfg,
                                  .address = from,
                                  .user = user,
                                  .did = repaired,
                                  .arg = &checking,
                                  .progress = &checking.progress,
                                  .force = force};
    return target != NULL ? salvage(&checking, &cfg, target) : check(&checking, &cfg, mend);
}
