/* `unseen rejoin`: an old primary's folder becomes that of a replica.
 *
 * Where the two part is known by the new primary: up to common_seq of the old one's feed it had everything when it was
 * promoted. What the old one recorded behind that, no other node has: it is sent there first, in its order. Each event
 * is taken once there, so a rejoin that was cut short is repeated. Only then does the folder become a replica, from
 * where the new primary's own writes begin. Where the feed doesn't reach back so far, forgets are sent as far as
 * tombstones tell of them, and then all users, as LOAD takes them.
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
#include "cli/lib/store_wait.h"
#include "cli/replica/rejoin_impl.h"
#include "replica/clone_mark.h"
#include "replica/cursor.h"
#include "replica/event.h"
#include "replica/replica.h"
#include "store/factory.h"
#include "store/feed.h"
#include "store/sqlite/db/folder.h"

static const char help[] =
    "Brings an old primary back, as a replica of the node that took over.\n\n"
    "Usage: unseen rejoin ADDRESS --data DIR [OPTION ...]\n\n"
    "ADDRESS is the new primary's RESP: host:port, tls://host:port or unix:/path. The server of DIR must be stopped.\n"
    "What only DIR has, recorded after the other one had heard of it last, is sent there first: nothing of it is\n"
    "thrown away, but what is older than a forget there. Then DIR follows. Running it again is harmless.\n\n"
    "If DIR can't follow from where it is, it has to be cloned again: that is said. Where its feed no longer tells\n"
    "what it alone has, all of its users are sent, and who was forgotten here is looked for there; then, too, DIR has\n"
    "to be cloned again.\n\n"
    "Where the new primary no longer has all that was recorded there since, it can't tell what is newer than a\n"
    "forget of DIR. Then nothing is done, unless --forgets says what becomes of such forgets.\n\n"
    "Options:\n"
    "      --forgets WHAT     then: apply them, so that those users lose what is newer, too; or leave them, and\n"
    "                         name the users\n"
    "      --user NAME        the account at the primary, with the roles admin, watch, load, record and\n"
    "                         forget; default: replica_user, or $UNSEEN_USER. The password is replica_password,\n"
    "                         requirepass, or $UNSEEN_PASSWORD\n\n"
    "Exit code: 0 done; 1 failed, run it again; 2 wrong usage; 3 what only DIR had is sent, or it was before, but DIR\n"
    "has to be cloned again.\n\n"
    "Examples:\n"
    "  unseen rejoin 10.0.0.8:7979 --data /var/lib/unseen\n";

enum {
    EVENTS = 512, /* read at once */
    RUN_BYTES = 1024 * 1024,
    EXIT_CLONE = 3, /* see EXIT_GOOD */
};

static void consumer_name(const struct rejoining *r, char out[FEED_NAME_MAX])
{
    snprintf(out, FEED_NAME_MAX, FEED_REMOTE "%016" PRIx64, r->to.node);
}

/* --- sending --- */

static int refused(const struct rejoining *r, int rc, struct err *err)
{
    return rc == ERR_NOTFOUND && r->policy == FORGETS_ASK
               ? err_set(err, rc,
                         "%s no longer has all that was recorded there since, and can't tell what is newer than a "
                         "forget of this folder: --forgets apply ends that, too, --forgets leave leaves such forgets "
                         "and names them",
                         r->address)
               : rc;
}

int rejoin_send(struct rejoining *r, struct err *err)
{
    char node[ID_TEXT], run[ID_TEXT], upto[NUMBER_TEXT];
    struct slice words[8] = {slice_str("REPLICA"),
                             slice_str("MERGE"),
                             id_text(r->self.node, node),
                             id_text(r->self.run, run),
                             number_text((int64_t)r->upto, upto),
                             slice_of(r->events.data, r->events.len)};
    const struct reply *reply;
    size_t n = 6;
    int64_t left;
    if (r->n_events == 0) {
        return 0;
    }
    if (r->forgets) {
        words[n++] = slice_str("FORGETS");
    }
    if (!r->keeps && r->policy == FORGETS_APPLY) {
        words[n++] = slice_str("FORCE");
    }
    int rc = other_node_call(&r->to, words, n, &reply, err);
    if (rc < 0) {
        return refused(r, rc, err);
    }
    if (!reply_integer(reply, &left) || left < 0) {
        return err_set(err, ERR_VERSION, "%s: the answer to REPLICA MERGE is no number: is it another version?",
                       r->address);
    }
    r->left =
        (uint64_t)left > r->left ? (uint64_t)left : r->left; /* of all runs, also of a rejoin that was cut short */
    r->sent += r->n_events;
    r->n_events = 0;
    r->state = (struct event_state){0};
    buf_clear(&r->events);
    return 0;
}

