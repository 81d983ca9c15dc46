#include "store/feed.h"

#include <string.h>

#include "store/node.h"

const char *feed_place_name(enum feed_place place)
{
    static const char *const names[FEED_PLACES] = {"in step", "behind", "lost"};
    return names[place];
}

int feed_look(struct store *s, struct feed_state out[FEED_CONSUMERS_MAX])
{
    return s->feed != NULL ? s->feed->states(s, out) : 0;
}

void feed_state_of(struct store *s, const char *consumer, struct feed_state *out)
{
    struct feed_state all[FEED_CONSUMERS_MAX];
    int n = feed_look(s, all);
    *out = (struct feed_state){.place = FEED_IN_STEP};
    for (int i = 0; i < n; i++) {
        if (strcmp(all[i].name, consumer) == 0) {
            *out = all[i];
        }
    }
}

bool feed_is_remote(const char *consumer)
{
    return strncmp(consumer, FEED_REMOTE, strlen(FEED_REMOTE)) == 0 || strcmp(consumer, FEED_FRONT) == 0 ||
           strcmp(consumer, FEED_ARCHIVE) == 0;
}

enum feed_fit feed_fits(struct store *s, const char *consumer, uint64_t node, uint64_t run, uint64_t seq)
{
    struct feed_state queue;
    bool rolled_back = false;
    feed_state_of(s, consumer, &queue);
    const bool known = s->node->knows(s, node, run, seq, &rolled_back) == 1;
    return queue.name[0] == '\0'      ? FEED_UNKNOWN
           : rolled_back              ? FEED_ROLLED_BACK
           : !known                   ? FEED_FOREIGN
           : queue.place == FEED_LOST ? FEED_MISSES
           : seq < queue.held         ? FEED_TOO_OLD
                                      : FEED_FITS;
}
