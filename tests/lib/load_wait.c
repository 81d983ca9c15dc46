#include "tests/lib/load_wait.h"

#include <pthread.h>

struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static void end_wait(struct store_load *load)
{
    struct waiting *w = load->owner;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

int store_load_view(struct store *s, struct store_reader *reader, struct store_load *load)
{
    return load->err.code == 0 && s->ops->view != NULL ? s->ops->view(reader, load) : load->err.code;
}

int store_load_wait(struct store *s, struct store_reader *reader, int64_t key, struct slice user, int first_month,
                    struct store_view *view, struct err *err)
{
    struct waiting w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    struct store_load load = {.key = key, .user = user, .first_month = first_month, .done = end_wait, .owner = &w};
    if (s->ops->load(reader, &load) == STORE_LATER) {
        pthread_mutex_lock(&w.mutex);
        while (!w.done) {
            pthread_cond_wait(&w.wake, &w.mutex);
        }
        pthread_mutex_unlock(&w.mutex);
    }
    store_load_view(s, reader, &load);
    *view = load.view;
    return load.err.code < 0 ? err_set(err, load.err.code, "%s", load.err.text) : 0;
}

int asker_filter(struct asker *a, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                 size_t *n_unseen, struct err *err)
{
    struct query q = {.kind = QUERY_FILTER, .user = user, .hashes = hashes, .n = n, .unseen = unseen};
    int rc = asker_ask(a, &q, err);
    *n_unseen = rc == 0 ? q.n_unseen : *n_unseen;
    return rc;
}
