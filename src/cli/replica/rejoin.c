/* `unseen rejoin`: an old primary's folder becomes that of a replica.
 *
 * Where the two part is known by the new primary: up to common_seq of the old one's feed it had everything when it was
 * promoted. What the old one recorded behind that, nobody else has: it is sent there first, in its order. Each event is
 * taken once there, so a rejoin that was cut short is repeated. Only then does the folder become a replica, from where
 * the new primary's own writes begin. Where the feed doesn't reach back so far, all users are sent instead, as LOAD
 * takes them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/server.h"
#include "cli/replica/other_node.h"
#include "cli/replica/store_wait.h"
#include "replica/clone_mark.h"
#include "replica/event.h"
#include "store/factory.h"
#include "store/feed.h"
#include "store/sqlite/db/folder.h"

static const char help[] =
    "Brings an old primary back, as a replica of the node that took over.\n\n"
    "Usage: unseen rejoin ADDRESS --data DIR [OPTION ...]\n\n"
    "ADDRESS is the new primary's RESP: host:port, tls://host:port or unix:/path. The server of DIR must be stopped.\n"
    "What only DIR has, recorded after the other one had heard of it last, is sent there first: nothing of it is\n"
    "thrown away, but what is older than a forget there. Then DIR follows. Running it again is harmless.\n\n"
    "If DIR can't follow from where it is, it has to be cloned anew: that is said. Where its feed no longer tells\n"
    "what it alone has, all of its users are sent, but no forgets, since DIR keeps no ids of whom it has forgotten:\n"
    "their number is said.\n\n"
    "Options:\n"
    "      --user NAME        the account at the primary, which needs the role admin; default: replica_user, or\n"
    "                         $UNSEEN_USER. The password is replica_password, requirepass, or $UNSEEN_PASSWORD\n\n"
    "Exit code: 0 done; 1 failed, run it again; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen rejoin 10.0.0.8:7979 --data /var/lib/unseen\n";

enum {
    EVENTS = 512, /* read at once */
    RUN_BYTES = 1024 * 1024,
    LOAD_MAX = 15 * 1024 * 1024, /* the server takes 16 MiB */
    PAGE_BYTES = 1024 * 1024,
};

struct rejoining {
    const char *address, *user;
    struct config cfg;
    struct other_node to;
    struct store *store;
    struct store_reader *reader;
    struct store_node self;
    /* of the new primary */
    uint64_t parted_from, common_seq, promoted_at_seq;

    struct buf events; /* not sent yet; up to: */
    uint64_t upto;
    uint32_t n_events;
    struct event_state state;
    char last_user[256];           /* that the state points to, since the bytes and the arena move */
    uint64_t sent, users, dropped; /* dropped: nothing of them is within the retention there */
    uint64_t forgets;              /* that could not be sent */
};

static void consumer_name(const struct rejoining *r, char out[FEED_NAME_MAX])
{
    snprintf(out, FEED_NAME_MAX, FEED_REMOTE "%016" PRIx64, r->to.node);
}

/* --- sending --- */

static int send_events(struct rejoining *r, struct err *err)
{
    char node[ID_TEXT], run[ID_TEXT], upto[NUMBER_TEXT];
    const struct slice words[] = {slice_str("REPLICA"),
                                  slice_str("MERGE"),
                                  id_text(r->self.node, node),
                                  id_text(r->self.run, run),
                                  number_text((int64_t)r->upto, upto),
                                  slice_of(r->events.data, r->events.len)};
    const struct reply *reply;
    if (r->n_events == 0) {
        return 0;
    }
    int rc = other_node_call(&r->to, words, 6, &reply, err);
    if (rc == 0) {
        r->sent += r->n_events;
        r->n_events = 0;
        r->state = (struct event_state){0};
        buf_clear(&r->events);
    }
    return rc;
}

static int load(struct rejoining *r, struct slice snapshot, struct err *err)
{
    const struct slice words[] = {slice_str("LOAD"), snapshot};
    const struct reply *reply;
    int64_t verdict;
    if (snapshot.len > LOAD_MAX) {
        return err_set(err, ERR_LARGE,
                       "a user has %zu bytes, more than a running server takes: export the folder with unseen export, "
                       "and load that into the stopped one",
                       snapshot.len);
    }
    int rc = other_node_call(&r->to, words, 2, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n != 1 || !reply_integer(&reply->items[0], &verdict) ||
        verdict == IMPORT_CROWDED) {
        return err_set(err, ERR_INVALID, "%s could not take over a user by LOAD", r->address);
    }
    r->users++;
    r->dropped += verdict == IMPORT_OLD;
    return 0;
}

static int load_user(struct rejoining *r, struct slice user, struct err *err)
{
    struct buf snapshot = {0};
    int rc = r->store->copy->user(r->reader, user, &snapshot, err);
    if (rc == 1) {
        rc = load(r, slice_of(snapshot.data, snapshot.len), err);
    }
    buf_free(&snapshot);
    return rc < 0 ? rc : 0;
}

