/* What an old primary alone has, when it rejoins: recorded here in its order, each event once, since the position of
 * its source moves with it. Its times are stated ones: what is older than a forget here is dropped.
 *
 * Its forgets end what both had before the promotion, and nothing that was acknowledged here since, whatever the clocks
 * say. The store can't tell these apart once plays are in filters; the feed can: it has all that was recorded here
 * since, kept for the old primary. So that is gathered from the feed first, and handed in with the forget: the store
 * records it again behind that, in one transaction, so that it is never absent, whatever fails. If something came
 * meanwhile the store refuses, and it is gathered anew. The forgets of a run of events go first, in rounds, of each
 * item one in a round; then come the plays.
 *
 * A crash in the middle is mended by repeating the run. Then the feed has the forgets of the first try as well, and
 * behind each what it spared: by the order of the feed they have ended the rest, as clients' forgets here do. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "replica/change_impl.h"
#include "replica/event.h"
#include "replica/replica.h"
#include "store/positions.h"

enum {
    SOURCE_TEXT = 64,
    MERGE_BATCH_BYTES = 1024 * 1024,
    FEED_PAGE = 256,
    FORGETS_AT_ONCE = 256,
    CATCH_UP = 5,
    WHOLE = 0
};

/* What is gathered at a time, about: fewer forgets go at once before it takes more. */
#define SPARED_BYTES ((size_t)32 * 1024 * 1024)

/* A forget of the run. */
struct late {
    int64_t key;
    uint64_t hash; /* of the item, or WHOLE */
    int64_t at_ms;
    uint64_t seq; /* of its event there; 0: it is left */
    bool done;    /* here, too */
    bool at_hand; /* in this round */
    struct slice user, item;
    struct store_batch spared; /* what it would end, though it is newer */
};

/* When a user, or an item, was last forgotten here. */
struct forgotten {
    int64_t key;
    uint64_t hash;
    int64_t at_ms;
    uint64_t seq;
};

struct merge {
    struct replica *r;
    uint64_t node;                /* the old primary */
    char source[SOURCE_TEXT];     /* "": there is no position, and all is taken each time */
    char consumer[FEED_NAME_MAX]; /* the old primary, as the feed here knows it */
    struct store_reader *reader;  /* NULL: none was needed yet */
    struct arena arena;
    int64_t done; /* all up to that event is here */
    uint64_t read;
    struct store_batch batch;

    struct late *late; /* by key, those of one key in their order */
    size_t n_late;
    struct buf forgotten;         /* struct forgotten each; by key and hash, once it is sorted */
    uint64_t left;                /* forgets */
    size_t at_hand, spared_bytes; /* of this round: forgets; what is gathered for them */
    uint64_t since;               /* behind that event was recorded what the old one never had */
    uint64_t noted;               /* up to that one it was looked through for what ends, and for who was loaded */
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for what an old primary brings");
}

static bool is_forget(enum feed_kind kind)
{
    return kind == FEED_FORGET || kind == FEED_UNSEE || kind == FEED_UNSEE_HASH;
}

static bool is_play(enum feed_kind kind)
{
    return kind == FEED_PLAY || kind == FEED_DELIVERY;
}

static int64_t key_of(const struct merge *m, const struct feed_event *e)
{
    return hash_user_key(m->r->dedup->seed, e->user);
}

/* Of the item; WHOLE for all of the user. */
static uint64_t hash_of(const struct merge *m, const struct feed_event *e)
{
    return e->kind == FEED_FORGET       ? WHOLE
           : e->kind == FEED_UNSEE_HASH ? feed_item_hash(e->item)
                                        : hash_id(m->r->dedup->seed, e->item);
}

/* --- recording --- */

static int hand_in(struct merge *m, struct err *err)
{
    struct store_position position = {slice_str(m->source), (int64_t)m->read};
    bool moves = m->source[0] != '\0' && (int64_t)m->read > m->done;
    if (!moves && m->batch.events == 0) {
        return 0;
    }
    m->batch.positions = &position;
    m->batch.n_positions = moves;
    int rc = change_record(m->r->store, &m->batch, err);
    buf_clear(&m->batch.bytes);
    m->batch.rows = m->batch.events = 0;
    m->done = rc == 0 ? (int64_t)m->read : m->done;
    return rc;
}

