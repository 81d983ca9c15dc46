/* `unseen clone`: makes a replica's folder from a node that works.
 *
 * First that node is asked to keep its feed from now on, and where that begins is written here, durably, together with
 * a mark that says that the folder is not whole yet. Then its ring is flushed, so that all it has is history, and
 * positions, tombstones, pools and users are copied. What is recorded there meanwhile comes with the feed, once the
 * folder is served. Each page moves the mark; so a clone that was cut short goes on, unless the feed was lost
 * meanwhile: then it begins again.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/owner.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/lib/store_wait.h"
#include "cli/replica/clone_copy.h"
#include "cli/replica/clone_folder.h"
#include "cli/replica/other_node.h"
#include "replica/clone_mark.h"
#include "store/factory.h"
#include "store/positions.h"
#include "store/sqlite/db/folder_lock.h"

static const char help[] =
    "Makes a replica: copies a running primary into a folder, which then follows it.\n\n"
    "Usage: unseen clone ADDRESS --data DIR [--rate BYTES] [OPTION ...]\n\n"
    "ADDRESS is the primary's RESP: host:port, tls://host:port or unix:/path. It goes on working; what is recorded\n"
    "meanwhile waits in its feed, up to feed_max. Window, retention and delivered_max of the configuration must be\n"
    "those of the primary. DIR is new, or empty.\n\n"
    "A connection that is lost while users are copied is made again. After a kill, or if ADDRESS is gone, run the\n"
    "same command again. Either way it goes on where it was. Until it has ended the folder can't be served.\n\n"
    "If DIR is that of a replica that was away for too long, it is healed: a new one is made beside it, in DIR.clone,\n"
    "and takes its place at the end. The server of DIR must be stopped.\n\n"
    "Options:\n"
    "      --rate BYTES       copy so many bytes a second at most, such as 20M\n"
    "      --user NAME        the account at the primary, with the roles admin and watch; default: replica_user, or\n"
    "                         $UNSEEN_USER. The password is replica_password, requirepass, or $UNSEEN_PASSWORD\n"
    "      --quiet            print no summary and no progress\n\n"
    "Exit code: 0 done; 1 failed, run it again; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen clone 10.0.0.7:7979 --data /var/lib/unseen\n"
    "  unseen clone tls://primary:7979 --data /var/lib/unseen --rate 20M --user replica\n";

enum { BEGINNINGS_MAX = 3 };

struct cloning {
    const char *address, *user, *rate_text;
    bool quiet;
    uint64_t rate;
    struct config cfg;
    struct other_node from;
    struct store *store;
    struct progress progress;
    struct clone_copy copy;
    char target[PATH_MAX]; /* the folder that --data named */
    bool heals;            /* cfg.data is one beside it */
    uint64_t old_node;     /* heals: the one that goes */
    uint64_t old_bytes;
    struct folder_lock lock; /* heals: of target, which no server has meanwhile; it ends with the process */
};

