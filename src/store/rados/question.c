/* Questions: the user's object is read as a whole, in one go if it has at most CLUSTER_PAGE keys, which all but giants
 * have. The directory's head is compared within that read, so that a user who is too large is refused before any of
 * their filters is sent. Of a giant the directory is read first: it says what memory to claim.
 *
 * A question holds its claim from load() to rest(), or to the reader's next load. One that waits for room is under way
 * like one that waits for the cluster.
 *
 * What is under way belongs to a question, not to its reader: a reader that is closed leaves it to the answer that is
 * still to come, which frees it. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/rados/gathered.h"
#include "store/rados/rados.h"

enum { ARENA_BLOCK = 16 * 1024, ARENA_KEPT = 64 * 1024 /* at rest */ };

struct question {
    struct fetch fetch; /* first */
    struct rados_store *s;
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool under_way;
    bool left;               /* its reader was closed meanwhile */
    unsigned answering;      /* calls of done() that have not returned */
    struct store_load *load; /* NULL: scan() waits */
    struct quota_claim claim;
    bool granted; /* to scan() */
    int64_t key;
    struct arena arena;
    struct gathered gathered;
    size_t limit;
    struct cluster_pair below; /* of a user who is not too large for load() */
    char below_value[LAYOUT_LIMIT];
    uint8_t len;
    char user[255];
    char object[LAYOUT_NAME];
};

struct store_reader {
    struct question *question;
};

static struct question *question_of(struct fetch *f)
{
    return (struct question *)f;
}

/* --- what is under way --- */

static int too_large(struct err *err)
{
    return err_set(err, ERR_LARGE, "the user has more than %d KiB of filters and plays", STORE_LARGE / 1024);
}

static int on_take(struct fetch *f, const struct layout_key *key, struct slice value)
{
    struct question *q = question_of(f);
    int result = gathered_take(&q->gathered, key, value, &f->err);
    return result == 0 && q->load != NULL && q->claim.bytes > RADOS_QUESTION_MAX ? too_large(&f->err) : result;
}

static void on_again(struct fetch *f)
{
    struct question *q = question_of(f);
    arena_reset(&q->arena);
    gathered_begin(&q->gathered, &q->arena, q->limit);
}

static void question_free(struct question *q)
{
    arena_free(&q->arena);
    quota_give(&q->claim);
    fetch_destroy(&q->fetch);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->answered);
    free(q);
}

/* What stood in the way of a question that had no room to grow in is asked aside, where it may wait for that. */
static void note_refusal(struct question *q, struct err *err)
{
    if (err->code == ERR_NOMEM && q->arena.refused) {
        too_large(err);
    }
}

static struct merges_seen what_was_seen(const struct question *q)
{
    const struct gathered *g = &q->gathered;
    return (struct merges_seen){.plays = g->n_plays,
                                .deliveries = g->n_deliveries,
                                .oldest_ms = g->oldest_ms,
                                .generation = q->fetch.generation};
}

static void answer(struct question *q)
{
    struct store_load *l = q->load;
    l->err = q->fetch.err;
    note_refusal(q, &l->err);
    l->done(l);
}

static void on_done(struct fetch *f)
{
    struct question *q = question_of(f);
    pthread_mutex_lock(&q->mutex);
    q->under_way = false;
    bool left = q->left;
    q->answering += q->load != NULL;
    if (q->load == NULL) {
        pthread_cond_broadcast(&q->answered);
    }
    bool waited_for = q->load == NULL;
    pthread_mutex_unlock(&q->mutex);
    if (left) {
        question_free(q);
    } else if (!waited_for) {
        answer(q);
        pthread_mutex_lock(&q->mutex);
        q->answering--;
        pthread_cond_broadcast(&q->answered);
        pthread_mutex_unlock(&q->mutex);
    }
}

static void begin(struct question *q, int64_t key, struct slice user, struct store_load *load)
{
    q->key = key;
    q->len = (uint8_t)user.len;
    memcpy(q->user, user.data, user.len);
    layout_user_name(user, q->object);
    q->load = load;
    q->fetch.object = q->object;
    q->fetch.user = slice_of(q->user, q->len);
    q->under_way = true;
}

/* --- the seam --- */

int rados_reader_open(struct store *base, struct store_reader **reader, struct err *err)
{
    struct store_reader *r = calloc(1, sizeof *r);
    struct question *q = calloc(1, sizeof *q);
    if (r == NULL || q == NULL) {
        free(r);
        free(q);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    q->s = rados_of(base);
    q->arena.block_size = ARENA_BLOCK;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->answered, NULL);
    q->fetch = (struct fetch){.s = q->s, .take = on_take, .again = on_again, .done = on_done};
    fetch_init(&q->fetch);
    layout_directory_limit(STORE_LARGE, q->below_value);
    q->below = (struct cluster_pair){{"w", 1}, {q->below_value, LAYOUT_LIMIT}};
    r->question = q;
    *reader = r;
    return 0;
}

