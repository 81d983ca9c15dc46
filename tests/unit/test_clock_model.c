/* No change of a clock makes an acknowledged play unseen: random sequences of wall clocks that jump, step, die and come
 * back, restarts, crashes, outages, machines that sleep, and an administrator's word, against a plain set with the true
 * times. The administrator says the truth; the clock may say anything.
 *
 * A time that is believed may be wrong by as much as the rules forgive: so the window that must be seen is the true
 * one, less that much. In a world where the clock only lies by more than is ever forgiven that is a day.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
#include "tests/lib/world_fixture.h"

#define MIN INT64_C(60000)
#define HOUR (60 * MIN)
#define DAY (24 * HOUR)
#define T0 INT64_C(1795255200000) /* 2026-11-21T10:00Z */

enum { USERS = 4, PLAYS_MAX = 2000, STEPS = 260, SEEDS = 6, ITEM_TEXT = 16 };

/* What may happen. */
struct kind {
    const char *name;
    int64_t early;       /* by as much a play may be stamped too early */
    int64_t ahead;       /* and the time that is believed be ahead of the true one */
    const int64_t *lies; /* how far the wall clock is off */
    size_t n_lies;
    const int64_t *outages;
    size_t n_outages;
};

/* A clock that is slow and runs for as long as it is slow passes the newest time, and is believed: none does here. */
#define ALWAYS -4 * MIN, -2000, 1000, 4 * MIN, -20 * HOUR, -400 * DAY, -9000 * DAY, 70 * DAY, 400 * DAY, 5000 * DAY
static const int64_t far_lies[] = {ALWAYS};
static const int64_t all_lies[] = {ALWAYS, -HOUR, HOUR, 8 * DAY, 30 * DAY};
static const int64_t short_outages[] = {0, MIN, HOUR};
static const int64_t all_outages[] = {0, HOUR, 3 * DAY, 10 * DAY, 29 * DAY, 70 * DAY, 240 * DAY};

#define LIST(array) array, sizeof array / sizeof *array
static const struct kind kinds[] = {
    {"lies that are never forgiven", 2 * DAY, 5 * MIN, LIST(far_lies), LIST(short_outages)},
    {"and long outages", 32 * DAY, 5 * MIN, LIST(far_lies), LIST(all_outages)},
    {"any lies and outages", 34 * DAY, 31 * DAY, LIST(all_lies), LIST(all_outages)},
};

struct model {
    const struct kind *kind;
    uint64_t seed, random;
    struct world world;
    struct store_reader *reader;
    int64_t now, lie; /* the truth, and how far the wall clock is off it */
    bool honest;      /* the clock was right since the start, ... */
    bool fit;         /* at which the newest time was no reason to doubt it */
    struct {
        int user;
        int64_t at; /* the truth */
    } plays[PLAYS_MAX];
    int n_plays;
    int step;
    uint64_t doubts, refusals, mistakes, accepted, set_back,
        checked; /* so that one sees that the test is about something */
};

static int below(struct model *m, size_t n)
{
    return (int)random_below(&m->random, n);
}

