/* The commands of scenarios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "scenario.h"
#include "store/admin.h"
#include "store/ring.h"
#include "store/stats.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/part_rows.h"

/* The items of a command, from word `from` on. */
static size_t slices(const struct words *w, int from, struct slice *out)
{
    for (int i = from; i < w->n; i++) {
        out[i - from] = slice_str(w->word[i]);
    }
    return (size_t)(w->n > from ? w->n - from : 0);
}

/* Fills the event of a played, playedat or delivered command; 1 when it is none. */
static int parse_event(const struct scenario *s, const struct words *w, struct world_event *e, struct slice *items,
                       struct err *err)
{
    const struct dedup *d = &s->world.dedup;
    const char *command = w->word[0];
    int first = 2;
    e->kind = STORE_PLAY;
    if (strcmp(command, "delivered") == 0) {
        e->kind = STORE_DELIVERY;
    } else if (strcmp(command, "playedat") == 0) {
        first = 3;
    } else if (strcmp(command, "played") != 0) {
        return 1;
    }
    need_words(s, w, first + 1);
    e->user = slice_str(w->word[1]);
    e->n = slices(w, first, items);
    e->items = items;
    if (first == 2) {
        e->at_ms = dedup_stamp(d);
        return 0;
    }
    bool skewed = false;
    char *end;
    long long ms = strtoll(w->word[2], &end, 10);
    return dedup_event_time(d, *end == '\0' ? ms : parse_time(s, w->word[2]), &e->at_ms, &skewed, err);
}

static int wait_unless_sending(struct scenario *s, int64_t *answer, struct err *err)
{
    return s->sending ? 0 : world_wait(&s->world, answer, err);
}

static int do_event(struct scenario *s, const struct words *w, struct err *err)
{
    static struct slice items[WORDS_MAX];
    struct world_event event = {0};
    int rc = parse_event(s, w, &event, items, err);
    if (rc < 0) {
        return rc;
    }
    world_record(&s->world, &event, 1, NULL, NULL);
    return wait_unless_sending(s, NULL, err);
}

/* bulk N COMMAND: one batch. */
int run_bulk(struct scenario *s, const char *text, int64_t n, struct err *err)
{
    struct world_event *events = calloc((size_t)n, sizeof *events);
    struct buf *stores = calloc((size_t)n, sizeof *stores);
    struct slice **items = calloc((size_t)n, sizeof(struct slice *));
    static struct words w;
    int rc = 0;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        split(s, text, i, &w, &stores[i]);
        items[i] = calloc((size_t)w.n, sizeof(struct slice));
        rc = parse_event(s, &w, &events[i], items[i], err);
        if (rc > 0) {
            fail(s, "bulk takes played, playedat or delivered");
        }
    }
    if (rc == 0) {
        world_record(&s->world, events, (size_t)n, NULL, NULL);
        rc = wait_unless_sending(s, NULL, err);
    }
    for (int64_t i = 0; i < n; i++) {
        buf_free(&stores[i]);
        free(items[i]);
    }
    free(stores);
    free(items);
    free(events);
    return rc;
}

static int do_forget(struct scenario *s, const struct words *w, struct err *err)
{
    static struct slice items[WORDS_MAX];
    need_words(s, w, 2);
    size_t n = slices(w, 2, items);
    int64_t answer = 0;
    world_forget(&s->world, slice_str(w->word[1]), items, n, NULL, NULL);
    int rc = wait_unless_sending(s, &answer, err);
    if (!s->sending && rc == 0) {
        buf_addf(&s->out, "%lld", (long long)answer);
    }
    return rc;
}

static int do_flush(struct scenario *s, const struct words *w, struct err *err)
{
    (void)w;
    world_flush(&s->world);
    return wait_unless_sending(s, NULL, err);
}

static int do_wait(struct scenario *s, const struct words *w, struct err *err)
{
    (void)w;
    return world_wait(&s->world, NULL, err);
}

