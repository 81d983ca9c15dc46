#include "store/feed.h"

#include <string.h>

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
    return strncmp(consumer, FEED_REMOTE, strlen(FEED_REMOTE)) == 0 || strcmp(consumer, FEED_FRONT) == 0;
}