/* An import is no event that can be sent: its user is, in its place. */
static int take(struct rejoining *r, const struct feed_event *event, struct err *err)
{
    if (event->kind == FEED_POOL) {
        return 0; /* the primary's count */
    }
    if (event->kind == FEED_USER) {
        int rc = send_events(r, err);
        return rc < 0 ? rc : load_user(r, event->user, err);
    }
    if (event_write(&r->state, event, &r->events) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for events");
    }
    memcpy(r->last_user, event->user.data, event->user.len < sizeof r->last_user ? event->user.len : 0);
    r->state.user = r->state.user.len > 0 ? slice_of(r->last_user, event->user.len) : r->state.user;
    r->upto = event->seq;
    r->n_events++;
    return r->events.len >= RUN_BYTES || r->n_events == EVENT_RUN_MAX ? send_events(r, err) : 0;
}

static int send_feed(struct rejoining *r, struct err *err)
{
    static struct feed_event list[EVENTS];
    char name[FEED_NAME_MAX];
    struct arena arena = {0};
    uint64_t after = r->common_seq;
    int n;
    consumer_name(r, name);
    int rc = 0;
    while (rc == 0 && (n = r->store->feed->read(r->reader, name, after, list, EVENTS, &arena, err)) != 0) {
        rc = n < 0 ? n : 0;
        for (int i = 0; i < n && rc == 0; i++) {
            rc = take(r, &list[i], err);
            after = list[i].seq;
        }
        arena_reset(&arena);
    }
    rc = rc < 0 ? rc : send_events(r, err);
    arena_free(&arena);
    return rc;
}

static int send_users(struct rejoining *r, struct err *err)
{
    struct store_copy_users page = {.from = INT64_MIN};
    struct buf bytes = {0};
    int rc = 0;
    while (rc == 0 && !page.ended) {
        buf_clear(&bytes);
        buf_clear(&page.ends);
        page.n = 0;
        rc = r->store->copy->users(r->reader, &page, &bytes, PAGE_BYTES, err);
        const size_t *ends = (const size_t *)(const void *)page.ends.data;
        for (size_t i = 0, from = 0; rc == 0 && i < page.n; from = ends[i++]) {
            rc = load(r, slice_of(bytes.data + from, ends[i] - from), err);
        }
        page.from = page.next;
    }
    buf_free(&bytes);
    buf_free(&page.ends);
    return rc < 0 ? rc : 0;
}

/* A tombstone knows a user by the key alone, and an item by its hash. */
static int count_forgets(struct rejoining *r, struct err *err)
{
    static struct tombstone page[EVENTS];
    struct tombstone after;
    int n = r->store->copy->tombstones(r->reader, NULL, page, EVENTS, err);
    for (; n > 0; n = r->store->copy->tombstones(r->reader, &after, page, EVENTS, err)) {
        r->forgets += (uint64_t)n;
        after = page[n - 1];
    }
    return n;
}

/* --- the other one, and what comes of it --- */

static int ask_parting(struct rejoining *r, struct err *err)
{
    const struct slice words[] = {slice_str("REPLICA"), slice_str("STATUS")};
    const struct reply *map;
    int rc = other_node_call(&r->to, words, 2, &map, err);
    if (rc == 0) {
        r->parted_from = reply_id_field(map, "promoted_from");
        r->common_seq = reply_count(map, "common_seq");
        r->promoted_at_seq = reply_count(map, "promoted_at_seq");
    }
    return rc;
}

static int may_rejoin(const struct rejoining *r, struct err *err)
{
    if (r->to.node == r->self.node) {
        return err_set(err, ERR_INVALID, "the data folder %s is that of %s itself, or a copy of it", r->cfg.data,
                       r->address);
    }
    if (strcmp(r->to.role, node_role_name(NODE_PRIMARY)) != 0) {
        return err_set(err, ERR_INVALID, "%s is no primary, but a %s%s%s", r->address, r->to.role,
                       r->to.says[0] != '\0' ? ": its address is " : "", r->to.says);
    }
    if (r->self.role == NODE_REPLICA) {
        return err_set(err, ERR_INVALID, "the data folder %s is a replica's already: start it with replica_of",
                       r->cfg.data);
    }
    if (r->to.term < r->self.term || (r->to.term == r->self.term && r->self.role == NODE_PRIMARY)) {
        return err_set(err, ERR_INVALID,
                       "%s has term %" PRIu64 ", the folder %s has %" PRIu64 ": only after a promotion there is "
                       "something to rejoin",
                       r->address, r->to.term, r->cfg.data, r->self.term);
    }
    if (r->to.seed != r->store->ops->seed(r->store)) {
        return err_set(err, ERR_SEED, "%s hashes with another seed than the folder %s: they are no cluster", r->address,
                       r->cfg.data);
    }
    return 0;
}

/* Whether all that the new primary recorded since its promotion is kept for this node: 1, from *seq of *run on. */
static int can_follow(struct rejoining *r, uint64_t *run, uint64_t *seq, struct err *err)
{
    if (r->parted_from != r->self.node) {
        return 0;
    }
    int rc = other_node_enlist(&r->to, r->self.node, run, seq, err);
    if (rc < 0) {
        return rc == ERR_NOTFOUND ? 0 : rc;
    }
    return *seq <= r->promoted_at_seq;
}