static void say(const struct cloning *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct cloning *c, const char *format, ...)
{
    va_list args;
    if (c->quiet) {
        return;
    }
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static void close_store(struct cloning *c)
{
    if (c->store != NULL) {
        c->store->ops->close(c->store);
        c->store = NULL;
    }
}

static int open_store(struct cloning *c, struct err *err)
{
    int rc = store_open(&c->cfg, &c->store, err);
    if (rc == ERR_SEED) {
        return err_set(err, rc, "the folder %s has plays hashed with another seed than those of %s", c->cfg.data,
                       c->address);
    }
    if (rc == 0 && (c->store->node == NULL || c->store->copy == NULL || c->store->positions == NULL)) {
        rc = store_lacks(c->store, "copies of other nodes", err); /* run() closes it */
    }
    return rc;
}

/* --- the feed there --- */

/* Best done, not needed: else the feed is kept there until it is too long. */
static void dismiss(struct cloning *c, uint64_t node)
{
    char id[ID_TEXT];
    const struct slice words[] = {slice_str("REPLICA"), slice_str("DISMISS"), id_text(node, id)};
    const struct reply *reply;
    struct err ignored;
    other_node_call(&c->from, words, 3, &reply, &ignored);
}

/* From where on this folder needs the feed of that node: 1; 0: nothing is known. */
static int find_cursor(struct cloning *c, uint64_t node, uint64_t *seq, struct err *err)
{
    struct store_reader *reader;
    struct store_position found;
    struct arena arena = {0};
    char name[CLONE_MARK_TEXT];
    int rc = c->store->ops->reader_open(c->store, &reader, err);
    if (rc < 0) {
        return rc;
    }
    size_t len = strlen(clone_feed_name(node, 0, name)) - 16; /* of any run */
    const struct slice after = slice_of(name, len);
    rc = c->store->copy->positions(reader, &after, &found, 1, &arena, err);
    if (rc == 1) {
        rc = found.source.len > len && memcmp(found.source.data, name, len) == 0;
        *seq = (uint64_t)found.next;
    }
    c->store->ops->reader_close(reader);
    arena_free(&arena);
    return rc;
}

/* --- beginnings --- */

/* Where the feed begins and the mark become durable before the role, which is what makes both count. */
static int begin(struct cloning *c, const struct store_node *self, struct err *err)
{
    uint64_t run, seq;
    char mark[CLONE_MARK_TEXT], feed[CLONE_MARK_TEXT];
    int rc = other_node_enlist(&c->from, self->node, &run, &seq, err);
    if (rc < 0) {
        return rc;
    }
    const struct store_position positions[] = {
        {slice_str(clone_mark_name(c->from.node, mark)), INT64_MIN},
        {slice_str(clone_feed_name(c->from.node, run, feed)), (int64_t)seq},
        {slice_str(CLONE_FOLLOWED), (int64_t)c->from.node},
    };
    if ((rc = store_wait_positions(c->store, positions, 3, err)) < 0) {
        return rc;
    }
    struct store_node to = *self;
    to.role = NODE_REPLICA;
    to.term = c->from.term > self->term ? c->from.term : self->term;
    to.promoted = false;
    to.leader = c->from.node;
    snprintf(to.address, sizeof to.address, "%s", c->address); /* as it was told, with TLS or without */
    c->copy.mark = INT64_MIN;
    return store_wait_node(c->store, &to, err);
}

/* 1: the clone of before goes on; 0: it has to begin again, and why is said. */
static int go_on(struct cloning *c, const struct store_node *self, struct err *err)
{
    char mark[CLONE_MARK_TEXT];
    uint64_t run, seq, cursor = 0;
    if (self->leader != c->from.node) {
        say(c, "%s holds the beginning of a clone of another node: beginning again", c->cfg.data);
        return 0;
    }
    int rc = find_cursor(c, c->from.node, &cursor, err);
    if (rc < 0) {
        return rc;
    }
    bool known = rc == 1;
    rc = other_node_enlist(&c->from, self->node, &run, &seq, err);
    if (rc < 0 && rc != ERR_NOTFOUND) {
        return rc;
    }
    if (rc == ERR_NOTFOUND || !known || seq > cursor) {
        say(c, "%s no longer has all that was recorded since the clone began: beginning again", c->address);
        dismiss(c, self->node);
        return 0;
    }
    c->store->positions->find(c->store, slice_str(clone_mark_name(c->from.node, mark)), &c->copy.mark);
    say(c, "going on at %.1f %%", (double)clone_key_part(c->copy.mark) / 1e4);
    return 1;
}

static int beside(struct cloning *c, const struct store_node *self, struct err *err)
{
    char has[OUTPUT_TEXT], free_text[OUTPUT_TEXT];
    uint64_t room;
    if (c->heals) {
        return err_set(err, ERR_INVALID, "%s is a whole replica already, left by an earlier clone: delete it",
                       c->cfg.data);
    }
    clone_folder_room(c->cfg.data, &c->old_bytes, &room);
    say(c, "%s holds a replica: a new one is made in %s.clone, which needs about %s, of %s that are free", c->target,
        c->target, size_text(c->old_bytes, has), size_text(room, free_text));
    if (room > 0 && room < c->old_bytes) {
        return err_set(err, ERR_FULL, "%s.clone needs about %s, and %s are free: delete %s first, if it may go",
                       c->target, size_text(c->old_bytes, has), size_text(room, free_text), c->target);
    }
    int rc = folder_lock(c->target, &c->lock, err);
    if (rc < 0) {
        return rc;
    }
    c->heals = true;
    c->old_node = self->node;
    if (snprintf(c->cfg.data, sizeof c->cfg.data, "%s.clone", c->target) >= (int)sizeof c->cfg.data) {
        return err_set(err, ERR_INVALID, "the path %s.clone is too long", c->target);
    }
    if (mkdir(c->cfg.data, 0750) < 0 && errno != EEXIST) {
        return err_set(err, ERR_SYSTEM, "can't make the folder %s: %s", c->cfg.data, strerror(errno));
    }
    owner_as(c->cfg.data, c->target); /* whose place it takes */
    return 0;
}

/* Until the store is open and its clone may go on. */
static int prepare(struct cloning *c, struct err *err)
{
    for (int i = 0; i < BEGINNINGS_MAX; i++) {
        enum clone_found found;
        struct store_node self;
        int rc = open_store(c, err);
        if (rc < 0 || (rc = clone_folder_look(c->store, c->cfg.data, &found, &self, err)) < 0) {
            return rc;
        }
        if (self.node == c->from.node) {
            return err_set(err, ERR_INVALID, "the data folder %s is that of %s itself, or a copy of it", c->cfg.data,
                           c->address);
        }
        if (found == CLONE_EMPTY) {
            return begin(c, &self, err);
        }
        if (found == CLONE_BEGUN && (rc = go_on(c, &self, err)) != 0) {
            return rc < 0 ? rc : 0;
        }
        if (found == CLONE_OLD) { /* what it has forgotten would end what is copied */
            say(c, "%s holds what an old primary had: beginning again", c->cfg.data);
            dismiss(c, self.node);
        }
        close_store(c);
        rc = found == CLONE_REPLICA ? beside(c, &self, err) : clone_folder_empty(c->cfg.data, err);
        if (rc < 0) {
            return rc;
        }
    }
    return err_set(err, ERR_INVALID, "the folder %s changes meanwhile", c->cfg.data);
}

/* --- users --- */

/* Connects, and is told who is there. */
static int meet(struct cloning *c, struct err *err)
{
    const struct other_told told = {"clone", &c->progress};
    int rc = other_node_open(&c->cfg, c->address, c->user, &told, &c->from, err);
    rc = rc < 0 ? rc : other_node_hello(&c->from, 0, 0, err);
    if (rc == 0 && strcmp(c->from.role, node_role_name(NODE_PRIMARY)) != 0) {
        rc = err_set(err, ERR_INVALID, "%s is no primary, but a %s: a clone is made from the primary", c->address,
                     c->from.role);
    }
    return rc;
}

/* The connection is lost. 1: there is one to the same node again. */
static int meet_again(struct cloning *c, const struct err *lost)
{
    struct err why = {0};
    uint64_t node = c->from.node;
    progress_say(&c->progress, "clone: %s; connecting again\n", lost->text);
    other_node_close(&c->from);
    return meet(c, &why) == 0 && c->from.node == node;
}

/* It goes on over another connection, as long as each has brought a page: what makes the other one hang up twice is not
 * asked for a third time. */
static int copy_users(struct cloning *c, struct err *err)
{
    int64_t mark;
    int rc;
    do {
        mark = c->copy.mark;
        rc = clone_copy_users(&c->copy, err);
    } while ((rc == ERR_CLOSED || rc == ERR_SYSTEM) && c->copy.mark > mark && meet_again(c, err));
    return rc;
}

/* --- the whole --- */

static int copy(struct cloning *c, struct err *err)
{
    const struct slice flush[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    struct store_node self;
    uint64_t run, seq;
    c->store->node->get(c->store, &self);
    c->copy.from = &c->from;
    c->copy.to = c->store;
    c->copy.rate = c->rate;
    c->copy.progress = &c->progress;
    int rc = other_node_call(&c->from, flush, 2, &reply, err);
    rc = rc < 0 ? rc : clone_copy_positions(&c->copy, err);
    rc = rc < 0 ? rc : clone_copy_tombstones(&c->copy, err);
    rc = rc < 0 ? rc : clone_copy_pools(&c->copy, err);
    if (rc == 0) {
        progress_begin(&c->progress, "clone", c->quiet);
        rc = copy_users(c, err);
        progress_end(&c->progress);
    }
    if (rc < 0) {
        return rc;
    }
    rc = other_node_enlist(&c->from, self.node, &run, &seq, err);
    if (rc == ERR_NOTFOUND) {
        return err_set(
            err, rc,
            "more was recorded at %s during the clone than its feed_max keeps: raise feed_max there, and run "
            "this again, which begins from the start",
            c->address);
    }
    return rc < 0 ? rc : clone_copy_mark(&c->copy, CLONE_MARK_ENDED, err);
}

static int run(struct cloning *c, struct err *err)
{
    int rc = cli_options_has_folder(&c->cfg, err);
    if (rc == 0 && c->cfg.origin[config_find("data") - config_options] != ORIGIN_COMMAND_LINE) {
        rc = err_set(err, ERR_INVALID, "clone writes into the folder that --data DIR names, and none is named");
    }
    if (rc < 0 || (rc = meet(c, err)) < 0 || (rc = other_node_fits(&c->from, &c->cfg, err)) < 0) {
        return rc;
    }
    if (c->cfg.hash_seed_given && c->cfg.hash_seed != c->from.seed) {
        return err_set(err, ERR_SEED, "hash_seed of the configuration is not the seed of %s", c->address);
    }
    c->cfg.hash_seed = c->from.seed;
    c->cfg.hash_seed_given = true;
    rc = prepare(c, err);
    rc = rc < 0 ? rc : copy(c, err);
    close_store(c);
    if (rc == 0 && c->heals) {
        rc = clone_folder_swap(c->target, c->cfg.data, err);
        if (rc == 0) {
            dismiss(c, c->old_node);
        }
    }
    return rc;
}

static void print_summary(const struct cloning *c)
{
    char users[OUTPUT_TEXT], pools[OUTPUT_TEXT], size[OUTPUT_TEXT];
    say(c, "%s user%s and %s pool%s copied, %s: %s is a replica of %s", count_text(c->copy.users, users),
        plural(c->copy.users), count_text(c->copy.pools, pools), plural(c->copy.pools), size_text(c->copy.bytes, size),
        c->target, c->address);
    say(c, "next: set of = %s in the section [replica] of its configuration, and start unseen serve --data %s",
        strncmp(c->address, "unix:", 5) == 0 ? "host:port" : c->address, c->target);
}

int cli_clone(int argc, char **argv)
{
    static struct cloning c;
    const struct cli_flag flags[] = {
        {"rate", NULL, &c.rate_text}, {"user", NULL, &c.user}, {"quiet", &c.quiet, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"clone", help, "the ADDRESS of the primary", 1, 1, flags, false};
    struct cli_options options;
    struct err err = {0};
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    c.address = options.words[0];
    if (c.rate_text != NULL && (c.rate = clone_rate_read(c.rate_text)) == 0) {
        return cli_misuse("clone", "--rate is \"%s\", expected bytes a second, such as 1048576 or 20M", c.rate_text);
    }
    if (cli_options_config(&options, &c.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    snprintf(c.target, sizeof c.target, "%s", c.cfg.data);
    for (size_t len = strlen(c.target); len > 1 && c.target[len - 1] == '/'; len--) {
        c.target[len - 1] = '\0'; /* DIR.clone stands beside it */
    }
    int rc = run(&c, &err);
    close_store(&c);
    other_node_close(&c.from);
    if (rc < 0) {
        return cli_fail(&err);
    }
    print_summary(&c);
    return EXIT_GOOD;
}
