/* What an old primary alone has, when it rejoins: recorded here in its order, each event once, since the position of
 * its source moves with it. Its times are stated ones: what is older than a forget here is dropped.
 *
 * Its forgets end what both had before the promotion, and nothing that was acknowledged here since, whatever the clocks
 * say. The store can't tell these apart once plays are in filters; the feed can: it has all that was recorded here
 * since, kept for the old primary. So that is gathered from the feed, and handed in with the forget: the store records
 * it again behind that, in one transaction, so that it is never absent, whatever fails. What clients record meanwhile
 * is gathered too, the last of it when the store's writer has come to the forget and so holds whatever comes behind it:
 * however busy a user is, one walk through the feed is enough. The forgets of a run of events go first, in rounds, of
 * each item one in a round; then come the plays.
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
    CATCH_UPS = 5, /* walks, each through what came during the one before, so that the writer has little to do */
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
    struct store_batch gathered; /* of this round: what is newer and it would end, unless a forget here has; */
    struct buf seqs;             /* uint64_t of each, */
    struct store_batch spared;   /* and the rest, as it is recorded again */
    struct wait_for *waits;      /* for it */
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
    struct buf forgotten;           /* struct forgotten each; by key and hash, as far as they are sorted */
    size_t n_sorted;                /* of them */
    char left_source[SOURCE_TEXT];  /* of the position that counts the forgets that are left; "": as of source */
    int64_t left_before;            /* since the two parted: that rejoin may have been cut short */
    uint64_t left;                  /* now */
    size_t at_hand, gathered_bytes; /* of this round: forgets; what is gathered for them */
    uint64_t since;                 /* behind that event was recorded what the old one never had */
    uint64_t walked;                /* up to that one the feed was walked through in this round, */
    uint64_t noted;                 /* and in any: forgets are noted once */
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
    const struct store_position positions[] = {
        {slice_str(m->source), (int64_t)m->read},
        {slice_str(m->left_source), m->left_before + (int64_t)m->left},
    };
    bool moves = m->source[0] != '\0' && (int64_t)m->read > m->done;
    if (!moves && m->batch.events == 0) {
        return 0;
    }
    m->batch.positions = positions;
    m->batch.n_positions = !moves ? 0 : m->left == 0 || m->left_source[0] == '\0' ? 1 : 2;
    int rc = change_record(m->r->store, &m->batch, err);
    buf_clear(&m->batch.bytes);
    m->batch.rows = m->batch.events = 0;
    m->done = rc == 0 ? (int64_t)m->read : m->done;
    return rc;
}

static int add(struct merge *m, struct store_batch *to, const struct feed_event *e, int64_t at_ms, struct err *err)
{
    uint64_t hash = hash_of(m, e);
    int rc = store_batch_add_groups(to, (enum store_kind)e->kind, at_ms, STORE_STATED, key_of(m, e), e->user, &e->item,
                                    &hash, &e->group, 1);
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
    if (n == m->n_sorted) {
        return;
    }
    qsort(list, n, sizeof *list, by_item_and_seq);
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
    m->n_sorted = kept;
}

static const struct forgotten *find_forgotten(const struct merge *m, int64_t key, uint64_t hash)
{
    const struct forgotten *list = (const struct forgotten *)(const void *)m->forgotten.data;
    size_t low = 0, high = m->n_sorted;
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

/* Whether a forget here that is sorted has ended it; and if not, the time with which it is recorded again: behind each
 * forget that came before, which the store takes for older by the times alone. */
static bool ended_here(const struct merge *m, int64_t key, uint64_t hash, uint64_t seq, int64_t *at_ms)
{
    const uint64_t hashes[] = {WHOLE, hash};
    for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++) {
        const struct forgotten *f = find_forgotten(m, key, hashes[i]);
        if (f != NULL && f->seq > seq) {
            return true;
        }
        if (f != NULL && f->at_ms >= *at_ms) {
            *at_ms = f->at_ms + 1;
        }
    }
    return false;
}

