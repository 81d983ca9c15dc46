/* REPLICA HELLO, ENLIST and FETCH: what a replica asks its primary. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "replica/change.h"
#include "replica/feeder.h"
#include "replica/pages.h"
#include "replica/replica.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"

/* NULL: the command was refused. */
static struct replica *replica_of(struct resp_client *s, enum outcome *refused)
{
    struct replica *r = service_dedup(&s->conn)->replica;
    *refused = r == NULL ? resp_client_lacks(s, "replicas") : OUTCOME_ANSWERED;
    return r;
}

static bool read_id(struct resp_client *s, const char *what, struct slice arg, uint64_t *id, enum outcome *refused)
{
    if (!change_read_id(arg, id)) {
        *refused =
            resp_client_refuse(s, "ERR a %s is 16 lower-case hex digits, got '%.*s'", what, arg_shown(arg), arg.data);
        return false;
    }
    return true;
}

static bool read_number(struct resp_client *s, const char *what, struct slice arg, int64_t least, int64_t most,
                        int64_t *out, enum outcome *refused)
{
    if (!arg_int(arg, out) || *out < least || *out > most) {
        *refused = resp_client_refuse(s, "ERR %s is a whole number from %" PRId64 " to %" PRId64 ", got '%.*s'", what,
                                      least, most, arg_shown(arg), arg.data);
        return false;
    }
    return true;
}

/* --- HELLO --- */

/* Who follows, so that each keeps what it has for the others. */
static void write_replicas(struct writer *w, const struct replica *r, const struct store_node *now)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    int n = now->role == NODE_PRIMARY ? feeder_look(r->feeder, all) : 0;
    write_str(w, "replicas");
    write_array(w, (size_t)n);
    for (int i = 0; i < n; i++) {
        write_array(w, 2);
        write_hex(w, all[i].node);
        write_str(w, all[i].address);
    }
}

static void write_hello(struct resp_client *s, const struct replica *r, int64_t protocol)
{
    const struct config *live = resp_client_config(s);
    struct writer *w = &s->writer;
    struct store_node now;
    role_look(r->dedup->role, &now);
    write_map(w, 15);
    write_pair_int(w, "protocol", protocol);
    write_pair_str(w, "version", UNSEEN_VERSION);
    write_pair_hex(w, "node", now.node);
    write_pair_hex(w, "run", now.run);
    write_pair_int(w, "term", (int64_t)now.term);
    write_pair_str(w, "role", node_role_name(now.role));
    write_pair_hex(w, "leader", now.leader);
    write_pair_str(w, "address", now.address);
    write_pair_hex(w, "seed", r->dedup->seed);
    write_pair_int(w, "window", live->window);
    write_pair_int(w, "retention", live->retention);
    write_pair_int(w, "delivered_max", live->delivered_max);
    write_pair_int(w, "last", (int64_t)r->store->feed->last(r->store));
    write_pair_int(w, "now_ms", clock_wall_ms());
    write_replicas(w, r, &now);
}