static int add(struct merge *m, struct store_batch *to, const struct feed_event *e, int64_t at_ms, struct err *err)
{
    uint64_t hash = hash_of(m, e);
    int rc =
        store_batch_add(to, (enum store_kind)e->kind, at_ms, STORE_STATED, key_of(m, e), e->user, &e->item, &hash, 1);
    return rc < 0 ? no_memory(err) : 0;
}

/* --- the forgets of the run --- */

static int by_key_and_seq(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->seq != y->seq ? (x->seq < y->seq ? -1 : 1) : 0;
}

/* Those that are still to be taken. */
static int collect_late(struct merge *m, struct slice events, struct err *err)
{
    struct event_state state = {0};
    struct feed_event e;
    struct buf list = {0};
    size_t at = 0;
    int rc;
    while ((rc = event_read(&state, events, &at, &e, err)) > 0) {
        if (is_forget(e.kind) && (int64_t)e.seq > m->done) {
            struct late late = {
                .key = key_of(m, &e), .hash = hash_of(m, &e), .at_ms = e.at_ms, .seq = e.seq, .user = e.user};
            late.item = e.kind == FEED_UNSEE ? e.item : slice_of(NULL, 0);
            if (buf_add(&list, &late, sizeof late) < 0) {
                rc = no_memory(err);
                break;
            }
        }
    }
    m->late = (struct late *)(void *)list.data;
    m->n_late = list.len / sizeof *m->late;
    if (m->n_late > 0) {
        qsort(m->late, m->n_late, sizeof *m->late, by_key_and_seq);
    }
    return rc;
}

