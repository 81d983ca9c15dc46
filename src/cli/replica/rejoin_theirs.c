/* What was forgotten on the new primary, page by page, in the order of users' keys. */
#include "cli/replica/rejoin_impl.h"

static int malformed(struct rejoining *r, struct err *err)
{
    return err_set(err, ERR_VERSION, "%s: the answer to REPLICA TOMBSTONES can't be read: is it another version?",
                   r->address);
}

static int next_page(struct rejoining *r, struct err *err)
{
    struct rejoin_theirs *t = &r->theirs;
    const struct tombstone last = t->n > 0 ? t->page[t->n - 1] : (struct tombstone){0};
    char key[NUMBER_TEXT], item[NUMBER_TEXT], max[NUMBER_TEXT];
    const struct slice words[] = {
        slice_str("REPLICA"), slice_str("TOMBSTONES"), number_text(t->begun ? last.key : INT64_MIN, key),
        number_text(t->begun ? (int64_t)last.item : INT64_MIN, item), number_text(THEIRS_MAX, max)};
    const struct reply *reply;
    int rc = other_node_call(&r->to, words, sizeof words / sizeof *words, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n > THEIRS_MAX) {
        return malformed(r, err);
    }
    for (size_t i = 0; i < reply->n; i++) {
        const struct reply *row = &reply->items[i];
        struct tombstone *to = &t->page[i];
        int64_t hash;
        if (row->kind != REPLY_ARRAY || row->n != 3 || !reply_integer(&row->items[0], &to->key) ||
            !reply_integer(&row->items[1], &hash) || !reply_integer(&row->items[2], &to->at_ms)) {
            return malformed(r, err);
        }
        to->item = (uint64_t)hash;
        to->id = 0;
        if ((i > 0 || t->begun) && !tombstone_is_behind(to, i > 0 ? &to[-1] : &last)) {
            return malformed(r, err);
        }
    }
    t->begun = true;
    t->n = reply->n;
    t->at = 0;
    t->ended = reply->n == 0;
    return 0;
}

void rejoin_theirs_begin(struct rejoining *r)
{
    struct rejoin_theirs *t = &r->theirs;
    t->begun = t->ended = t->has_key = false;
    t->n = t->at = 0;
}

int rejoin_theirs_of(struct rejoining *r, int64_t key, struct err *err)
{
    struct rejoin_theirs *t = &r->theirs;
    if (t->has_key && t->key == key) {
        return 0;
    }
    t->key = key;
    t->has_key = true;
    buf_clear(&t->of_key);
    while (!t->ended) {
        int rc = t->at == t->n ? next_page(r, err) : 0;
        if (rc < 0) {
            return rc;
        }
        for (; t->at < t->n && t->page[t->at].key <= key; t->at++) {
            if (t->page[t->at].key == key && buf_add(&t->of_key, &t->page[t->at], sizeof *t->page) < 0) {
                return err_set(err, ERR_NOMEM, "out of memory for what was forgotten at %s", r->address);
            }
        }
        if (t->at < t->n) {
            break;
        }
    }
    return 0;
}
