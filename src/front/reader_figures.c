#include "front/reader_store.h"

void front_store_figures_each(struct store *s, figure_visit *visit, void *arg)
{
    static const struct figure
        only = {"front_only", "front_only", FIGURE_GAUGE, "1: this server has no folder, and answers from a front."},
        answers = {"front_answers", "front_answers", FIGURE_GAUGE,
                   "1 while questions are answered from the front: it is there, full and young."},
        to = {"front_to", "front_to_event", FIGURE_GAUGE, "The last event of the primary that stands in the front."},
        age = {"front_age_us", "front_age_seconds", FIGURE_US, "How old what stands in the front is."};
    struct front_store_state state;
    if (!front_store_is(s)) {
        return;
    }
    front_store_look(s, &state);
    visit(arg, &only, 1);
    visit(arg, &answers, state.cause[0] == '\0');
    visit(arg, &to, state.to);
    if (state.age_ms >= 0) {
        visit(arg, &age, (uint64_t)state.age_ms * 1000);
    }
}