static void wrong(const struct model *m, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

static void wrong(const struct model *m, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    fail_msg("%s, seed %llu, step %d: %s", m->kind->name, (unsigned long long)m->seed, m->step, what);
    abort(); /* not reached */
}

static struct store_clock believed(struct model *m)
{
    struct store_clock clock;
    m->world.store->ops->clock(m->world.store, &clock);
    return clock;
}

static void must(struct model *m, const char *what, int rc, const struct err *err)
{
    if (rc < 0) {
        wrong(m, "%s: %s", what, err->text);
    }
}

/* --- what happens --- */

static void pass(struct model *m, int64_t ms)
{
    struct err err = {0};
    m->now += ms;
    must(m, "advance", world_advance(&m->world, ms, &err), &err);
}

/* At a first start nothing tells a clock that is slow from one that is right, but the program's build. */
static int64_t tellable(struct model *m, int64_t lie)
{
    return lie < -DAY && !believed(m).known ? -9000 * DAY : lie;
}

static void tell_lie(struct model *m, int64_t lie)
{
    struct err err = {0};
    lie = tellable(m, lie);
    must(m, "jump", world_jump(&m->world, lie - m->lie, &err), &err);
    m->honest = m->honest && llabs(lie) <= MIN && llabs(m->lie) <= MIN;
    m->lie = lie;
}

static void open_world(struct model *m)
{
    struct err err = {0};
    must(m, "start", world_start(&m->world, &err), &err);
    must(m, "reader", m->world.store->ops->reader_open(m->world.store, &m->reader, &err), &err);
    m->honest = llabs(m->lie) <= MIN;
    pass(m, 0); /* the first look at the clock, which a server has within a fifth of a second */
}

static void restart(struct model *m, bool crash, int64_t outage, int64_t lie)
{
    struct err err = {0};
    int64_t newest = believed(m).newest_ms;
    lie = tellable(m, lie);
    m->world.store->ops->reader_close(m->reader);
    if (crash) {
        vfs_fault_freeze(true);
        vfs_fault_release();
    }
    world_stop(&m->world);
    vfs_fault_heal();
    must(m, "outage", world_advance(&m->world, outage, &err), &err);
    must(m, "jump", world_jump(&m->world, lie - m->lie, &err), &err);
    m->now += outage;
    m->lie = lie;
    /* A crash forgets up to ten minutes of it. */
    m->fit = newest - m->now < DAY && m->now - newest < 31 * DAY - HOUR && newest > 0;
    open_world(m);
}

static void play(struct model *m)
{
    char user[ITEM_TEXT], item[ITEM_TEXT];
    struct err err = {0};
    int n = m->n_plays;
    m->plays[n].user = below(m, USERS);
    m->plays[n].at = m->now;
    snprintf(user, sizeof user, "u%d", m->plays[n].user);
    snprintf(item, sizeof item, "i%d", n);
    struct slice id = slice_str(item);
    struct world_event event = {
        .kind = STORE_PLAY, .at_ms = dedup_stamp(&m->world.dedup), .user = slice_str(user), .items = &id, .n = 1};
    world_record(&m->world, &event, 1, NULL, NULL);
    int rc = world_wait(&m->world, NULL, &err);
    if (rc == ERR_BUSY && !believed(m).known) {
        m->refusals++;
        return;
    }
    must(m, "play", rc, &err);
    m->n_plays++;
}

/* An administrator looks at the clock, finds it right, and does what the text says. */
static void administrate(struct model *m)
{
    struct err err = {0};
    if (llabs(m->lie) > 5 * MIN) {
        tell_lie(m, 0);
    }
    struct store_clock clock = believed(m);
    if (!clock.doubted) {
        return;
    }
    bool back = strstr(clock.reason, "--set-back") != NULL;
    if (!back && strstr(clock.reason, "--accept") == NULL) {
        wrong(m, "nothing to type: %s", clock.reason);
    }
    if (world_clock(&m->world, back, &err) < 0 && believed(m).doubted) {
        wrong(m, "word: %s", err.text);
    }
    m->set_back += back;
    m->accepted += !back;
    if (believed(m).doubted) {
        wrong(m, "still doubted: %s", believed(m).reason);
    }
    m->honest = m->fit = true;
}

static void check(struct model *m);

/* An administrator accepts a clock that is wrong, and takes it back some days later. */
static void mistake(struct model *m)
{
    struct err err = {0};
    if (m->lie <= 31 * DAY || strstr(believed(m).reason, "--accept") == NULL) {
        return;
    }
    if (world_clock(&m->world, false, &err) < 0) {
        return; /* it was about to be believed */
    }
    check(m);
    for (int i = below(m, 10); i >= 0; i--) {
        play(m);
        pass(m, 10 * HOUR);
    }
    check(m);
    m->mistakes++;
    administrate(m);
}

/* --- what must be --- */

/* In any month, however old. */
static bool is_stored(struct model *m, int user, uint64_t hash)
{
    char text[ITEM_TEXT];
    snprintf(text, sizeof text, "u%d", user);
    struct slice id = slice_str(text);
    struct store_view view;
    struct err err = {0};
    must(m, "load",
         store_load_wait(m->world.store, m->reader, hash_user_key(m->world.dedup.seed, id), id, INT32_MIN / 2, &view,
                         &err),
         &err);
    for (size_t i = 0; i < view.n_plays; i++) {
        if (view.plays[i].hash == hash) {
            return true;
        }
    }
    for (size_t i = 0; i < view.n_months; i++) {
        if (filter_has(&view.months[i].filter, hash)) {
            return true;
        }
    }
    return false;
}

static void check(struct model *m)
{
    const struct config *cfg = &m->world.cfg;
    int latest = month_of_ms(m->now + m->kind->ahead);
    struct store_clock clock = believed(m);
    /* After a leap what was stamped too early is kept for the window alone. */
    int kept = (int)(m->kind == &kinds[0] ? cfg->retention : cfg->window);
    int stored = below(m, 16); /* each is asked for in some of the checks */
    for (int i = 0; i < m->n_plays; i++) {
        char user[ITEM_TEXT], item[ITEM_TEXT], at[MONTH_TEXT], now[MONTH_TEXT];
        int month = month_of_ms(m->plays[i].at - m->kind->early);
        snprintf(user, sizeof user, "u%d", m->plays[i].user);
        snprintf(item, sizeof item, "i%d", i);
        if (month >= latest - (int)cfg->window) {
            m->checked++;
            if (!is_seen(&m->world, user, item)) {
                wrong(m, "%s %s of %s is unseen in %s; %s", user, item, month_name(month, at),
                      month_name(month_of_ms(m->now), now), clock.reason);
            }
        }
        if (month >= latest - kept && i % 16 == stored &&
            !is_stored(m, m->plays[i].user, hash_id(m->world.dedup.seed, slice_str(item)))) {
            wrong(m, "%s %s of %s is swept in %s", user, item, month_name(month, at),
                  month_name(month_of_ms(m->now), now));
        }
    }
    m->doubts += clock.doubted;
    if (m->honest && m->fit && clock.doubted) {
        wrong(m, "a clock that was always right is doubted: %s", clock.reason);
    }
}

static void act(struct model *m)
{
    const struct kind *k = m->kind;
    int dice = below(m, 100);
    if (dice < 40) {
        play(m);
    } else if (dice < 62) {
        pass(m, (1 + below(m, 30)) * HOUR);
    } else if (dice < 68) { /* days with their nights */
        for (int i = below(m, 25); i >= 0; i--) {
            pass(m, i % 2 == 0 ? 14 * HOUR : 10 * HOUR);
        }
    } else if (dice < 70) { /* asleep */
        pass(m, (1 + below(m, 40)) * DAY);
    } else if (dice < 78) {
        tell_lie(m, k->lies[below(m, k->n_lies)]);
    } else if (dice < 83) {
        tell_lie(m, 0);
    } else if (dice < 88) {
        flush_world(&m->world);
    } else if (dice < 96) {
        int64_t lie = below(m, 3) == 0 ? k->lies[below(m, k->n_lies)] : below(m, 2) == 0 ? 0 : m->lie;
        restart(m, below(m, 2) == 0, k->outages[below(m, k->n_outages)], lie);
    } else if (dice < 98) {
        administrate(m);
    } else {
        mistake(m);
    }
}

static void run(const struct kind *kind, uint64_t seed)
{
    struct model m = {.kind = kind, .seed = seed, .random = seed, .now = T0, .fit = true};
    char folder[64];
    world_fixture_init(&m.world, "clock-model", T0, folder);
    m.world.built_ms = T0 - 30 * DAY;
    m.lie = seed % 3 == 0 ? -9000 * DAY : 0; /* some begin with a clock that is dead */
    clock_test_jump(m.lie);
    open_world(&m);
    for (m.step = 0; m.step < STEPS; m.step++) {
        act(&m);
        check(&m);
    }
    m.world.store->ops->reader_close(m.reader);
    world_fixture_end(&m.world, folder);
    print_message("%s, seed %llu: %d plays, %llu refused, %llu looks in doubt, %llu mistakes, %llu accepted, %llu set "
                  "back, %llu checked\n",
                  kind->name, (unsigned long long)seed, m.n_plays, (unsigned long long)m.refusals,
                  (unsigned long long)m.doubts, (unsigned long long)m.mistakes, (unsigned long long)m.accepted,
                  (unsigned long long)m.set_back, (unsigned long long)m.checked);
    assert_true(m.checked > 100);
}

static void test_model(void **state)
{
    (void)state;
    const char *from = getenv("CLOCK_MODEL_SEED");
    uint64_t first = from != NULL ? strtoull(from, NULL, 10) : 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (uint64_t seed = first; seed < first + (uint64_t)test_rounds(SEEDS); seed++) {
            run(&kinds[k], seed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