enum outcome cmd_replica_hello(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    enum outcome refused;
    struct replica *r = replica_of(s, &refused);
    struct store_node now;
    int64_t protocol, term;
    uint64_t node;
    char address[NODE_ADDRESS_TEXT];
    struct err err;
    if (r == NULL || !read_number(s, "a protocol", args[2], 0, INT64_MAX, &protocol, &refused) ||
        !read_id(s, "node", args[3], &node, &refused) ||
        !read_number(s, "a term", args[4], 0, INT64_MAX, &term, &refused)) {
        return refused;
    }
    if (protocol < REPLICA_PROTOCOL_MIN) {
        return resp_client_refuse(s,
                                  "VERSION this is unseen " UNSEEN_VERSION
                                  ", which speaks protocols %d to %d to replicas, and not %" PRId64
                                  ": versions one apart work together",
                                  REPLICA_PROTOCOL_MIN, r->protocol, protocol);
    }
    if (reach_take(args[5], conn_is_local(&s->conn), address, &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    role_look(r->dedup->role, &now);
    feeder_tell_address(r->feeder, node, address,
                        now.role == NODE_PRIMARY && (uint64_t)term <= now.term ? now.term : 0);
    changer_look(r->changer);
    s->replica_protocol = protocol < r->protocol ? protocol : r->protocol;
    write_hello(s, r, s->replica_protocol);
    return OUTCOME_ANSWERED;
}

/* --- ENLIST --- */

struct enlist_deferred {
    struct deferred deferred;
    struct feed_enlist enlist;
    struct page page;
    struct replica *replica;
    char name[FEED_NAME_MAX];
};

static void on_done(struct store_call *call)
{
    deferred_done(call->owner);
}

static void answer_enlist(struct deferred *deferred, struct resp_client *s)
{
    const struct enlist_deferred *t = (struct enlist_deferred *)deferred;
    struct store_node now;
    if (t->enlist.call.err.code < 0) {
        resp_client_write_err(s, &t->enlist.call.err);
        return;
    }
    t->replica->store->node->get(t->replica->store, &now);
    write_map(&s->writer, 3);
    write_pair_hex(&s->writer, "node", now.node);
    write_pair_hex(&s->writer, "run", now.run);
    write_pair_int(&s->writer, "seq", (int64_t)t->enlist.cursor);
}

static void on_adopted(struct page *page)
{
    deferred_done(page->owner);
}

static void answer_adopt(struct deferred *deferred, struct resp_client *s)
{
    struct enlist_deferred *t = (struct enlist_deferred *)deferred;
    if (t->page.err.code == ERR_NOTFOUND) {
        write_errorf(&s->writer, "LOST %s", t->page.err.text);
        return;
    }
    t->enlist.call.err = t->page.err;
    t->enlist.cursor = t->page.from;
    answer_enlist(deferred, s);
}

static void free_adopt(struct deferred *deferred)
{
    page_end(&((struct enlist_deferred *)deferred)->page);
}

static struct enlist_deferred *new_enlist(struct resp_client *s, struct slice arg,
                                          void (*answer)(struct deferred *deferred, struct resp_client *s),
                                          enum outcome *refused)
{
    struct replica *r = replica_of(s, refused);
    uint64_t node;
    if (r == NULL || !read_id(s, "node", arg, &node, refused)) {
        return NULL;
    }
    struct enlist_deferred *t = deferred_new(sizeof *t, s, answer);
    if (t == NULL) {
        *refused = resp_client_refuse(s, "OOM out of memory");
        return NULL;
    }
    t->replica = r;
    snprintf(t->name, sizeof t->name, FEED_REMOTE "%016" PRIx64, node);
    return t;
}

enum outcome cmd_replica_enlist(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    struct err err;
    uint64_t replica, followed = 0;
    int64_t seq = 0;
    if (n != 3 && n != 5) {
        return resp_client_refuse(s, "ERR expected REPLICA ENLIST node [followed seq]");
    }
    if (!read_id(s, "node", args[2], &replica, &refused) ||
        (n == 5 && (!read_id(s, "node", args[3], &followed, &refused) ||
                    !read_number(s, "a seq", args[4], 0, INT64_MAX, &seq, &refused)))) {
        return refused;
    }
    if (role_may_write(service_dedup(&s->conn)->role, &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    struct enlist_deferred *t = new_enlist(s, args[2], n == 5 ? answer_adopt : answer_enlist, &refused);
    if (t == NULL) {
        return refused;
    }
    if (n == 5) {
        t->page = (struct page){.kind = PAGE_ADOPT, .replica = replica, .done = on_adopted, .owner = t};
        t->page.cursor = (struct feed_cursor){.node = followed, .seq = (uint64_t)seq};
        t->deferred.free = free_adopt;
        pages_put(t->replica->pages, &t->page);
        return OUTCOME_LATER;
    }
    t->enlist = (struct feed_enlist){.call = {.done = on_done, .owner = t}, .consumer = t->name};
    t->replica->store->feed->enlist(t->replica->store, &t->enlist);
    return OUTCOME_LATER;
}

/* --- FETCH --- */

struct fetch_deferred {
    struct deferred deferred;
    struct feeder_fetch fetch;
    struct replica *replica;
};

static void on_fetched(struct feeder_fetch *fetch)
{
    deferred_done(fetch->owner);
}

static void free_fetch(struct deferred *deferred)
{
    buf_free(&((struct fetch_deferred *)deferred)->fetch.events);
}

static void write_fetched(struct writer *w, const struct fetch_deferred *t)
{
    struct store_node now;
    role_look(t->replica->dedup->role, &now);
    write_array(w, 9);
    write_int(w, (int64_t)now.term);
    write_str(w, node_role_name(now.role));
    write_hex(w, now.node);
    write_hex(w, now.run);
    write_int(w, (int64_t)t->fetch.last);
    write_int(w, clock_wall_ms());
    write_int(w, t->fetch.n);
    write_int(w, (int64_t)t->fetch.to);
    write_bulk(w, buf_slice(&t->fetch.events));
}

static void answer_fetch(struct deferred *deferred, struct resp_client *s)
{
    struct fetch_deferred *t = (struct fetch_deferred *)deferred;
    const struct err *err = &t->fetch.err;
    if (err->code == ERR_NOTFOUND) {
        write_errorf(&s->writer, "LOST %s", err->text);
    } else if (err->code == ERR_VERSION) {
        write_errorf(&s->writer, "VERSION %s", err->text);
    } else if (err->code < 0) {
        resp_client_write_err(s, err);
    } else {
        write_fetched(&s->writer, t);
    }
}

static bool read_fetch(struct resp_client *s, const struct slice *args, struct feeder_fetch *f, uint64_t *their_term,
                       enum outcome *refused)
{
    int64_t after, durable, bytes, term;
    bool good = read_id(s, "node", args[2], &f->replica, refused) && read_id(s, "node", args[3], &f->node, refused) &&
                read_id(s, "run", args[4], &f->run, refused) &&
                read_number(s, "after", args[5], 0, INT64_MAX, &after, refused) &&
                read_number(s, "durable", args[6], 0, after, &durable, refused) &&
                read_number(s, "bytes", args[7], 1, FEEDER_REPLY_MAX, &bytes, refused) &&
                read_number(s, "wait_ms", args[8], 0, FEEDER_WAIT_MAX_MS, &f->wait_ms, refused) &&
                read_number(s, "now_ms", args[9], 0, INT64_MAX, &f->sent_ms, refused) &&
                read_number(s, "a term", args[10], 0, INT64_MAX, &term, refused);
    if (good) {
        f->after = (uint64_t)after;
        f->durable = (uint64_t)durable;
        f->bytes_max = (size_t)bytes;
        f->groups = s->replica_protocol >= REPLICA_TIMES;
        *their_term = (uint64_t)term;
    }
    return good;
}

enum outcome cmd_replica_fetch(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    enum outcome refused;
    struct err err;
    struct feeder_fetch fetch = {.done = on_fetched};
    uint64_t term = 0;
    struct replica *r = replica_of(s, &refused);
    if (r == NULL || !read_fetch(s, args, &fetch, &term, &refused)) {
        return refused;
    }
    struct store_node now;
    role_look(r->dedup->role, &now);
    if (now.role == NODE_REPLICA && role_may_write(r->dedup->role, &err) < 0) { /* a fenced one still hands over */
        return resp_client_refuse_err(s, &err);
    }
    if (term > now.term) { /* what it confirms to this one would be lost to the other */
        return resp_client_refuse(s, "READONLY this node is of term %" PRIu64 ", and the replica has met term %" PRIu64,
                                  now.term, term);
    }
    struct fetch_deferred *t = deferred_new(sizeof *t, s, answer_fetch);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    t->deferred.free = free_fetch;
    t->fetch = fetch;
    t->fetch.owner = t;
    t->replica = r;
    feeder_fetch(r->feeder, &t->fetch);
    return OUTCOME_LATER;
}
