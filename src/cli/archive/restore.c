/* `unseen restore`: makes a data folder from an archive.
 *
 * What is restored is written into the folder before anything else is, so that a restore that was cut short goes on
 * with the same moment, and nothing serves the folder before that has ended. The folder is a new node: a replica
 * of the old one must be cloned again, and it may archive to the same place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "archive/archive.h"
#include "base/calendar.h"
#include "base/plural.h"
#include "base/text.h"
#include "cli/archive/archive_depot.h"
#include "cli/archive/restore_impl.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/store_wait.h"
#include "cli/replica/clone_folder.h"
#include "replica/clone_mark.h"
#include "store/factory.h"
#include "store/positions.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] =
    "Makes a data folder from an archive: as it was when it was archived last, or at a moment before.\n\n"
    "Usage: unseen restore --from URL --data DIR [--node NODE] [--at TIME] [OPTION ...]\n"
    "       unseen restore --from URL --list [--json]\n\n"
    "DIR is new, or empty. What it needs is read first; then all users, then what was recorded since, up to the\n"
    "moment; then the folder is checked. After a kill, run the same command again: it goes on where it was. Until it\n"
    "has ended the folder can't be served.\n\n"
    "Users who were forgotten stay forgotten, also those who were forgotten after the moment. Items that were un-seen\n"
    "after it are seen again. What was read from Kafka after it is read again. Scroll sessions are gone, and so are\n"
    "configuration and accounts, which are not in the archive.\n\n"
    "Options:\n"
    "      --from URL         the archive: file:///path of a folder, or s3://bucket/prefix; default: archive_url\n"
    "                         of the configuration, whose other options of [archive] hold in any case\n"
    "      --node NODE        which node's, where several have nothing to do with each other\n"
    "      --at TIME          the moment, such as 2026-11-28T14:00:00Z or unix milliseconds; default: the newest\n"
    "      --undo-forgets     bring users back who were forgotten after the moment\n"
    "      --list             show the nodes and moments that are there, and do nothing\n"
    "      --json             with --list: print JSON\n"
    "      --quiet            print no summary and no progress\n\n"
    "Exit code: 0 done, or listed; 1 failed, run it again; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen restore --from file:///mnt/nas/unseen --data /var/lib/unseen\n"
    "  unseen restore --from file:///mnt/nas/unseen --list\n"
    "  unseen restore --from file:///mnt/nas/unseen --data ./yesterday --at 2026-11-27T12:00:00Z\n";

/* Those of the folder that burnt, but what the command line or a file says. */
static void take_settings(struct restoring *r)
{
    const struct round_end *e = &r->moment.end;
    const struct {
        const char *option;
        int64_t *value, old;
    } numbers[] = {{"window", &r->cfg.window, e->window},
                   {"retention", &r->cfg.retention, e->retention},
                   {"delivered_max", &r->cfg.delivered_max, e->delivered_max}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (r->cfg.origin[config_find(numbers[i].option) - config_options] == ORIGIN_DEFAULT && numbers[i].old > 0) {
            *numbers[i].value = numbers[i].old;
        }
    }
    if (r->cfg.origin[config_find("error_rate") - config_options] == ORIGIN_DEFAULT && e->error_rate > 0) {
        r->cfg.error_rate = e->error_rate;
    }
    r->cfg.hash_seed = e->seed;
    r->cfg.hash_seed_given = true;
}

/* --- the folder --- */

static bool position_is(struct restoring *r, const char *name, int64_t *next)
{
    *next = 0;
    return r->store->positions->find(r->store, slice_str(name), next) == 1;
}

static int begin(struct restoring *r, struct err *err)
{
    const struct store_position marks[] = {{slice_str(RESTORE_NODE), (int64_t)r->moment.node},
                                           {slice_str(RESTORE_ROUND), r->moment.round.round},
                                           {slice_str(RESTORE_TO), (int64_t)r->moment.to},
                                           {slice_str(RESTORE_ENDED), 0}};
    return store_wait_positions(r->store, marks, sizeof marks / sizeof *marks, err);
}

