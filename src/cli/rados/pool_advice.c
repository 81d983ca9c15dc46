#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "cli/rados/pool_facts.h"

/* Fewer replicas of placement groups than this an OSD are spread unevenly. Ceph itself aims at 100. */
enum { GROUPS_AN_OSD = 30 };

struct advisor {
    const char *pool;
    const struct pool_facts *facts;
    pool_say *say;
    void *arg;
    int said;
};

static void advise(struct advisor *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void advise(struct advisor *a, const char *format, ...)
{
    char text[POOL_ADVICE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    a->said++;
    a->say(a->arg, text);
}

static void advise_on_size(struct advisor *a)
{
    long long size = (long long)a->facts->size, min = (long long)a->facts->min_size;
    if (size == 1) {
        advise(a, "size is 1: what is acknowledged is on one disk, and lost with it: ceph osd pool set %s size 3",
               a->pool);
        return;
    }
    if (min == 1) {
        advise(a,
               "min_size is 1: plays are acknowledged while one disk alone has them, and lost if that fails before "
               "the others are back: ceph osd pool set %s min_size 2",
               a->pool);
    }
    if (size == 2) {
        advise(a,
               "size is 2: while one replica is away or copied again, the other is the only one: "
               "ceph osd pool set %s size 3",
               a->pool);
    }
    if (min >= size) {
        advise(a,
               "min_size is %lld, as size is: each OSD that ends stops plays and questions of its users until it is "
               "back, or until its share was copied to others (after mon_osd_down_out_interval): "
               "ceph osd pool set %s min_size %lld",
               min, a->pool, size > 2 ? size - 1 : 1);
    }
}

static void advise_on_places(struct advisor *a)
{
    const struct pool_facts *f = a->facts;
    char several[POOL_NAME + 1];
    snprintf(several, sizeof several, "%.*ss", POOL_NAME - 1, f->domain);
    if (f->rule[0] == '\0' || f->domain[0] == '\0') {
        advise(a, "its rule of CRUSH was not found, so it isn't known where its replicas are");
        return;
    }
    if (strcmp(f->domain, "osd") == 0 && f->size > 1) {
        advise(a,
               "the rule %s tells OSDs apart, not hosts: all replicas of a user may be on one host, and are away, or "
               "lost, with it: take a rule with the failure domain host",
               f->rule);
    }
    if (f->domains < f->size) {
        advise(a,
               "size is %lld, and the rule %s finds %lld %s: some replicas are nowhere, and a failure costs more than "
               "size promises",
               (long long)f->size, f->rule, (long long)f->domains, f->domains == 1 ? f->domain : several);
    } else if (f->domains == f->size && f->size > 1) {
        advise(a,
               "there are as many %s as replicas: when one is gone for good, its share can't be copied to another, and "
               "%lld of %lld replicas are all there is until it is replaced",
               several, (long long)f->size - 1, (long long)f->size);
    }
    if (f->in > 0 && f->groups * f->size < f->in * GROUPS_AN_OSD) {
        advise(a,
               "%lld placement group%s on %lld OSD%s: some of these get much more of the users than others; 100 "
               "replicas of groups an OSD are usual: ceph osd pool set %s pg_num N",
               (long long)f->groups, plural((uint64_t)f->groups), (long long)f->in, plural((uint64_t)f->in), a->pool);
    }
}

static void advise_on_state(struct advisor *a)
{
    const struct pool_facts *f = a->facts;
    if (f->full) {
        advise(a, "it is full: plays are refused until there is room");
    } else if (f->nearfull) {
        advise(a, "an OSD is nearly full: plays are refused once one is full, not when all are");
    }
    if (f->up < f->in) {
        advise(a, "%lld of %lld OSDs run: some users have fewer replicas than size", (long long)f->up,
               (long long)f->in);
    }
    if (f->capped) {
        advise(a, "it has a quota: plays are refused when it is reached");
    }
    if (f->tiered) {
        advise(a, "a cache tier is on it: each first question about a user copies them, whole: remove the tier");
    }
    if (f->application[0] != '\0') {
        advise(a, "it belongs to %s, too: what that writes there is in the way of every walk over the users",
               f->application);
    }
}

int pool_advise(const char *pool, const struct pool_facts *facts, pool_say *say, void *arg, struct err *err)
{
    struct advisor a = {pool, facts, say, arg, 0};
    if (!facts->replicated) {
        return err_set(err, ERR_INVALID,
                       "the pool \"%s\" is erasure-coded, and such pools can't hold a user's keys: make a replicated "
                       "one",
                       pool);
    }
    advise_on_size(&a);
    advise_on_places(&a);
    advise_on_state(&a);
    return a.said;
}
