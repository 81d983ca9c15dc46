#include "cli/replica/mend.h"

#include <stdio.h>

#include "base/calendar.h"
#include "base/log.h"
#include "cli/lib/store_wait.h"
#include "store/codec/user_snapshot.h"
#include "store/factory.h"
#include "store/sqlite/sqlite_store.h"

struct mending {
    struct mend *mend;
    struct store *store;
    struct sqlite_losses losses, mended;
    struct buf page; /* the users of one key, as the other has them */
    struct buf ends;
    size_t n_users;
    struct buf cut;
    struct arena arena;
};

/* A folder that can't be opened is repaired first. */
static int check_level_first(struct mend *m, struct err *err)
{
    struct store *store;
    struct err ignored;
    int rc = store_open(m->cfg, &store, &ignored);
    if (rc == ERR_LOCKED) {
        *err = ignored;
        return rc;
    }
    if (rc < 0) {
        return 0;
    }
    rc = mend_check_level(m, store, err);
    store->ops->close(store);
    m->checked = rc == 0;
    return rc;
}

int mend_open(struct mend *m, struct err *err)
{
    struct sqlite_losses losses; /* of an earlier repair: not looked at yet, but the seed and the lock are */
    int rc = sqlite_losses_list(m->cfg->data, &losses, err);
    if (rc < 0) {
        return rc;
    }
    const uint64_t seed = losses.seed;
    sqlite_losses_free(&losses);
    rc = other_node_open(m->cfg, m->address, m->user, &(struct other_told){"check", m->progress}, &m->from, err);
    rc = rc < 0 ? rc : other_node_hello(&m->from, 0, 0, err);
    if (rc == 0 && m->from.seed != seed) {
        rc = err_set(err, ERR_SEED, "%s and %s have different seeds: neither is a copy of the other", m->cfg->data,
                     m->address);
    }
    return rc < 0 ? rc : check_level_first(m, err);
}

void mend_close(struct mend *m)
{
    other_node_close(&m->from);
}

/* --- the other's users --- */

static int malformed(const struct mending *g, struct err *err)
{
    return err_set(err, ERR_VERSION, "%s: the answer to REPLICA USERS can't be read: is it another version?",
                   g->mend->address);
}

/* All users there whose key is this one, hardly ever more than one. */
static int ask_key(struct mending *g, int64_t key, struct err *err)
{
    char from[NUMBER_TEXT];
    const struct slice words[] = {slice_str("REPLICA"), slice_str("USERS"), number_text(key, from), slice_str("1")};
    const struct reply *reply;
    int rc = other_node_call(&g->mend->from, words, 4, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n == 0) {
        return malformed(g, err);
    }
    buf_clear(&g->page);
    buf_clear(&g->ends);
    g->n_users = reply->n - 1;
    for (size_t i = 1; i < reply->n; i++) {
        if (reply->items[i].kind != REPLY_TEXT) {
            return malformed(g, err);
        }
        buf_add(&g->page, reply->items[i].text.data, reply->items[i].text.len);
        buf_add(&g->ends, &g->page.len, sizeof g->page.len);
    }
    return g->page.failed || g->ends.failed ? err_set(err, ERR_NOMEM, "out of memory for a user") : 0;
}

static bool is_lost(const struct sqlite_loss *losses, size_t n, int month)
{
    for (size_t i = 0; i < n; i++) {
        if (losses[i].month == month) {
            return true;
        }
    }
    return false;
}

/* Leaves of a user what is lost here, or all of it when the name is. What can't be read there either is no mark here:
 * its loss is accepted. */
static void cut(struct user_snapshot *p, const struct sqlite_loss *losses, size_t n, struct snapshot_month *months)
{
    p->n_damaged = 0;
    p->migration_state = false;
    if (is_lost(losses, n, SQLITE_LOSS_NAME)) {
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < p->n_months; i++) {
        if (is_lost(losses, n, p->months[i].month)) {
            months[kept++] = p->months[i];
        }
    }
    p->months = months;
    p->n_months = kept;
    p->n_plays = 0; /* history's alone come over the wire */
    if (!is_lost(losses, n, 0)) {
        p->deliveries = slice_of(NULL, 0);
    }
}

/* --- into the folder --- */

static int import(struct mending *g, const struct user_snapshot *p, struct err *err)
{
    uint8_t verdict;
    buf_clear(&g->cut);
    int rc = user_snapshot_encode(p, &g->cut);
    const struct slice bytes = buf_slice(&g->cut);
    if (rc < 0) {
        return err_set(err, rc, "out of memory for a user");
    }
    if ((rc = store_wait_import(g->store, &bytes, 1, &verdict, err)) < 0) {
        return rc;
    }
    return verdict == IMPORT_CROWDED
               ? err_set(err, ERR_CORRUPT, "user %s: a month would have too many parts", log_quote(p->user))
               : 0;
}