/* 1: it goes on. */
static int goes_on(struct restoring *r, struct err *err)
{
    int64_t node, round, to, ended;
    if (!position_is(r, RESTORE_TO, &to) || (position_is(r, RESTORE_ENDED, &ended) && ended == 1)) {
        return 0;
    }
    position_is(r, RESTORE_NODE, &node);
    position_is(r, RESTORE_ROUND, &round);
    position_is(r, RESTORE_PARTS, &r->parts);
    position_is(r, RESTORE_EVENTS, &r->events_to);
    bool same = (uint64_t)node == r->moment.node && round == r->moment.round.round && (uint64_t)to <= r->moment.reach;
    if (!same) {
        return err_set(err, ERR_INVALID,
                       "%s holds the beginning of a restore of something else: delete it, or name an "
                       "empty folder",
                       r->cfg.data);
    }
    r->moment.to = (uint64_t)to;
    return 1;
}

static int open_folder(struct restoring *r, struct err *err)
{
    struct store_node self;
    enum clone_found found;
    int rc = store_open(&r->cfg, &r->store, err);
    if (rc < 0) {
        return rc == ERR_SEED ? err_set(err, rc, "%s holds another history: restore into an empty folder", r->cfg.data)
                              : rc;
    }
    if (r->store->positions == NULL || r->store->copy == NULL || r->store->node == NULL) {
        return store_lacks(r->store, "archive", err);
    }
    dedup_init(&r->dedup, r->store, &r->cfg);
    rc = goes_on(r, err);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    if (clone_folder_look(r->store, r->cfg.data, &found, &self, err) < 0 || found != CLONE_EMPTY) {
        return err_set(err, ERR_INVALID, "the data folder %s is not empty: restore into a new one", r->cfg.data);
    }
    return begin(r, err);
}

/* Those who were forgotten behind the moment: what is read again of before is dropped. */
static int adopt_gone(struct restoring *r, struct err *err)
{
    const struct tombstone *list = (const struct tombstone *)(const void *)r->gone.data;
    size_t n = r->gone.len / sizeof *list;
    return n > 0 ? store_wait_adopt(r->store, list, n, err) : 0;
}

static int end(struct restoring *r, struct err *err)
{
    char from[sizeof ARCHIVE_FROM + NODE_TEXT];
    struct store_node self;
    snprintf(from, sizeof from, ARCHIVE_FROM "%016" PRIx64, r->moment.node);
    const struct store_position marks[] = {{slice_str(from), (int64_t)r->moment.to}, {slice_str(RESTORE_ENDED), 1}};
    int rc = adopt_gone(r, err);
    rc = rc < 0 ? rc : store_wait_flush(r->store, err);
    if (rc < 0) {
        return rc;
    }
    r->store->node->get(r->store, &self);
    if (self.term < r->moment.end.term) {
        self.term = r->moment.end.term;
        rc = store_wait_node(r->store, &self, err);
    }
    return rc < 0 ? rc : store_wait_positions(r->store, marks, 2, err);
}

/* --- the whole --- */

static void found(void *arg, const char *problem)
{
    (void)arg;
    fprintf(stderr, "%s\n", problem);
}

static int check(const struct restoring *r, struct err *err)
{
    int problems = sqlite_check_folder(r->cfg.data, false, found, NULL, NULL, err);
    return problems > 0 ? err_set(err, ERR_CORRUPT, "the restored folder %s has %d problem%s: unseen check names %s",
                                  r->cfg.data, problems, plural((uint64_t)problems), problems == 1 ? "it" : "them")
                        : problems;
}

static void close_store(struct restoring *r)
{
    if (r->store != NULL) {
        r->store->ops->close(r->store);
        r->store = NULL;
    }
}

static void print_summary(const struct restoring *r)
{
    char a[OUTPUT_TEXT], b[OUTPUT_TEXT], c[OUTPUT_TEXT], when[TIME_TEXT];
    const struct moment *m = &r->moment;
    printf("%s: node %016" PRIx64 " as of event %" PRIu64 ", %s\n", r->cfg.data, m->node, m->to,
           time_text(m->to_ms, when));
    printf("%s user%s, %s play%s and deliveries since then, %s read\n", count_text(r->users, a), plural(r->users),
           count_text(r->plays, b), plural(r->plays), size_text(r->read_bytes, c));
    if (r->gone.len > 0) {
        uint64_t n = r->gone.len / sizeof(struct tombstone);
        printf("%s user%s forgotten after that moment stay%s forgotten\n", count_text(n, a), plural(n),
               n == 1 ? "s" : "");
    }
    if (m->lacks > 0) {
        printf(
            "users were imported while it was archived last: what that brought is missing in part, import it again\n");
    }
    if (m->gap) {
        printf("more was archived behind a gap, but no round has ended since: it is not restored\n");
    }
    printf("next: unseen serve --data %s\n", r->cfg.data);
}

