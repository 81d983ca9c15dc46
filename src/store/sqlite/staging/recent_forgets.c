#include "store/sqlite/staging/recent_forgets.h"

void recent_forgets_init(struct recent_forgets *f)
{
    pthread_mutex_init(&f->mutex, NULL);
    f->n = 0;
    f->unknown = 0;
}

void recent_forgets_free(struct recent_forgets *f)
{
    pthread_mutex_destroy(&f->mutex);
}

void recent_forgets_add(struct recent_forgets *f, int64_t key, uint64_t seq)
{
    pthread_mutex_lock(&f->mutex);
    struct recent_forget *place = &f->ring[f->n++ % RECENT_FORGETS_MAX];
    if (f->n > RECENT_FORGETS_MAX) {
        f->unknown = place->seq;
    }
    *place = (struct recent_forget){key, seq};
    pthread_mutex_unlock(&f->mutex);
}

bool recent_forgets_cover(struct recent_forgets *f, int64_t key, uint64_t to)
{
    pthread_mutex_lock(&f->mutex);
    bool covered = to >= f->unknown;
    uint64_t oldest = f->n > RECENT_FORGETS_MAX ? f->n - RECENT_FORGETS_MAX : 0;
    for (uint64_t i = f->n; i > oldest && covered && f->ring[(i - 1) % RECENT_FORGETS_MAX].seq > to; i--) {
        covered = f->ring[(i - 1) % RECENT_FORGETS_MAX].key != key;
    }
    pthread_mutex_unlock(&f->mutex);
    return covered;
}