static int do_ask(struct scenario *s, const struct words *w, struct err *err)
{
    static struct slice items[WORDS_MAX];
    static uint64_t hashes[WORDS_MAX];
    static uint8_t bits[WORDS_MAX / 8];
    need_words(s, w, 3);
    size_t n = slices(w, 2, items), n_unseen = 0;
    for (size_t i = 0; i < n; i++) {
        hashes[i] = hash_id(s->world.dedup.seed, items[i]);
    }
    int rc = asker_filter(s->world.asker, slice_str(w->word[1]), hashes, n, bits, &n_unseen, err);
    if (rc < 0) {
        return rc;
    }
    if (strcmp(w->word[0], "unseen-count") == 0) {
        add_word(s, "%zu", n_unseen);
        return 0;
    }
    size_t counted = 0;
    for (size_t i = 0; i < n; i++) {
        bool unseen = bits[i / 8] & (0x80 >> i % 8);
        counted += unseen;
        if (strcmp(w->word[0], "seen") == 0) {
            add_word(s, "%d", !unseen);
        } else if (unseen) {
            add_word(s, "%s", w->word[i + 2]);
        }
    }
    if (counted != n_unseen) {
        fail(s, "the bitmap has %zu bits set, the count says %zu", counted, n_unseen);
    }
    return 0;
}

static int do_why(struct scenario *s, const struct words *w, struct err *err)
{
    static struct place places[PLACES_MAX];
    need_words(s, w, 3);
    char name[MONTH_TEXT];
    uint64_t hash = hash_id(s->world.dedup.seed, slice_str(w->word[2]));
    int n = asker_why(s->world.asker, slice_str(w->word[1]), hash, places, err);
    for (int i = 0; i < n; i++) {
        add_word(s, "%s",
                 places[i].kind == PLACE_STAGED      ? "staged"
                 : places[i].kind == PLACE_DELIVERED ? "delivered"
                                                     : month_name(places[i].month, name));
    }
    return n < 0 ? n : 0;
}

static int do_history(struct scenario *s, const struct words *w, struct err *err)
{
    need_words(s, w, 2);
    struct history h;
    char name[MONTH_TEXT];
    int rc = asker_history(s->world.asker, slice_str(w->word[1]), &h, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        add_word(s, "nil");
        return 0;
    }
    for (size_t i = 0; i < h.n_months; i++) {
        add_word(s, "%s:%llu", month_name(h.months[i].month, name), (unsigned long long)h.months[i].items);
    }
    add_word(s, "staged=%llu delivered=%llu", (unsigned long long)h.staged, (unsigned long long)h.delivered);
    return 0;
}

static int do_months(struct scenario *s, const struct words *w, struct err *err)
{
    static struct store_month_info months[512];
    char name[MONTH_TEXT];
    int n = asker_months(s->world.asker, months, 512, err);
    for (int i = 0; i < n; i++) {
        month_name(months[i].month, name);
        if (strcmp(w->word[0], "months") == 0) {
            add_word(s, "%s:%s", name, store_month_state_name(months[i].state));
        } else if (w->n > 1 && strcmp(w->word[1], name) == 0) {
            add_word(s, "%.4f", months[i].progress);
        }
    }
    return n < 0 ? n : 0;
}

static int do_ring(struct scenario *s, const struct words *w, struct err *err)
{
    (void)err;
    static struct store_ring ring;
    s->world.store->ring->look(s->world.store, &ring);
    const char *what = w->word[0];
    if (strcmp(what, "turn") == 0) {
        add_word(s, "%llu", (unsigned long long)ring.turn);
    } else if (strcmp(what, "busy") == 0) {
        add_word(s, "%s", ring.busy ? "yes" : "no");
    } else if (strcmp(what, "doubted") == 0) {
        add_word(s, "%s", ring.clock_doubted ? "yes" : "no");
    } else {
        for (int i = 0; i < ring.n_slots; i++) {
            if (strcmp(what, "ring-rows") == 0) {
                add_word(s, "%llu", (unsigned long long)ring.slots[i].rows);
            } else {
                add_word(s, "%s", store_slot_state_name(ring.slots[i].state));
            }
        }
    }
    return 0;
}

struct stat_search {
    const char *name;
    bool found;
    uint64_t value;
};

static void visit_stat(void *arg, const struct figure *figure, uint64_t value)
{
    struct stat_search *search = arg;
    if (strcmp(figure->info, search->name) == 0) {
        search->found = true;
        search->value = value;
    }
}

static int do_stat(struct scenario *s, const struct words *w, struct err *err)
{
    (void)err;
    need_words(s, w, 2);
    struct store_stats stats;
    struct stat_search search = {.name = w->word[1]};
    s->world.store->ops->stats(s->world.store, &stats);
    store_stats_each(&stats, visit_stat, &search);
    if (!search.found) {
        fail(s, "there is no counter \"%s\"", w->word[1]);
    }
    add_word(s, "%llu", (unsigned long long)search.value);
    return 0;
}

