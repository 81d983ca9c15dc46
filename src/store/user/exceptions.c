#include "store/user/exceptions.h"

#include "base/hash.h"

int exceptions_begin(struct exceptions *x, const uint64_t *here, size_t n_here, const uint64_t *there, size_t n_there,
                     struct arena *arena)
{
    *x = (struct exceptions){.here = here, .there = there, .n_here = n_here, .n_there = n_there};
    x->ends = arena_alloc(arena, n_here + n_there + 1);
    if (x->ends == NULL) {
        return ERR_NOMEM;
    }
    x->comes = x->ends + n_here;
    for (size_t i = 0; i < n_here; i++) {
        x->ends[i] = false;
    }
    for (size_t i = 0; i < n_there; i++) {
        x->comes[i] = !hash_is_among(here, n_here, there[i]);
    }
    return 0;
}

void exceptions_played(struct exceptions *x, const struct store_play *plays, size_t n, int first_kept, bool there)
{
    for (size_t i = 0; i < n && x->n_here + x->n_there > 0; i++) {
        if (plays[i].month < first_kept) {
            continue;
        }
        size_t at = hash_place(x->there, x->n_there, plays[i].hash);
        if (at < x->n_there) {
            x->comes[at] = false;
        }
        if (there && (at = hash_place(x->here, x->n_here, plays[i].hash)) < x->n_here) {
            x->ends[at] = true;
        }
    }
}

void exceptions_shown_there(struct exceptions *x, const struct filter *filter)
{
    for (size_t i = 0; i < x->n_here; i++) {
        x->ends[i] = x->ends[i] || (filter_has(filter, x->here[i]) && !hash_is_among(x->there, x->n_there, x->here[i]));
    }
}

void exceptions_shown_here(struct exceptions *x, const struct filter *filter)
{
    for (size_t i = 0; i < x->n_there; i++) {
        x->comes[i] = x->comes[i] && filter != NULL && !filter_has(filter, x->there[i]);
    }
}