/* The first with that key; NULL: there is none. */
static struct late *find_late(const struct merge *m, int64_t key)
{
    size_t low = 0, high = m->n_late;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->late[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < m->n_late && m->late[low].key == key ? &m->late[low] : NULL;
}

/* The one behind it of the same key. */
static struct late *next_late(const struct merge *m, struct late *late)
{
    struct late *next = late + 1;
    return next < m->late + m->n_late && next->key == late->key ? next : NULL;
}

static void leave(struct merge *m, struct late *late, const char *why)
{
    log_error("a forget that an old primary brings is not carried out", "user=%s item=%s error=%s",
              log_quote(late->user), log_quote(late->item), log_quote_str(why));
    late->seq = 0;
    m->left++;
}

/* --- the feed --- */

typedef int feed_visit(struct merge *m, const struct feed_event *e, struct err *err);

/* Behind `after`, up to `last`. */
static int walk_feed(struct merge *m, uint64_t after, uint64_t last, feed_visit *visit, struct err *err)
{
    struct store *s = m->r->store;
    struct feed_event page[FEED_PAGE];
    int n = m->reader == NULL ? s->ops->reader_open(s, &m->reader, err) : 0;
    while (n >= 0 && after < last) {
        arena_reset(&m->arena);
        n = s->feed->read(m->reader, m->consumer, after, page, FEED_PAGE, &m->arena, err);
        for (int i = 0; i < n && page[i].seq <= last; i++) {
            int rc = visit(m, &page[i], err);
            if (rc < 0) {
                return rc;
            }
        }
        after = n > 0 ? page[n - 1].seq : last;
    }
    return n < 0 ? n : 0;
}

/* Each event once. What a user was brought in with since can't be told from what they had before. */
static int note(struct merge *m, const struct feed_event *e, struct err *err)
{
    struct late *first = e->kind == FEED_USER || is_forget(e->kind) ? find_late(m, key_of(m, e)) : NULL;
    for (struct late *late = e->kind == FEED_USER ? first : NULL; late != NULL; late = next_late(m, late)) {
        if (late->seq != 0 && !late->done) {
            leave(m, late, "the user was loaded since");
        }
    }
    if (first == NULL || e->kind == FEED_USER) {
        return 0;
    }
    struct forgotten f = {key_of(m, e), hash_of(m, e), e->at_ms, e->seq};
    return buf_add(&m->forgotten, &f, sizeof f) < 0 ? no_memory(err) : 0;
}

static int by_item_and_seq(const void *a, const void *b)
{
    const struct forgotten *x = a, *y = b;
    return x->key != y->key     ? (x->key < y->key ? -1 : 1)
           : x->hash != y->hash ? (x->hash < y->hash ? -1 : 1)
           : x->seq != y->seq   ? (x->seq < y->seq ? -1 : 1)
                                : 0;
}

/* Of each user and item the last one stays, with the latest time of all. */
static void sort_forgotten(struct merge *m)
{
    struct forgotten *list = (struct forgotten *)(void *)m->forgotten.data;
    size_t n = m->forgotten.len / sizeof *list, kept = 0;
    if (n > 0) {
        qsort(list, n, sizeof *list, by_item_and_seq);
    }
    for (size_t i = 0; i < n; i++) {
        struct forgotten *before = kept > 0 ? &list[kept - 1] : NULL;
        if (before != NULL && before->key == list[i].key && before->hash == list[i].hash) {
            before->seq = list[i].seq;
            before->at_ms = before->at_ms > list[i].at_ms ? before->at_ms : list[i].at_ms;
        } else {
            list[kept++] = list[i];
        }
    }
    m->forgotten.len = kept * sizeof *list;
}

static const struct forgotten *find_forgotten(const struct merge *m, int64_t key, uint64_t hash)
{
    const struct forgotten *list = (const struct forgotten *)(const void *)m->forgotten.data;
    size_t low = 0, high = m->forgotten.len / sizeof *list;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct forgotten *f = &list[middle];
        if (f->key == key && f->hash == hash) {
            return f;
        }
        if (f->key < key || (f->key == key && f->hash < hash)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Whether something here has ended it; and if not, the time with which it is recorded again: behind each forget that
 * came before, which the store takes for older by the times alone. */
static bool ended_here(const struct merge *m, const struct feed_event *e, int64_t *at_ms)
{
    const uint64_t hashes[] = {WHOLE, hash_of(m, e)};
    for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
        const struct forgotten *f = find_forgotten(m, key_of(m, e), hashes[i]);
        if (f != NULL && f->seq > e->seq) {
            return true;
        }
        if (f != NULL && f->at_ms >= *at_ms) {
            *at_ms = f->at_ms + 1;
        }
    }
    return false;
}

static bool is_of(const struct late *late, uint64_t hash)
{
    return late->hash == WHOLE || late->hash == hash;
}

/* For the forget of this round that would end it; there is at most one. */
static int gather(struct merge *m, const struct feed_event *e, struct err *err)
{
    int64_t at_ms = e->at_ms;
    struct late *by = is_play(e->kind) ? find_late(m, key_of(m, e)) : NULL;
    while (by != NULL && !(by->at_hand && is_of(by, hash_of(m, e)))) {
        by = next_late(m, by);
    }
    if (by == NULL || ended_here(m, e, &at_ms)) {
        return 0;
    }
    at_ms = by->at_ms >= at_ms ? by->at_ms + 1 : at_ms;
    size_t before = by->spared.bytes.len;
    int rc = add(m, &by->spared, e, at_ms, err);
    m->spared_bytes += by->spared.bytes.len - before;
    return rc == 0 && m->at_hand > 1 && m->spared_bytes > SPARED_BYTES
               ? err_set(err, ERR_LARGE, "too much is spared at a time")
               : rc;
}

/* --- carrying out --- */

struct wait_for {
    struct change_wait done;
    pthread_mutex_t mutex;
    size_t left;
};

static void on_forgotten(struct store_forget *forget)
{
    struct wait_for *w = forget->owner;
    pthread_mutex_lock(&w->mutex);
    bool last = --w->left == 0;
    pthread_mutex_unlock(&w->mutex);
    if (last) {
        change_tell(&w->done);
    }
}

/* Together, so that they share commits. Those that were refused as stale are not done. */
static int forget_some(struct merge *m, struct late **list, size_t n, bool spares, uint64_t as_of, struct err *err)
{
    struct wait_for w = {CHANGE_WAIT_INIT, PTHREAD_MUTEX_INITIALIZER, n};
    struct store_forget *forgets = malloc(n * sizeof *forgets);
    struct store *s = m->r->store;
    int rc = 0;
    if (forgets == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        struct late *late = list[i];
        forgets[i] = (struct store_forget){.key = late->key,
                                           .user = late->user,
                                           .items = late->item.len > 0 ? &late->item : NULL,
                                           .hashes = &late->hash,
                                           .n_items = late->hash != WHOLE,
                                           .first_month = dedup_first_month(m->r->dedup),
                                           .stated_ms = late->at_ms,
                                           .spared = spares ? &late->spared : NULL,
                                           .as_of = as_of,
                                           .done = on_forgotten,
                                           .owner = &w};
        s->ops->forget(s, &forgets[i]);
    }
    change_wait(&w.done);
    for (size_t i = 0; i < n; i++) {
        int code = forgets[i].err.code;
        list[i]->done = code == 0;
        if (code == ERR_SHARED || code == ERR_CORRUPT) {
            leave(m, list[i], forgets[i].err.text);
        } else if (code < 0 && code != ERR_STALE) {
            rc = err_set(err, code, "%s", forgets[i].err.text);
        }
    }
    free(forgets);
    return rc;
}

/* Whether an earlier one of the user has to go before: what that spares this one may end. */
static bool must_wait(struct merge *m, const struct late *late)
{
    for (struct late *other = find_late(m, late->key); other != late; other = next_late(m, other)) {
        if (other->seq != 0 && !other->done &&
            (other->hash == late->hash || other->hash == WHOLE || late->hash == WHOLE)) {
            return true;
        }
    }
    return false;
}

/* Those of the next round. */
static size_t choose(struct merge *m, struct late *some[FORGETS_AT_ONCE], size_t most, bool spares)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_late && n < most; i++) {
        struct late *late = &m->late[i];
        if (late->seq != 0 && !late->done && !(spares && must_wait(m, late))) {
            some[n++] = late;
        }
    }
    return n;
}