static int tell(struct mending *g, const struct user_snapshot *p, struct sqlite_loss loss, struct err *err)
{
    char text[512], name[MONTH_TEXT];
    if (loss.month == SQLITE_LOSS_NAME) {
        snprintf(text, sizeof text, "user %s: is known again, from %s", log_quote(p->user), g->mend->address);
    } else if (loss.month == 0) {
        snprintf(text, sizeof text, "user %s: deliveries are repaired from %s", log_quote(p->user), g->mend->address);
    } else {
        snprintf(text, sizeof text, "user %s: %s is repaired from %s", log_quote(p->user), month_name(loss.month, name),
                 g->mend->address);
    }
    g->mend->did(g->mend->arg, text);
    return sqlite_losses_add(&g->mended, loss, err);
}

/* Whether it came with the snapshot. */
static bool has(const struct user_snapshot *p, int month)
{
    for (size_t i = 0; i < p->n_months; i++) {
        if (p->months[i].month == month) {
            return true;
        }
    }
    return month == SQLITE_LOSS_NAME || (month == 0 && p->deliveries.len > 0);
}

/* The losses of one key. */
static int mend_key(struct mending *g, const struct sqlite_loss *losses, size_t n, struct err *err)
{
    int rc = ask_key(g, losses[0].key, err);
    const size_t *ends = (const size_t *)(const void *)g->ends.data;
    for (size_t i = 0; i < g->n_users && rc == 0; i++) {
        size_t from = i == 0 ? 0 : ends[i - 1];
        struct user_snapshot p;
        arena_reset(&g->arena);
        if ((rc = user_snapshot_decode(g->page.data + from, ends[i] - from, &g->arena, &p, err)) < 0) {
            return err_prefix(err, "%s", g->mend->address);
        }
        struct snapshot_month *months = arena_alloc(&g->arena, p.n_months * sizeof *months + 1);
        if (months == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for a user");
        }
        if (p.key != losses[0].key) {
            return 0; /* the next one there: it has no user with that key */
        }
        cut(&p, losses, n, months);
        if (p.n_months > 0 || p.deliveries.len > 0 || is_lost(losses, n, SQLITE_LOSS_NAME)) {
            rc = import(g, &p, err);
        }
        for (size_t k = 0; k < n && rc == 0; k++) {
            rc = has(&p, losses[k].month) ? tell(g, &p, losses[k], err) : 0;
        }
    }
    return rc;
}

static int mend_keys(struct mending *g, struct err *err)
{
    int rc = 0;
    for (size_t i = 0, n; i < g->losses.n && rc == 0; i += n) {
        const struct sqlite_loss *first = &g->losses.list[i];
        for (n = 1; i + n < g->losses.n && first[n].key == first->key; n++) {
        }
        rc = mend_key(g, first, n, err);
        progress_show(g->mend->progress, i + n, g->losses.n, "%zu repaired", g->mended.n);
    }
    return rc;
}

static int open_and_mend(struct mending *g, struct err *err)
{
    const struct slice flush[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    int rc = other_node_call(&g->mend->from, flush, 2, &reply, err);
    if (rc < 0 || (rc = store_open(g->mend->cfg, &g->store, err)) < 0) {
        return rc;
    }
    rc = g->mend->checked ? 0 : mend_check_level(g->mend, g->store, err);
    if (rc == 0 && g->mend->doubt[0] != '\0') {
        g->mend->did(g->mend->arg, g->mend->doubt);
    }
    rc = rc < 0 ? rc : mend_keys(g, err);
    g->store->ops->close(g->store);
    /* What came stays, also when the rest did not come. */
    struct err ignored;
    int marked = sqlite_losses_mended(g->mend->cfg->data, &g->mended, rc < 0 ? &ignored : err);
    return rc < 0 ? rc : marked;
}

int mend_losses(struct mend *m, struct err *err)
{
    struct mending g = {.mend = m};
    int rc = sqlite_losses_list(m->cfg->data, &g.losses, err);
    if (rc == 0 && g.losses.n > 0) {
        rc = open_and_mend(&g, err);
    }
    rc = rc < 0 ? rc : (int)g.mended.n;
    sqlite_losses_free(&g.losses);
    sqlite_losses_free(&g.mended);
    buf_free(&g.page);
    buf_free(&g.ends);
    buf_free(&g.cut);
    arena_free(&g.arena);
    return rc;
}
