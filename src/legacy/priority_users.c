#include "legacy/priority_users.h"

#include <string.h>

void priority_users_init(struct priority_users *f)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->mutex, NULL);
}

void priority_users_free(struct priority_users *f)
{
    pthread_mutex_destroy(&f->mutex);
}

bool priority_users_put(struct priority_users *f, int64_t key, struct slice user, int64_t now_us)
{
    bool fits = true;
    pthread_mutex_lock(&f->mutex);
    struct priority_recent *recent = &f->recent[(uint64_t)key % PRIORITY_USERS_RECENT];
    if (recent->key != key || recent->until_us <= now_us) {
        fits = f->n < PRIORITY_USERS_MAX;
        if (fits) {
            struct priority_user *u = &f->users[(f->at + f->n++) % PRIORITY_USERS_MAX];
            u->len = (uint8_t)user.len;
            memcpy(u->id, user.data, user.len);
            *recent = (struct priority_recent){key, now_us + PRIORITY_USERS_AGAIN_US};
        }
    }
    pthread_mutex_unlock(&f->mutex);
    return fits;
}

bool priority_users_take(struct priority_users *f, char id[255], struct slice *user)
{
    pthread_mutex_lock(&f->mutex);
    bool any = f->n > 0;
    if (any) {
        const struct priority_user *u = &f->users[f->at];
        memcpy(id, u->id, u->len);
        *user = slice_of(id, u->len);
        f->at = (f->at + 1) % PRIORITY_USERS_MAX;
        f->n--;
    }
    pthread_mutex_unlock(&f->mutex);
    return any;
}