/* Whether the feed has all that was recorded here since the other one was replaced. */
static int can_tell_apart(struct merge *m, struct err *err)
{
    struct feed_state queue;
    struct change_parting p;
    feed_state_of(m->r->store, m->consumer, &queue);
    bool parted = change_parting(m->r->store, &p) && p.node == m->node;
    m->since = m->noted = p.promoted_at_seq;
    return parted && queue.name[0] != '\0' && queue.place != FEED_LOST && queue.cursor <= p.promoted_at_seq
               ? 0
               : err_set(
                     err, ERR_NOTFOUND,
                     "not all that was recorded here since the promotion is kept for the old primary: what is newer "
                     "than its forgets can't be told");
}

/* What came while the feed was walked through. A client's forget, or a user who was loaded: all of it anew. */
static int gather_more(struct merge *m, const struct feed_event *e, struct err *err)
{
    if (is_play(e->kind) || e->kind == FEED_OFFSET) {
        return gather(m, e, err);
    }
    struct late *late = find_late(m, key_of(m, e));
    while (late != NULL && !late->at_hand) {
        late = next_late(m, late);
    }
    return late == NULL ? 0 : err_set(err, ERR_STALE, "more was recorded meanwhile");
}

static void begin_round(struct merge *m, struct late **some, size_t n)
{
    m->at_hand = n;
    m->spared_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        some[i]->at_hand = true;
    }
}

static void end_round(struct late **some, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        some[i]->at_hand = false;
        buf_free(&some[i]->spared.bytes);
        some[i]->spared = (struct store_batch){0};
    }
}

/* *most: how many forgets may go at once. 1: there may be more to do; 0: all is done. */
static int take_round(struct merge *m, size_t *most, struct err *err)
{
    struct store *s = m->r->store;
    struct late *some[FORGETS_AT_ONCE];
    struct err why = {0};
    uint64_t last = s->feed->last(s), next;
    int rc = walk_feed(m, m->noted, last, note, err);
    if (rc < 0) {
        return rc;
    }
    m->noted = last;
    sort_forgotten(m);
    size_t n = choose(m, some, *most, true);
    if (n == 0) {
        return 0;
    }
    begin_round(m, some, n);
    rc = walk_feed(m, m->since, last, gather, &why);
    for (int i = 0; rc == 0 && i < CATCH_UP && (next = s->feed->last(s)) > last; i++) {
        rc = walk_feed(m, last, next, gather_more, &why);
        last = next;
    }
    bool again = rc == ERR_LARGE || rc == ERR_STALE;
    *most = rc == ERR_LARGE ? n / 2 : *most;
    rc = rc == 0 ? forget_some(m, some, n, true, last, &why) : rc;
    end_round(some, n);
    return rc == 0 || again ? 1 : err_set(err, rc, "%s", why.text);
}