void rados_reader_close(struct store_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    struct question *q = reader->question;
    free(reader);
    pthread_mutex_lock(&q->mutex);
    if (q->under_way) {
        struct store_load *l = q->load;
        q->left = true;
        fetch_cancel(&q->fetch);
        pthread_mutex_unlock(&q->mutex);
        err_set(&l->err, ERR_CLOSED, "the reader was closed");
        l->done(l);
        return;
    }
    while (q->answering > 0) {
        pthread_cond_wait(&q->answered, &q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    question_free(q);
}

struct rados_store *rados_reader_store(struct store_reader *reader)
{
    return reader->question->s;
}

static void give_back(struct question *q)
{
    if (q->arena.bytes > ARENA_KEPT) {
        arena_free(&q->arena);
    }
    quota_give(&q->claim);
}

void rados_rest(struct store_reader *reader)
{
    give_back(reader->question);
}

static void on_load_granted(struct quota_claim *claim)
{
    struct question *q = (struct question *)((char *)claim - offsetof(struct question, claim));
    struct rados_store *s = q->s; /* the question may be gone when this returns */
    quota_arena(&q->claim, &q->arena, RADOS_PAGE_BYTES);
    fetch_start(&q->fetch);
    rados_store_ended(s);
}

int rados_load(struct store_reader *reader, struct store_load *load)
{
    static const struct fetch_range whole[] = {{"", CLUSTER_PAGE}};
    struct question *q = reader->question;
    give_back(q);
    load->err = (struct err){0};
    load->view = (struct store_view){0};
    begin(q, load->key, load->user, load);
    q->limit = STORE_LARGE;
    q->fetch.keys = NULL;
    q->fetch.n_keys = 0;
    q->fetch.ranges = whole;
    q->fetch.n_ranges = 1;
    q->fetch.below = &q->below;
    rados_store_begun(q->s);
    if (quota_take(&q->s->small, &q->claim, RADOS_QUESTION_BYTES, on_load_granted)) {
        on_load_granted(&q->claim);
    }
    return STORE_LATER;
}

/* Also begins what a question has shown to be due. */
static int make_view(struct question *q, const struct gathered_question *question, struct store_view *view,
                     struct err *err)
{
    struct merges_seen seen = what_was_seen(q); /* before the view makes it fewer */
    q->gathered.strange = slice_of(q->fetch.strange, q->fetch.strange_len);
    int result = gathered_view(&q->gathered, question, view, err);
    if (result == 0) {
        seen.gone = view->known ? seen.deliveries - view->n_deliveries : 0;
        merges_saw(q->s, q->key, question->user, &seen);
    }
    return result;
}

int rados_view(struct store_reader *reader, struct store_load *load)
{
    struct question *q = reader->question;
    const struct gathered_question question = {
        .s = q->s, .user = slice_of(q->user, q->len), .first_month = load->first_month};
    make_view(q, &question, &load->view, &load->err);
    note_refusal(q, &load->err);
    return load->err.code;
}

/* --- giants --- */

static void on_scan_granted(struct quota_claim *claim)
{
    struct question *q = (struct question *)((char *)claim - offsetof(struct question, claim));
    pthread_mutex_lock(&q->mutex);
    q->granted = true;
    pthread_cond_broadcast(&q->answered);
    pthread_mutex_unlock(&q->mutex);
}

static void wait_for_room(struct question *q, size_t bytes)
{
    give_back(q);
    q->granted = false;
    if (!quota_take(&q->s->large, &q->claim, bytes, on_scan_granted)) {
        pthread_mutex_lock(&q->mutex);
        while (!q->granted) {
            pthread_cond_wait(&q->answered, &q->mutex);
        }
        pthread_mutex_unlock(&q->mutex);
    }
    arena_free(&q->arena);
    quota_arena(&q->claim, &q->arena, RADOS_PAGE_BYTES);
}

static int read_and_wait(struct question *q, const struct fetch_range *ranges, size_t n, struct err *err)
{
    static const struct slice directory[] = {{"w", 1}};
    q->fetch.keys = directory;
    q->fetch.n_keys = 1;
    q->fetch.ranges = ranges;
    q->fetch.n_ranges = n;
    q->fetch.below = NULL;
    q->under_way = true;
    fetch_start(&q->fetch);
    pthread_mutex_lock(&q->mutex);
    while (q->under_way) {
        pthread_cond_wait(&q->answered, &q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    return q->fetch.err.code < 0 ? err_set(err, q->fetch.err.code, "%s", q->fetch.err.text) : 0;
}

static int scan_once(struct question *q, const struct gathered_question *question, struct store_view *view,
                     struct err *err)
{
    int result = read_and_wait(q, NULL, 0, err);
    if (result == 0 && !quota_expect(&q->claim, &q->arena, layout_directory_sum(q->gathered.directory))) {
        result = err_set(err, ERR_NOMEM, "out of memory while reading a user");
    }
    result = result < 0 ? result : read_and_wait(q, gathered_ranges, GATHERED_RANGES, err);
    return result < 0 ? result : make_view(q, question, view, err);
}

/* What the view takes from the arena it takes before the first position is handed over: so nothing is handed over
 * twice. */
int rados_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
               const struct store_scan *scan, struct store_view *view, struct err *err)
{
    struct question *q = reader->question;
    const struct gathered_question question = {.s = q->s, .user = user, .first_month = first_month, .scan = scan};
    size_t wanted = RADOS_LARGE_BYTES;
    int result;
    begin(q, key, user, NULL);
    q->limit = 0;
    bool again;
    do {
        *view = (struct store_view){0};
        wait_for_room(q, wanted);
        result = scan_once(q, &question, view, err);
        again = result == ERR_NOMEM && quota_may_help(&q->claim, &q->arena);
        wanted = q->claim.wanted;
    } while (again);
    return result == ERR_NOMEM && q->arena.refused
               ? err_set(err, result, "user %s takes more memory than rados_memory leaves for one", log_quote(user))
               : result;
}