int rejoin_put(struct rejoining *r, const struct feed_event *event, struct err *err)
{
    struct feed_event told = *event;
    told.group = r->to.protocol >= REPLICA_TIMES ? event->group : 0;
    if (event_write(&r->state, &told, &r->events) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for events");
    }
    memcpy(r->last_user, event->user.data, event->user.len < sizeof r->last_user ? event->user.len : 0);
    r->state.user = r->state.user.len > 0 ? slice_of(r->last_user, event->user.len) : r->state.user;
    r->upto = event->seq;
    r->n_events++;
    return r->events.len >= RUN_BYTES || r->n_events == EVENT_RUN_MAX ? rejoin_send(r, err) : 0;
}

void rejoin_leave(struct rejoining *r, const struct feed_event *event)
{
    struct buf line = {0};
    buf_addf(&line, "not forgotten there: user ");
    escape_id(&line, event->user);
    if (event->kind == FEED_UNSEE) {
        buf_addf(&line, ", item ");
        escape_id(&line, event->item);
    } else if (event->kind == FEED_UNSEE_HASH) {
        buf_addf(&line, ", an item of which only the hash is known");
    }
    printf("%.*s%s\n", (int)line.len, line.data, line.failed ? " (out of memory)" : "");
    buf_free(&line);
    r->named++;
}

/* An import is no event that can be sent: its user is, once all events are there, as this folder has them in the end.
 * So nothing that was forgotten after it ends what came after that. */
static int take(struct rejoining *r, struct feed_event *event, struct err *err)
{
    bool forgets = event->kind == FEED_FORGET || event->kind == FEED_UNSEE || event->kind == FEED_UNSEE_HASH;
    if (event->kind == FEED_USER) {
        const char *copy = arena_copy(&r->ids, event->user.data, event->user.len);
        struct rejoin_load load = {.key = hash_user_key(r->to.seed, event->user)};
        load.user = slice_of(copy, event->user.len);
        return copy == NULL || buf_add(&r->loads, &load, sizeof load) < 0
                   ? err_set(err, ERR_NOMEM, "out of memory for users")
                   : 0;
    }
    if (forgets && !r->keeps && r->policy == FORGETS_LEAVE) {
        rejoin_leave(r, event);
        return 0;
    }
    bool plays = event->kind == FEED_PLAY || event->kind == FEED_DELIVERY;
    if (plays && !rejoin_order_place(r, event)) {
        return 0;
    }
    if (event->kind == FEED_OFFSET || event->kind == FEED_POOL) {
        return 0; /* how far this node came with others is its own; of pools those of the primary count */
    }
    return rejoin_put(r, event, err);
}

static int walk_feed(struct rejoining *r, int (*each)(struct rejoining *r, struct feed_event *event, struct err *err),
                     struct err *err)
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
            rc = each(r, &list[i], err);
            after = list[i].seq;
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    return rc;
}

static int send_feed(struct rejoining *r, struct err *err)
{
    int rc = walk_feed(r, rejoin_order_note, err);
    rejoin_order_ready(r);
    rc = rc < 0 ? rc : walk_feed(r, take, err);
    rc = rc < 0 ? rc : rejoin_send(r, err);
    return rc < 0 ? rc : rejoin_send_loads(r, err);
}

