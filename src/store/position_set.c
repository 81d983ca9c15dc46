/* Positions in memory: an array in the order of the sources' names. A place is made before the commit, and is found
 * only after it. */
#include "store/positions.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct place {
    char *name;
    size_t len;
    int64_t next;
    bool durable; /* else a place that a commit may fill */
};

struct position_set {
    pthread_mutex_t mutex; /* of all below: the writer takes it to change, others to look */
    struct place *places;
    size_t n, room;
};

struct position_set *position_set_new(void)
{
    struct position_set *set = calloc(1, sizeof *set);
    if (set != NULL) {
        pthread_mutex_init(&set->mutex, NULL);
    }
    return set;
}

void position_set_free(struct position_set *set)
{
    if (set == NULL) {
        return;
    }
    for (size_t i = 0; i < set->n; i++) {
        free(set->places[i].name);
    }
    free(set->places);
    pthread_mutex_destroy(&set->mutex);
    free(set);
}

/* Where the source stands, or would; *there: it does. */
static size_t place_of(const struct position_set *set, struct slice source, bool *there)
{
    size_t low = 0, high = set->n;
    *there = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct place *p = &set->places[middle];
        int order = memcmp(p->name, source.data, p->len < source.len ? p->len : source.len);
        if (order == 0 && p->len == source.len) {
            *there = true;
            return middle;
        }
        if (order < 0 || (order == 0 && p->len < source.len)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int insert(struct position_set *set, size_t at, struct slice source)
{
    if (set->n == set->room) {
        size_t room = set->room == 0 ? 16 : set->room * 2;
        struct place *now = realloc(set->places, room * sizeof *now);
        if (now == NULL) {
            return ERR_NOMEM;
        }
        set->places = now;
        set->room = room;
    }
    char *name = malloc(source.len);
    if (name == NULL) {
        return ERR_NOMEM;
    }
    memcpy(name, source.data, source.len);
    memmove(set->places + at + 1, set->places + at, (set->n - at) * sizeof *set->places);
    set->places[at] = (struct place){.name = name, .len = source.len};
    set->n++;
    return 0;
}

static int make_place(struct position_set *set, struct slice source, struct err *err)
{
    if (source.len < 1 || source.len > STORE_SOURCE_MAX) {
        return err_set(err, ERR_INVALID, "a source's name has %zu B, expected 1 to %d", source.len, STORE_SOURCE_MAX);
    }
    bool there;
    pthread_mutex_lock(&set->mutex);
    size_t at = place_of(set, source, &there);
    int result = there ? 0 : set->n == STORE_SOURCES_MAX ? ERR_RANGE : insert(set, at, source);
    pthread_mutex_unlock(&set->mutex);
    if (result == ERR_RANGE) {
        return err_set(err, result, "more than %d sources have positions", STORE_SOURCES_MAX);
    }
    return result == 0 ? 0 : err_set(err, result, "out of memory for the position of a source");
}

static void move(struct position_set *set, const struct store_position *position)
{
    bool there;
    pthread_mutex_lock(&set->mutex);
    struct place *p = &set->places[place_of(set, position->source, &there)];
    p->next = position->next;
    p->durable = true;
    pthread_mutex_unlock(&set->mutex);
}

int position_set_admit(struct position_set *set, struct store_batch *batch)
{
    int result = 0;
    for (size_t i = 0; i < batch->n_positions && result == 0; i++) {
        result = make_place(set, batch->positions[i].source, &batch->err);
    }
    return result;
}

void position_set_move(struct position_set *set, const struct store_batch *batch)
{
    for (size_t i = 0; i < batch->n_positions; i++) {
        move(set, &batch->positions[i]);
    }
}

int position_set_load(struct position_set *set, const struct store_position *position, struct err *err)
{
    int result = make_place(set, position->source, err);
    if (result == 0) {
        move(set, position);
    }
    return result;
}

bool position_set_find(struct position_set *set, struct slice source, int64_t *next)
{
    bool there;
    pthread_mutex_lock(&set->mutex);
    size_t at = place_of(set, source, &there);
    there = there && set->places[at].durable;
    if (there) {
        *next = set->places[at].next;
    }
    pthread_mutex_unlock(&set->mutex);
    return there;
}

void position_set_forget(struct position_set *set, struct slice source)
{
    bool there;
    pthread_mutex_lock(&set->mutex);
    size_t at = place_of(set, source, &there);
    if (there) {
        set->places[at].durable = false;
    }
    pthread_mutex_unlock(&set->mutex);
}

bool position_set_at(struct position_set *set, size_t *i, struct store_position *out)
{
    while (*i < set->n && !set->places[*i].durable) {
        ++*i;
    }
    if (*i == set->n) {
        return false;
    }
    const struct place *p = &set->places[(*i)++];
    *out = (struct store_position){slice_of(p->name, p->len), p->next};
    return true;
}
