/* Whether another node has all that a folder has acknowledged, so that what it says of a month is all of it. A replica
 * has what it has applied of the feed that it followed last; any other folder has taken its events itself. The other
 * node says how far it has come with that feed, and what lies behind is looked for in the folder's own. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cli/lib/output.h"
#include "cli/replica/mend.h"
#include "replica/clone_mark.h"
#include "replica/cursor.h"
#include "store/factory.h"
#include "store/feed.h"

enum { POSITIONS = 1000, EVENTS = 512 };

/* Up to where the other one has taken that node's feed, in any of its runs: 1; 0: it never followed it. */
static int ask_applied(struct mend *m, uint64_t node, uint64_t *seq, struct err *err)
{
    char max[NUMBER_TEXT], prefix[CLONE_MARK_TEXT], last[CLONE_MARK_TEXT];
    size_t len = (size_t)snprintf(prefix, sizeof prefix, CLONE_FEED_PREFIX "%016" PRIx64 ":", node);
    memcpy(last, prefix, len);
    struct slice words[] = {slice_str("REPLICA"), slice_str("POSITIONS"), number_text(POSITIONS, max),
                            slice_of(last, len)};
    const struct reply *list;
    int found = 0;
    *seq = 0;
    for (;;) {
        int rc = other_node_call(&m->from, words, 4, &list, err);
        if (rc < 0) {
            return rc;
        }
        for (size_t i = 0; list->kind == REPLY_ARRAY && i < list->n; i++) {
            const struct reply *row = &list->items[i];
            int64_t next;
            if (row->kind != REPLY_ARRAY || row->n != 2 || row->items[0].kind != REPLY_TEXT ||
                !reply_integer(&row->items[1], &next)) {
                return err_set(err, ERR_VERSION,
                               "%s: the answer to REPLICA POSITIONS can't be read: is it another version?", m->address);
            }
            const struct slice source = row->items[0].text;
            if (source.len <= len || source.len > sizeof last || memcmp(source.data, prefix, len) != 0) {
                return found;
            }
            *seq = next > 0 && (uint64_t)next > *seq ? (uint64_t)next : *seq;
            found = 1;
            memcpy(last, source.data, source.len);
            words[3] = slice_of(last, source.len);
        }
        if (list->kind != REPLY_ARRAY || list->n < POSITIONS) {
            return found;
        }
    }
}

struct missing {
    uint64_t events, users; /* plays, deliveries and forgets; users who were brought in */
};

/* What of this folder's feed lies behind `seq`: 1; 0: the feed no longer tells. */
static int count_missing(struct mend *m, struct store *store, uint64_t seq, struct missing *out, struct err *err)
{
    static struct feed_event page[EVENTS];
    char name[FEED_NAME_MAX];
    struct feed_state queue;
    struct store_reader *reader;
    struct arena arena = {0};
    snprintf(name, sizeof name, FEED_REMOTE "%016" PRIx64, m->from.node);
    feed_state_of(store, name, &queue);
    if (queue.name[0] == '\0' || queue.place == FEED_LOST || seq < queue.held) {
        return 0;
    }
    int n = store->ops->reader_open(store, &reader, err);
    if (n < 0) {
        return n;
    }
    while ((n = store->feed->read(reader, name, seq, page, EVENTS, &arena, err)) > 0) {
        for (int i = 0; i < n; i++) {
            out->users += page[i].kind == FEED_USER;
            out->events += page[i].kind != FEED_USER && page[i].kind != FEED_OFFSET && page[i].kind != FEED_POOL;
        }
        seq = page[n - 1].seq;
        arena_reset(&arena);
    }
    arena_free(&arena);
    store->ops->reader_close(reader);
    return n < 0 ? n : 1;
}

static int is_behind(struct mend *m, struct err *err, const char *what)
{
    return err_set(err, ERR_STALE,
                   "%s is not level with %s: %s. Serve the folder until it is (unseen replica --status), stop the "
                   "server, and run this again; or name another node. --force takes what this one has: what it lacks "
                   "of the months that are lost here stays lost",
                   m->address, m->cfg->data, what);
}

/* Of a folder that took its events itself. */
static int check_own(struct mend *m, struct store *store, const struct store_node *self, struct err *err)
{
    char text[256], count[OUTPUT_TEXT];
    struct missing missing = {0};
    uint64_t has, last = store->feed->last(store);
    int rc = ask_applied(m, self->node, &has, err);
    if (rc < 0 || (rc == 1 && has >= last)) {
        return rc < 0 ? rc : 0;
    }
    if (rc == 0) {
        return is_behind(m, err, "it never followed this folder");
    }
    if ((rc = count_missing(m, store, has, &missing, err)) < 0) {
        return rc;
    }
    if (rc == 0) {
        snprintf(text, sizeof text,
                 "it has its events up to %" PRIu64 " of %" PRIu64 ", and what came since is no longer kept for it",
                 has, last);
        return is_behind(m, err, text);
    }
    if (missing.events > 0) {
        snprintf(text, sizeof text, "it lacks %s event%s of this folder%s", count_text(missing.events, count),
                 plural(missing.events), self->role == NODE_FENCED ? ", which unseen rejoin brings there" : "");
        return is_behind(m, err, text);
    }
    if (missing.users > 0) {
        snprintf(
            m->doubt, sizeof m->doubt,
            "%s has not heard of %s user%s who were loaded or repaired here since: of what was loaded, some may be "
            "missing",
            m->address, count_text(missing.users, count), plural(missing.users));
    }
    return 0;
}

/* Of a replica's. */
static int check_followed(struct mend *m, struct store *store, uint64_t node, struct err *err)
{
    char text[256];
    struct store_reader *reader;
    struct feed_cursor own = {0};
    uint64_t has = m->from.last;
    int rc = store->ops->reader_open(store, &reader, err);
    if (rc < 0) {
        return rc;
    }
    rc = cursor_find(store, reader, node, &own, err);
    store->ops->reader_close(reader);
    if (rc > 0 && node != m->from.node) {
        rc = ask_applied(m, node, &has, err);
        if (rc == 0) {
            return is_behind(m, err, "it never followed the primary of this folder");
        }
    }
    if (rc <= 0 || has >= own.seq) {
        return rc < 0 ? rc : 0; /* or there is nothing of that feed here */
    }
    snprintf(text, sizeof text, "it has the events of their primary up to %" PRIu64 ", and this folder up to %" PRIu64,
             has, own.seq);
    return is_behind(m, err, text);
}

int mend_check_level(struct mend *m, struct store *store, struct err *err)
{
    struct store_node self;
    if (store->node == NULL || store->feed == NULL) {
        return store_lacks(store, "replicas", err);
    }
    store->node->get(store, &self);
    uint64_t followed = cursor_last(store);
    int rc = self.role == NODE_REPLICA ? check_followed(m, store, followed != 0 ? followed : self.leader, err)
                                       : check_own(m, store, &self, err);
    if (rc == ERR_STALE && m->force) {
        snprintf(m->doubt, sizeof m->doubt, "%s is not level: what it lacks of what is repaired now stays lost",
                 m->address);
        return 0;
    }
    return rc;
}