/* For the forget of this round that would end it; there is at most one. */
static int gather_play(struct merge *m, struct late *by, const struct feed_event *e, struct err *err)
{
    int64_t at_ms = e->at_ms;
    uint64_t hash = hash_of(m, e);
    while (by != NULL && !(by->at_hand && (by->hash == WHOLE || by->hash == hash))) {
        by = next_late(m, by);
    }
    if (by == NULL || ended_here(m, by->key, hash, e->seq, &at_ms)) {
        return 0;
    }
    if (m->at_hand > 1 && m->gathered_bytes > SPARED_BYTES) {
        return err_set(err, ERR_LARGE, "too much is spared at a time");
    }
    size_t before = by->gathered.bytes.len;
    int rc = buf_add(&by->seqs, &e->seq, sizeof e->seq) < 0 ? no_memory(err) : 0;
    if (rc == 0 && (rc = add(m, &by->gathered, e, e->at_ms, err)) < 0) {
        by->seqs.len -= sizeof e->seq;
    }
    m->gathered_bytes += by->gathered.bytes.len - before;
    return rc;
}

/* What a user was brought in with since can't be told from what they had before. */
static int gather(struct merge *m, const struct feed_event *e, struct err *err)
{
    bool tells = is_play(e->kind) || is_forget(e->kind) || e->kind == FEED_USER;
    struct late *late = tells ? find_late(m, key_of(m, e)) : NULL;
    if (late != NULL && is_play(e->kind)) {
        return gather_play(m, late, e, err);
    }
    if (late != NULL && is_forget(e->kind)) {
        struct forgotten f = {late->key, hash_of(m, e), e->at_ms, e->seq};
        return e->seq > m->noted && buf_add(&m->forgotten, &f, sizeof f) < 0 ? no_memory(err) : 0;
    }
    for (; late != NULL; late = next_late(m, late)) {
        if (late->seq != 0 && !late->done) {
            leave(m, late, "the user was loaded since");
        }
    }
    return 0;
}

/* From where it ended to what is there by now. */
static int walk_on(struct merge *m, struct err *err)
{
    struct feed_event page[FEED_PAGE];
    uint64_t last = m->r->store->feed->last(m->r->store);
    int n = 0;
    while (n >= 0 && m->walked < last) {
        arena_reset(&m->arena);
        n = m->r->store->feed->read(m->reader, m->consumer, m->walked, page, FEED_PAGE, &m->arena, err);
        for (int i = 0; i < n; i++) {
            int rc = gather(m, &page[i], err);
            if (rc < 0) {
                return rc;
            }
            m->walked = page[i].seq;
            m->noted = m->walked > m->noted ? m->walked : m->noted;
        }
        m->walked = n > 0 ? m->walked : last;
    }
    return n < 0 ? n : 0;
}

/* Of what is gathered for it, what nothing here has ended. */
static int spare(struct merge *m, struct late *late, struct err *err)
{
    struct store_event e;
    struct store_item item;
    uint64_t seq;
    size_t at = 0;
    sort_forgotten(m);
    for (size_t i = 0; store_batch_next(&late->gathered, &at, &e); i++) {
        memcpy(&seq, late->seqs.data + i * sizeof seq, sizeof seq);
        store_event_item(&e, e.items, &item);
        int64_t at_ms = e.at_ms > late->at_ms ? e.at_ms : late->at_ms + 1;
        if (!ended_here(m, e.key, item.hash, seq, &at_ms) &&
            store_batch_add_groups(&late->spared, e.kind, at_ms, STORE_STATED, e.key, e.user, &item.id, &item.hash,
                                   &item.group, 1) < 0) {
            return no_memory(err);
        }
    }
    return 0;
}

/* --- carrying out --- */

struct wait_for {
    struct change_wait done;
    pthread_mutex_t mutex;
    size_t left;
    struct merge *m;
};

static void on_forgotten(struct store_forget *forget)
{
    struct wait_for *w = ((struct late *)forget->owner)->waits;
    pthread_mutex_lock(&w->mutex);
    bool last = --w->left == 0;
    pthread_mutex_unlock(&w->mutex);
    if (last) {
        change_tell(&w->done);
    }
}

/* Whether the feed has all that was recorded here since the other one was replaced. */
static int can_tell_apart(struct merge *m, struct err *err)
{
    struct feed_state queue;
    struct change_parting p;
    feed_state_of(m->r->store, m->consumer, &queue);
    bool parted = change_parting(m->r->store, &p) && p.node == m->node;
    m->since = p.promoted_at_seq;
    return parted && queue.name[0] != '\0' && queue.place != FEED_LOST && queue.cursor <= p.promoted_at_seq
               ? 0
               : err_set(
                     err, ERR_NOTFOUND,
                     "not all that was recorded here since the promotion is kept for the old primary: what is newer "
                     "than its forgets can't be told");
}