/* Positions first: a role without them would follow from nowhere. */
static int become(struct rejoining *r, bool follows, uint64_t run, uint64_t seq, struct err *err)
{
    char name[CLONE_MARK_TEXT];
    struct store_position position = {slice_str(clone_mark_name(r->to.node, name)), INT64_MIN};
    if (follows) {
        position = (struct store_position){slice_str(clone_feed_name(r->to.node, run, name)), (int64_t)seq};
    }
    struct store_node to = r->self;
    to.role = NODE_REPLICA;
    to.term = r->to.term;
    to.promoted = false;
    to.leader = r->to.node;
    snprintf(to.address, sizeof to.address, "%s", r->to.says[0] != '\0' ? r->to.says : r->address);
    int rc = store_wait_positions(r->store, &position, 1, err);
    return rc < 0 ? rc : store_wait_node(r->store, &to, err);
}

static void print_sent(const struct rejoining *r)
{
    char events[OUTPUT_TEXT], users[OUTPUT_TEXT], text[OUTPUT_TEXT];
    printf("sent to %s: %s event%s, %s user%s\n", r->address, count_text(r->sent, events), plural(r->sent),
           count_text(r->users, users), plural(r->users));
    if (r->dropped > 0) {
        printf("%s of the users had nothing within the retention there\n", count_text(r->dropped, text));
    }
    if (r->forgets > 0) {
        printf(
            "%s forget%s of this folder can't be sent: whoever was forgotten here alone, after the other one had heard "
            "of it last, must be forgotten there once more\n",
            count_text(r->forgets, text), plural(r->forgets));
    }
}

static int run(struct rejoining *r, struct err *err)
{
    char name[FEED_NAME_MAX];
    struct feed_state feed;
    uint64_t run_id = 0, seq = 0;
    int rc = cli_options_has_folder(&r->cfg, err);
    rc = rc < 0 ? rc : folder_need(r->cfg.data, "history.db", err); /* nothing is created */
    rc = rc < 0 ? rc : other_node_open(&r->cfg, r->address, r->user, &r->to, err);
    rc = rc < 0 ? rc : store_open(&r->cfg, NULL, &r->store, err);
    if (rc == ERR_LOCKED) {
        return err_set(err, rc, "the data folder %s is in use: stop its server first", r->cfg.data);
    }
    if (rc < 0) {
        return rc;
    }
    if (r->store->node == NULL || r->store->copy == NULL || r->store->feed == NULL || r->store->ring == NULL) {
        return store_lacks(r->store, "replicas", err);
    }
    r->store->node->get(r->store, &r->self);
    if ((rc = other_node_hello(&r->to, r->self.node, r->self.term, err)) < 0 ||
        (rc = other_node_fits(&r->to, &r->cfg, err)) < 0 || (rc = may_rejoin(r, err)) < 0 ||
        (rc = ask_parting(r, err)) < 0 || (rc = store_wait_flush(r->store, err)) < 0 ||
        (rc = r->store->ops->reader_open(r->store, &r->reader, err)) < 0) {
        return rc;
    }
    consumer_name(r, name);
    feed_state_of(r->store, name, &feed);
    bool reaches =
        r->parted_from == r->self.node && feed.limit > 0 && feed.place != FEED_LOST && feed.cursor <= r->common_seq;
    if (!reaches) {
        printf("what only %s has can't be told by its feed: all of its users are sent\n", r->cfg.data);
        fflush(stdout);
    }
    rc = reaches ? send_feed(r, err) : send_users(r, err);
    rc = rc < 0 || reaches ? rc : count_forgets(r, err);
    print_sent(r);
    int follows = rc < 0 ? rc : can_follow(r, &run_id, &seq, err);
    rc = follows < 0 ? follows : become(r, follows == 1, run_id, seq, err);
    if (rc == 0 && follows == 1) {
        printf("%s is a replica of %s. next: set of = %s in the section [replica] of its configuration, and start it\n",
               r->cfg.data, r->address, r->address);
    } else if (rc == 0) {
        printf("%s no longer keeps all that was recorded there since: nothing that was played here is missing there, "
               "but this folder has to be cloned anew. next: unseen clone %s --data %s\n",
               r->address, r->address, r->cfg.data);
    }
    return rc;
}

int cli_rejoin(int argc, char **argv)
{
    static struct rejoining r;
    const struct cli_flag flags[] = {{"user", NULL, &r.user}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"rejoin", help, "the ADDRESS of the new primary", 1, 1, flags, false};
    struct cli_options options;
    struct err err = {0};
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    r.address = options.words[0];
    if (cli_options_config(&options, &r.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = run(&r, &err);
    if (r.reader != NULL) {
        r.store->ops->reader_close(r.reader);
    }
    if (r.store != NULL) {
        r.store->ops->close(r.store);
    }
    other_node_close(&r.to);
    buf_free(&r.events);
    return rc < 0 ? cli_fail(&err) : EXIT_GOOD;
}
