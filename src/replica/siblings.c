#include "replica/siblings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "replica/change_impl.h"

enum { SKIP_MS = 1000 };

static void name_of(uint64_t node, char out[FEED_NAME_MAX])
{
    snprintf(out, FEED_NAME_MAX, FEED_REMOTE "%016" PRIx64, node);
}

static bool is_sibling(const struct follower *f, const char *name)
{
    char known[FEED_NAME_MAX];
    for (int i = 0; i < f->n_siblings; i++) {
        name_of(f->siblings[i].node, known);
        if (strcmp(name, known) == 0) {
            return true;
        }
    }
    return false;
}

static void on_call(struct store_call *call)
{
    change_tell(call->owner);
}

static void enlist(struct follower *f, const char *name)
{
    struct change_wait w = CHANGE_WAIT_INIT;
    struct feed_enlist e = {.call = {.done = on_call, .owner = &w}, .consumer = name};
    f->r->store->feed->enlist(f->r->store, &e);
    change_wait(&w);
    if (e.call.err.code < 0) { /* looked at again with the next hello */
        log_warn("nothing is kept for another replica", "replica=%s error=%s", name, log_quote_str(e.call.err.text));
    }
}

static void dismiss(struct follower *f, const char *name)
{
    struct change_wait w = CHANGE_WAIT_INIT;
    struct feed_reset r = {.call = {.done = on_call, .owner = &w}, .consumer = name};
    f->r->store->feed->reset(f->r->store, &r);
    change_wait(&w);
    if (r.call.err.code < 0) {
        log_warn("a replica that is gone is still kept in mind", "replica=%s error=%s", name,
                 log_quote_str(r.call.err.text));
    }
}

/* So that the feed's remote consumers are these. */
static void settle(struct follower *f)
{
    struct feed_state all[FEED_CONSUMERS_MAX], known;
    char name[FEED_NAME_MAX];
    int n = feed_look(f->r->store, all);
    for (int i = 0; i < n; i++) {
        bool remote = strncmp(all[i].name, FEED_REMOTE, strlen(FEED_REMOTE)) == 0;
        /* A lost one begins again: what it missed was missed here, at the primary it may have it. */
        if (remote && (!is_sibling(f, all[i].name) || all[i].place == FEED_LOST)) {
            dismiss(f, all[i].name);
        }
    }
    for (int i = 0; i < f->n_siblings; i++) {
        name_of(f->siblings[i].node, name);
        feed_state_of(f->r->store, name, &known);
        if (known.name[0] == '\0') {
            enlist(f, name);
        }
    }
}

void siblings_note(struct follower *f, const struct reply *hello)
{
    const struct reply *list = reply_field(hello, "replicas");
    struct store_node now;
    if (list == NULL || list->kind != REPLY_ARRAY) {
        return; /* a version before this: nothing is known of any */
    }
    role_look(f->r->dedup->role, &now);
    pthread_mutex_lock(&f->mutex); /* a promotion of this node reads the addresses */
    f->n_siblings = 0;
    for (size_t i = 0; i < list->n && f->n_siblings < FEEDER_REPLICAS_MAX; i++) {
        const struct reply *row = &list->items[i];
        struct sibling *s = &f->siblings[f->n_siblings];
        if (row->kind == REPLY_ARRAY && row->n == 2 && change_read_id(row->items[0].text, &s->node) &&
            s->node != now.node) {
            struct err none;
            reach_take(row->items[1].text, client_is_local(f->client), s->address, &none); /* or it stays unknown */
            f->n_siblings++;
        }
    }
    pthread_mutex_unlock(&f->mutex);
    changer_look(f->r->changer);
    settle(f);
}

int follower_siblings(struct follower *f, struct sibling out[FEEDER_REPLICAS_MAX])
{
    int n = 0;
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < f->n_siblings; i++) {
        if (f->siblings[i].address[0] != '\0') {
            out[n++] = f->siblings[i];
        }
    }
    pthread_mutex_unlock(&f->mutex);
    return n;
}

void siblings_skip(struct follower *f)
{
    char name[FEED_NAME_MAX];
    int64_t now = clock_mono_us();
    if (f->n_siblings == 0 || now - f->skipped_us < SKIP_MS * 1000) {
        return;
    }
    f->skipped_us = now;
    for (int i = 0; i < f->n_siblings; i++) {
        name_of(f->siblings[i].node, name);
        f->r->store->feed->pass(f->r->store, name);
    }
}
