#include "legacy/first.h"

#include <string.h>

void first_init(struct first *f)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->mutex, NULL);
}

void first_free(struct first *f)
{
    pthread_mutex_destroy(&f->mutex);
}

bool first_put(struct first *f, int64_t key, struct slice user, int64_t now_us)
{
    bool fits = true;
    pthread_mutex_lock(&f->mutex);
    struct first_recent *recent = &f->recent[(uint64_t)key % FIRST_RECENT];
    if (recent->key != key || recent->until_us <= now_us) {
        fits = f->n < FIRST_MAX;
        if (fits) {
            struct first_user *u = &f->users[(f->at + f->n++) % FIRST_MAX];
            u->len = (uint8_t)user.len;
            memcpy(u->id, user.data, user.len);
            *recent = (struct first_recent){key, now_us + FIRST_AGAIN_US};
        }
    }
    pthread_mutex_unlock(&f->mutex);
    return fits;
}

bool first_take(struct first *f, char id[255], struct slice *user)
{
    pthread_mutex_lock(&f->mutex);
    bool any = f->n > 0;
    if (any) {
        const struct first_user *u = &f->users[f->at];
        memcpy(id, u->id, u->len);
        *user = slice_of(id, u->len);
        f->at = (f->at + 1) % FIRST_MAX;
        f->n--;
    }
    pthread_mutex_unlock(&f->mutex);
    return any;
}
