#include "store/memory/memory.h"

void memory_now(struct store *base, int64_t *later, int64_t *earlier)
{
    guarded_clock_now(&memory_of(base)->clock, later, earlier);
}

int memory_time_known(struct store *base, struct err *err)
{
    return guarded_clock_known(&memory_of(base)->clock, err);
}

void memory_clock(struct store *base, struct store_clock *out)
{
    guarded_clock_tell(&memory_of(base)->clock, out);
}

int memory_clock_work(struct memory_store *s, struct store_clock_change *change)
{
    int64_t wall;
    int result = guarded_clock_change(&s->clock, change, &wall);
    if (result == 0 && change->set_back) {
        tombstones_until(s->tombstones, wall);
    }
    return result;
}

int memory_first_kept(struct memory_store *s)
{
    return guarded_clock_first_kept(&s->clock);
}