static int do_check(struct scenario *s, const struct words *w, struct err *err)
{
    (void)w;
    int n = world_check(&s->world, err);
    if (n >= 0) {
        add_word(s, "%d", n);
    }
    return n < 0 ? n : 0;
}

static int do_process(struct scenario *s, const struct words *w, struct err *err)
{
    const char *what = w->word[0];
    if (strcmp(what, "stop") == 0 || strcmp(what, "restart") == 0) {
        world_stop(&s->world);
    } else if (strcmp(what, "crash") == 0) {
        world_crash(&s->world);
    }
    return strcmp(what, "stop") == 0 ? 0 : world_start(&s->world, err);
}

static int do_clock(struct scenario *s, const struct words *w, struct err *err)
{
    const char *what = w->word[0];
    if (strcmp(what, "tick") == 0) {
        return world_advance(&s->world, 0, err);
    }
    if (strcmp(what, "accept") == 0 || strcmp(what, "set-back") == 0) {
        return world_clock(&s->world, what[0] == 's', err);
    }
    need_words(s, w, 2);
    if (strcmp(what, "built") == 0) {
        s->world.built_ms = parse_time(s, w->word[1]);
        return 0;
    }
    if (strcmp(what, "clock") == 0) {
        clock_test_start(parse_time(s, w->word[1]));
        s->clock_set = true;
        return 0;
    }
    if (strcmp(what, "jump") == 0 && s->sending) {
        clock_test_jump(parse_duration(s, w->word[1]));
        world_tick(&s->world);
        return 0;
    }
    if (strcmp(what, "jump") == 0) {
        return world_jump(&s->world, parse_duration(s, w->word[1]), err);
    }
    if (strcmp(what, "to") == 0) {
        int64_t ms = parse_time(s, w->word[1]) - clock_wall_ms();
        if (ms < 0) {
            fail(s, "that is in the past");
        }
        return world_advance(&s->world, ms, err);
    }
    return world_advance(&s->world, parse_duration(s, w->word[1]), err);
}

static int do_config(struct scenario *s, const struct words *w, struct err *err)
{
    need_words(s, w, 3);
    int rc = config_set(&s->world.cfg, w->word[1], w->word[2], err);
    return rc < 0 ? rc : config_validate(&s->world.cfg, err);
}

static int do_parts(struct scenario *s, const struct words *w, struct err *err)
{
    (void)err;
    need_words(s, w, 2);
    atomic_store(&part_rows, strtoull(w->word[1], NULL, 10));
    return 0;
}

static const struct {
    const char *name;
    int (*run)(struct scenario *s, const struct words *w, struct err *err);
    bool stopped; /* may run while the store is stopped */
} commands[] = {
    {"clock", do_clock, true},      {"advance", do_clock, true},    {"jump", do_clock, true},
    {"to", do_clock, true},         {"tick", do_clock, false},      {"config", do_config, true},
    {"start", do_process, true},    {"stop", do_process, false},    {"restart", do_process, false},
    {"crash", do_process, false},   {"played", do_event, false},    {"playedat", do_event, false},
    {"delivered", do_event, false}, {"forget", do_forget, false},   {"flush", do_flush, false},
    {"wait", do_wait, true},        {"unseen", do_ask, false},      {"unseen-count", do_ask, false},
    {"seen", do_ask, false},        {"why", do_why, false},         {"history", do_history, false},
    {"months", do_months, false},   {"progress", do_months, false}, {"ring", do_ring, false},
    {"ring-rows", do_ring, false},  {"turn", do_ring, false},       {"busy", do_ring, false},
    {"doubted", do_ring, false},    {"stat", do_stat, false},       {"check", do_check, true},
    {"fail", disk_fault, true},     {"hold", disk_fault, true},     {"held", disk_vfs, true},
    {"release", disk_vfs, true},    {"heal", disk_vfs, true},       {"truncate", disk_file, true},
    {"garble", disk_file, true},    {"write", disk_file, true},     {"grep", disk_file, true},
    {"remove", disk_file, true},    {"accept", do_clock, false},    {"set-back", do_clock, false},
    {"built", do_clock, true},      {"parts", do_parts, true},
};

int run_command(struct scenario *s, const struct words *w, struct err *err)
{
    for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++) {
        if (strcmp(w->word[0], commands[k].name) == 0) {
            if (!s->world.store && !commands[k].stopped) {
                fail(s, "the store is stopped");
            }
            return commands[k].run(s, w, err);
        }
    }
    fail(s, "there is no command \"%s\"", w->word[0]);
}