static int run(struct restoring *r, uint64_t node, int64_t at_ms, struct err *err)
{
    int rc = cli_options_has_folder(&r->cfg, err);
    if (rc == 0 && r->cfg.origin[config_find("data") - config_options] != ORIGIN_COMMAND_LINE) {
        rc = err_set(err, ERR_INVALID, "restore writes into the folder that --data DIR names, and none is named");
    }
    rc = rc < 0 ? rc : archive_depot_open(&r->cfg, r->from, &r->depot, &r->catalog, err);
    rc = rc < 0 ? rc : moment_find(r->depot, &r->catalog, node, at_ms, &r->moment, err);
    if (rc < 0) {
        return rc;
    }
    take_settings(r);
    if ((rc = open_folder(r, err)) < 0) {
        return rc;
    }
    if (r->undo_forgets) {
        fprintf(stderr, "unseen: --undo-forgets: users who were forgotten after the moment come back\n");
    }
    rc = r->undo_forgets ? 0 : restore_find_forgets(r, err);
    progress_begin(&r->progress, "restore", r->quiet);
    rc = rc < 0 ? rc : restore_parts(r, err);
    rc = rc < 0 ? rc : restore_events(r, err);
    progress_end(&r->progress);
    rc = rc < 0 ? rc : end(r, err);
    close_store(r);
    return rc < 0 ? rc : check(r, err);
}

static bool read_time(const char *text, int64_t *at_ms)
{
    uint64_t ms;
    *at_ms = MOMENT_NEWEST;
    if (text == NULL || time_parse(slice_str(text), at_ms)) {
        return true;
    }
    bool good = count_read(text, CALENDAR_LAST_MS, &ms);
    *at_ms = (int64_t)ms;
    return good;
}

int cli_restore(int argc, char **argv)
{
    static struct restoring r;
    bool list = false, json = false;
    const char *node_text = NULL, *at_text = NULL;
    const struct cli_flag flags[] = {{"from", NULL, &r.from},   {"node", NULL, &node_text},
                                     {"at", NULL, &at_text},    {"undo-forgets", &r.undo_forgets, NULL},
                                     {"list", &list, NULL},     {"json", &json, NULL},
                                     {"quiet", &r.quiet, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"restore", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    struct err err = {0};
    int exit_code;
    uint64_t node = 0;
    int64_t at_ms;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (node_text != NULL && !archive_node_read(node_text, &node)) {
        return cli_misuse("restore", "--node is \"%s\", expected 16 hexadecimal digits, as --list shows them",
                          node_text);
    }
    if (!read_time(at_text, &at_ms)) {
        return cli_misuse("restore", "--at is \"%s\", expected a time such as 2026-11-28T14:00:00Z", at_text);
    }
    if (json && !list) {
        return cli_misuse("restore", "--json goes with --list");
    }
    if (cli_options_config(&options, &r.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = list ? archive_list(&r.cfg, r.from, json, &err) : run(&r, node, at_ms, &err);
    close_store(&r);
    if (rc == 0 && !list && !r.quiet) {
        print_summary(&r);
    }
    if (rc == 0 && r.moment.beside) {
        fprintf(stderr,
                "unseen: two copies of the data folder wrote below node %016" PRIx64
                " at the same time: what one of them "
                "recorded then is missing; unseen archive --list shows the nodes that they became\n",
                r.moment.node);
    }
    moment_free(&r.moment);
    catalog_free(&r.catalog);
    depot_close(r.depot);
    buf_free(&r.gone);
    buf_free(&r.bytes);
    buf_free(&r.records);
    buf_free(&r.batch.bytes);
    return rc < 0 ? cli_fail(&err) : EXIT_GOOD;
}