/* On the writer's thread, while this one waits: what came until then. */
static int gather_last(struct store_forget *forget, struct err *err)
{
    struct late *late = forget->owner;
    struct merge *m = late->waits->m;
    if (can_tell_apart(m, err) < 0 || walk_on(m, err) < 0) {
        return err->code;
    }
    if (late->seq != 0 && forget->loading) {
        leave(m, late, "the user is being loaded");
    }
    return late->seq == 0 ? err_set(err, ERR_INVALID, "the user was loaded since") : spare(m, late, err);
}

/* Together, so that they share commits. */
static int forget_some(struct merge *m, struct late **list, size_t n, bool spares, struct err *err)
{
    struct wait_for w = {CHANGE_WAIT_INIT, PTHREAD_MUTEX_INITIALIZER, n, m};
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
                                           .gather = gather_last,
                                           .done = on_forgotten,
                                           .owner = late};
        late->waits = &w;
        s->ops->forget(s, &forgets[i]);
    }
    change_wait(&w.done);
    for (size_t i = 0; i < n; i++) {
        int code = forgets[i].err.code;
        list[i]->done = code == 0;
        if (code == ERR_SHARED || code == ERR_CORRUPT) {
            leave(m, list[i], forgets[i].err.text);
        } else if (code < 0 && list[i]->seq != 0) {
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

static void begin_round(struct merge *m, struct late **some, size_t n)
{
    m->at_hand = n;
    m->gathered_bytes = 0;
    m->walked = m->since;
    for (size_t i = 0; i < n; i++) {
        some[i]->at_hand = true;
    }
}

static void end_round(struct late **some, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        some[i]->at_hand = false;
        buf_free(&some[i]->gathered.bytes);
        buf_free(&some[i]->seqs);
        buf_free(&some[i]->spared.bytes);
        some[i]->gathered = some[i]->spared = (struct store_batch){0};
    }
}

/* *most: how many forgets may go at once. 1: there may be more to do; 0: all is done. */
static int take_round(struct merge *m, size_t *most, struct err *err)
{
    struct store *s = m->r->store;
    struct late *some[FORGETS_AT_ONCE];
    struct err why = {0};
    size_t n = choose(m, some, *most, true);
    int rc = 0;
    if (n == 0) {
        return 0;
    }
    sort_forgotten(m);
    begin_round(m, some, n);
    for (int i = 0; rc == 0 && i < CATCH_UPS && m->walked < s->feed->last(s); i++) {
        rc = walk_on(m, &why);
    }
    rc = rc == 0 ? forget_some(m, some, n, true, &why) : rc;
    end_round(some, n);
    bool fewer = rc == ERR_LARGE && n > 1;
    *most = fewer ? n / 2 : *most;
    return rc == 0 || fewer ? 1 : err_set(err, rc, "%s", why.text);
}

static int take_forgets(struct merge *m, bool force, struct err *err)
{
    struct late *some[FORGETS_AT_ONCE];
    size_t n, most = FORGETS_AT_ONCE;
    int rc = 0;
    if (m->n_late == 0) {
        return 0;
    }
    while (force && rc == 0 && (n = choose(m, some, most, false)) > 0) {
        rc = forget_some(m, some, n, false, err);
    }
    if (!force && (rc = can_tell_apart(m, err)) == 0) {
        rc = m->r->store->ops->reader_open(m->r->store, &m->reader, err);
        for (rc = rc < 0 ? rc : 1; rc > 0;) {
            rc = take_round(m, &most, err);
        }
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

/* Forgets without a feed are numbered by the sender, the same way each time, since their folder was replaced:
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
    if (parted) {
        snprintf(m->left_source, SOURCE_TEXT, "left:%016" PRIx64 ":%" PRIu64, ch->node, p.common_seq);
        m->r->store->positions->find(m->r->store, slice_str(m->left_source), &m->left_before);
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
    ch->left = (uint64_t)m.left_before + m.left;
    if (m.reader != NULL) {
        r->store->ops->reader_close(m.reader);
    }
    arena_free(&m.arena);
    buf_free(&m.batch.bytes);
    buf_free(&m.forgotten);
    free(m.late);
    return rc;
}
