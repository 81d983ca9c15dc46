/* Questions: the user's object is read as a whole, in one go if it has at most CLUSTER_PAGE keys, which all but giants
 * have. The directory's head is compared within that read, so that a user who is too large is refused before any of
 * their filters is sent.
 *
 * What is under way belongs to a question, not to its reader: a reader that is closed leaves it to the answer that is
 * still to come, which frees it. */
#include <stdlib.h>
#include <string.h>

#include "store/rados/gathered.h"
#include "store/rados/rados.h"

enum { ARENA_BLOCK = 16 * 1024 };

struct question {
    struct fetch fetch; /* first */
    struct rados_store *s;
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool under_way;
    bool left;               /* its reader was closed meanwhile */
    unsigned answering;      /* calls of done() that have not returned */
    struct store_load *load; /* NULL: scan() waits */
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

static int on_take(struct fetch *f, const struct layout_key *key, struct slice value)
{
    struct question *q = question_of(f);
    return gathered_take(&q->gathered, slice_of(q->user, q->len), key, value, &f->err);
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
    fetch_destroy(&q->fetch);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->answered);
    free(q);
}

static struct merges_seen what_was_seen(const struct question *q)
{
    const struct gathered *g = &q->gathered;
    return (struct merges_seen){g->n_plays, g->n_deliveries, g->oldest_ms, q->fetch.generation};
}

static void answer(struct question *q)
{
    struct store_load *l = q->load;
    struct slice user = slice_of(q->user, q->len);
    const struct gathered_question view = {.s = q->s, .user = user, .first_month = l->first_month};
    const struct merges_seen seen = what_was_seen(q); /* before the view makes it fewer */
    l->err = q->fetch.err;
    if (l->err.code == 0) {
        gathered_view(&q->gathered, &view, &l->view, &l->err);
    }
    if (l->err.code == 0) {
        merges_saw(q->s, q->key, user, &seen);
    }
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
    q->arena.limit = RADOS_USER_BYTES;
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

int rados_load(struct store_reader *reader, struct store_load *load)
{
    static const struct fetch_range whole[] = {{"", CLUSTER_PAGE}};
    struct question *q = reader->question;
    load->err = (struct err){0};
    load->view = (struct store_view){0};
    begin(q, load->key, load->user, load);
    q->limit = STORE_LARGE;
    q->fetch.ranges = whole;
    q->fetch.n_ranges = 1;
    q->fetch.below = &q->below;
    fetch_start(&q->fetch);
    return STORE_LATER;
}

int rados_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
               const struct store_scan *scan, struct store_view *view, struct err *err)
{
    struct question *q = reader->question;
    const struct gathered_question question = {.s = q->s, .user = user, .first_month = first_month, .scan = scan};
    begin(q, key, user, NULL);
    q->limit = 0;
    q->fetch.ranges = gathered_ranges;
    q->fetch.n_ranges = GATHERED_RANGES;
    q->fetch.below = NULL;
    fetch_start(&q->fetch);
    pthread_mutex_lock(&q->mutex);
    while (q->under_way) {
        pthread_cond_wait(&q->answered, &q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    *view = (struct store_view){0};
    if (q->fetch.err.code < 0) {
        return err_set(err, q->fetch.err.code, "%s", q->fetch.err.text);
    }
    const struct merges_seen seen = what_was_seen(q);
    merges_saw(q->s, key, user, &seen);
    return gathered_view(&q->gathered, &question, view, err);
}
