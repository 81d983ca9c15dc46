#include "net/logins.h"

#include <inttypes.h>
#include <stddef.h>

void logins_init(struct logins *l, uint32_t free)
{
    l->free = free;
    pthread_mutex_init(&l->lock, NULL);
}

static struct login_row *set_of(struct logins *l, uint64_t peer)
{
    return l->rows[peer_bucket(peer, LOGINS_SETS)];
}

/* NULL: it has not failed lately. */
static struct login_row *find(struct logins *l, uint64_t peer, int64_t now)
{
    struct login_row *set = set_of(l, peer);
    for (int i = 0; i < LOGINS_WAYS; i++) {
        if (set[i].peer == peer) {
            if (now - set[i].last_ms < LOGINS_FORGET_MS) {
                return &set[i];
            }
            set[i] = (struct login_row){0};
        }
    }
    return NULL;
}

/* The row that is missed least. */
static struct login_row *take_row(struct logins *l, uint64_t peer, int64_t now)
{
    struct login_row *set = set_of(l, peer), *least = &set[0];
    for (int i = 0; i < LOGINS_WAYS; i++) {
        if (now - set[i].last_ms >= LOGINS_FORGET_MS) {
            set[i] = (struct login_row){0};
        }
        if (set[i].failed < least->failed || (set[i].failed == least->failed && set[i].last_ms < least->last_ms)) {
            least = &set[i];
        }
    }
    *least = (struct login_row){.peer = peer};
    return least;
}

int64_t logins_turn(struct logins *l, uint64_t peer, int64_t now)
{
    if (peer == PEER_UNIX) {
        return 0;
    }
    int64_t wait = 0;
    pthread_mutex_lock(&l->lock);
    struct login_row *row = find(l, peer, now);
    if (row != NULL && row->failed >= l->free) {
        int64_t turn = row->turn_ms > now ? row->turn_ms : now;
        wait = turn - now;
        if (wait > LOGINS_WAIT_MS) {
            wait = -1;
        } else {
            row->turn_ms = turn + LOGINS_TURN_MS;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return wait;
}

bool logins_owes(struct logins *l, uint64_t peer, int64_t now)
{
    pthread_mutex_lock(&l->lock);
    const struct login_row *row = peer != PEER_UNIX ? find(l, peer, now) : NULL;
    bool owes = row != NULL && row->failed >= l->free;
    pthread_mutex_unlock(&l->lock);
    return owes;
}

void logins_failed(struct logins *l, uint64_t peer, const char *edge, int64_t now)
{
    uint32_t failed = 1;
    pthread_mutex_lock(&l->lock);
    if (peer != PEER_UNIX) {
        struct login_row *row = find(l, peer, now);
        row = row != NULL ? row : take_row(l, peer, now);
        row->last_ms = now;
        failed = row->failed += row->failed < UINT32_MAX;
    }
    bool told = edge != NULL && log_again(&l->limit);
    uint64_t unlogged = l->unlogged;
    l->unlogged = told ? 0 : unlogged + 1;
    pthread_mutex_unlock(&l->lock);
    if (told) {
        char address[PEER_TEXT];
        peer_text(peer, address);
        log_warn("failed login", "address=%s edge=%s failed=%" PRIu32 " unlogged=%" PRIu64, address, edge, failed,
                 unlogged);
    }
}

void logins_good(struct logins *l, uint64_t peer)
{
    if (peer == PEER_UNIX) {
        return;
    }
    struct login_row *set = set_of(l, peer);
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < LOGINS_WAYS; i++) {
        if (set[i].peer == peer) {
            set[i] = (struct login_row){0};
        }
    }
    pthread_mutex_unlock(&l->lock);
}