static int take_forgets(struct merge *m, bool force, struct err *err)
{
    struct late *some[FORGETS_AT_ONCE];
    size_t n, most = FORGETS_AT_ONCE;
    int rc = 0;
    if (m->n_late == 0) {
        return 0;
    }
    if (!force) {
        for (rc = can_tell_apart(m, err) < 0 ? err->code : 1; rc > 0;) {
            rc = take_round(m, &most, err);
        }
        return rc;
    }
    while (rc == 0 && (n = choose(m, some, most, false)) > 0) {
        rc = forget_some(m, some, n, false, 0, err);
    }
    return rc;
}

/* One that comes before a forget of the run is ended by it; one behind it is not, also when it was the same
 * millisecond. */
static int take_play(struct merge *m, const struct feed_event *e, struct err *err)
{
    int64_t at_ms = e->at_ms;
    for (struct late *late = find_late(m, key_of(m, e)); late != NULL; late = next_late(m, late)) {
        if (late->seq == 0 || (late->hash != WHOLE && late->hash != hash_of(m, e))) {
            continue;
        }
        if (late->seq > e->seq) {
            return 0;
        }
        at_ms = late->at_ms >= at_ms ? late->at_ms + 1 : at_ms;
    }
    return add(m, &m->batch, e, at_ms, err);
}

/* A user's state comes by LOAD, and the offsets of sources are this node's own. */
static int take_events(struct merge *m, struct slice events, struct err *err)
{
    struct event_state state = {0};
    struct feed_event e;
    size_t at = 0;
    int rc;
    while ((rc = event_read(&state, events, &at, &e, err)) > 0) {
        if ((int64_t)e.seq <= m->done) {
            continue;
        }
        if (is_play(e.kind) && (rc = take_play(m, &e, err)) < 0) {
            break;
        }
        m->read = e.seq;
        if (m->batch.bytes.len >= MERGE_BATCH_BYTES && (rc = hand_in(m, err)) < 0) {
            break;
        }
    }
    return rc;
}

/* Forgets without a feed are numbered by whoever sends them, the same way each time, since their folder was replaced:
 * these numbers mean nothing after the next time that it is. */
static void name_source(struct merge *m, const struct change *ch)
{
    struct change_parting p;
    bool parted = change_parting(m->r->store, &p) && p.node == ch->node;
    if (!ch->forgets) {
        snprintf(m->source, SOURCE_TEXT, "merge:%016" PRIx64, ch->node);
    } else if (parted) {
        snprintf(m->source, SOURCE_TEXT, "forgets:%016" PRIx64 ":%" PRIu64, ch->node, p.common_seq);
    }
    snprintf(m->consumer, sizeof m->consumer, FEED_REMOTE "%016" PRIx64, ch->node);
}

int change_merge(struct replica *r, struct change *ch, struct err *err)
{
    struct merge m = {.r = r, .node = ch->node};
    if (r->store->positions == NULL) {
        return store_lacks(r->store, "positions", err);
    }
    name_source(&m, ch);
    if (m.source[0] != '\0') {
        r->store->positions->find(r->store, slice_str(m.source), &m.done);
    }
    m.read = (uint64_t)m.done;
    int rc = collect_late(&m, ch->events, err);
    rc = rc < 0 ? rc : take_forgets(&m, ch->force, err);
    rc = rc < 0 ? rc : take_events(&m, ch->events, err);
    if (rc == 0) {
        m.read = ch->to > m.read ? ch->to : m.read;
        rc = hand_in(&m, err);
    }
    ch->left = m.left;
    if (m.reader != NULL) {
        r->store->ops->reader_close(m.reader);
    }
    arena_free(&m.arena);
    buf_free(&m.batch.bytes);
    buf_free(&m.forgotten);
    free(m.late);
    return rc;
}