static int send_all(struct rejoining *r, struct err *err)
{
    int rc = rejoin_send_forgets(r, err);
    return rc < 0 ? rc : rejoin_send_users(r, err);
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

static int may_rejoin(struct rejoining *r, struct err *err)
{
    if (r->to.node == r->self.node) {
        return err_set(err, ERR_INVALID, "the data folder %s is that of %s itself, or a copy of it", r->cfg.data,
                       r->address);
    }
    if (strcmp(r->to.role, node_role_name(NODE_PRIMARY)) != 0) {
        return err_set(err, ERR_INVALID, "%s is no primary, but a %s%s%s", r->address, r->to.role,
                       r->to.says[0] != '\0' ? ": its address is " : "", r->to.says);
    }
    if (r->self.role == NODE_REPLICA && clone_mark_check(r->store, r->cfg.data, err) < 0) {
        r->must_clone = true;
        return err->code;
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

/* Whether all that the new primary recorded since its promotion is kept for this node: 1, from *seq of *run on. Not
 * where this folder has followed it beyond that: an earlier release gave seqs twice. */
static int can_follow(struct rejoining *r, uint64_t *run, uint64_t *seq, struct err *err)
{
    struct feed_cursor applied = {0};
    if (r->parted_from != r->self.node) {
        return 0;
    }
    int rc = cursor_find(r->store, r->reader, r->to.node, &applied, err);
    rc = rc < 0 ? rc : other_node_enlist(&r->to, r->self.node, run, seq, err);
    if (rc < 0) {
        return rc == ERR_NOTFOUND ? 0 : rc;
    }
    return *seq <= r->promoted_at_seq && applied.seq <= r->promoted_at_seq;
}

/* Positions first: a role without them would follow from nowhere. */
static int become(struct rejoining *r, bool follows, uint64_t run, uint64_t seq, struct err *err)
{
    char name[CLONE_MARK_TEXT];
    struct store_position positions[] = {{slice_str(clone_mark_name(r->to.node, name)), INT64_MIN},
                                         {slice_str(CLONE_FOLLOWED), (int64_t)r->to.node}};
    if (follows) {
        positions[0] = (struct store_position){slice_str(clone_feed_name(r->to.node, run, name)), (int64_t)seq};
    }
    struct store_node to = r->self;
    to.role = NODE_REPLICA;
    to.term = r->to.term;
    to.promoted = false;
    to.leader = r->to.node;
    snprintf(to.address, sizeof to.address, "%s", r->address); /* as it was told, with TLS or without */
    int rc = store_wait_positions(r->store, positions, 2, err);
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
    if (r->unseen > 0) {
        printf("%s item%s of them, forgotten there since, stayed so\n", count_text(r->unseen, text), plural(r->unseen));
    }
    if (r->named > 0) {
        printf("%s forget%s of this folder %s not carried out there, as it says above: do it there, if it is still "
               "wanted\n",
               count_text(r->named, text), plural(r->named), r->named == 1 ? "is" : "are");
    }
    if (r->left > 0) {
        printf("%s forget%s of this folder %s not carried out there, since those users were loaded there later, or "
               "share a key: the log of %s names them\n",
               count_text(r->left, text), plural(r->left), r->left == 1 ? "is" : "are", r->address);
    }
}

static int run(struct rejoining *r, struct err *err)
{
    char name[FEED_NAME_MAX];
    struct feed_state feed;
    uint64_t run_id = 0, seq = 0;
    int rc = cli_options_has_folder(&r->cfg, err);
    rc = rc < 0 ? rc : folder_need(r->cfg.data, "history.db", err); /* nothing is created */
    rc = rc < 0 ? rc : other_node_open(&r->cfg, r->address, r->user, &(struct other_told){"rejoin", NULL}, &r->to, err);
    rc = rc < 0 ? rc : store_open(&r->cfg, &r->store, err);
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
    int follows = can_follow(r, &run_id, &seq, err);
    r->keeps = follows == 1;
    rc = follows < 0 ? follows : reaches ? send_feed(r, err) : send_all(r, err);
    print_sent(r);
    follows = rc < 0 ? rc : can_follow(r, &run_id, &seq, err); /* what was sent may have been too much */
    bool united = r->users > 0;         /* their deliveries there are in an order that this folder can't come to */
    bool apart = united || r->left > 0; /* what was forgotten here alone would stay so */
    rc = follows < 0 ? follows : become(r, follows == 1 && !apart, run_id, seq, err);
    if (rc == 0 && follows == 1 && !apart) {
        printf("%s is a replica of %s. next: set of = %s in the section [replica] of its configuration, and start it\n",
               r->cfg.data, r->address, r->address);
    } else if (rc == 0) {
        r->must_clone = true;
        printf(
            "nothing that was played here is missing there, but this folder has to be cloned again: %s. next: unseen "
            "clone %s --data %s\n",
            follows != 1 ? "not all that was recorded there since is kept for it"
            : united     ? "users were sent as a whole"
                         : "not all of its forgets are carried out there",
            r->address, r->cfg.data);
    }
    return rc;
}

static bool read_policy(const char *text, enum rejoin_policy *policy)
{
    *policy = strcmp(text, "apply") == 0 ? FORGETS_APPLY : FORGETS_LEAVE;
    return *policy == FORGETS_APPLY || strcmp(text, "leave") == 0;
}

int cli_rejoin(int argc, char **argv)
{
    static struct rejoining r;
    const struct cli_flag flags[] = {{"user", NULL, &r.user}, {"forgets", NULL, &r.policy_text}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"rejoin", help, "the ADDRESS of the new primary", 1, 1, flags, false};
    struct cli_options options;
    struct err err = {0};
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    r.address = options.words[0];
    if (r.policy_text != NULL && !read_policy(r.policy_text, &r.policy)) {
        return cli_misuse("rejoin", "--forgets is \"%s\", expected apply or leave", r.policy_text);
    }
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
    buf_free(&r.own_forgets);
    buf_free(&r.loads);
    buf_free(&r.theirs.of_key);
    arena_free(&r.ids);
    int code = rc < 0 ? cli_fail(&err) : EXIT_GOOD;
    return r.must_clone ? EXIT_CLONE : code;
}
