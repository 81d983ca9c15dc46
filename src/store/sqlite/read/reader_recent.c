/* What memory has of a user, without the disk. */
#include <string.h>

#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/state.h"

/* Behind the view: a slot says that its rows leave before they do. What was never used by any event is above the
 * newest: no reader can be up to that. */
static uint64_t find_left(struct sqlite_store *s)
{
    uint64_t left = atomic_load(&s->left), newest = feed_newest(s);
    return left < newest ? left : newest;
}

int reader_recent(struct store_reader *r, struct store_load *load, uint64_t *left)
{
    struct store_view *view = &load->view;
    memset(view, 0, sizeof *view);
    load->err = (struct err){0};
    staged_out_clear(&r->out);
    r->out.plays_max = STORE_LARGE / sizeof(uint64_t);
    int known = reader_staged(r, load->key, load->user, load->first_month, &load->err);
    if (known < 0) {
        return known;
    }
    *left = find_left(r->store);
    view->known = known > 0;
    view->plays = r->out.plays;
    view->n_plays = r->out.n_plays;
    delivered_unite(&r->out.deliveries, r->out.deliveries_max);
    view->deliveries = r->out.deliveries.list;
    view->n_deliveries = r->out.deliveries.n;
    return 0;
}
