/* The requests of `unseen bench`: pings, questions, plays, and the plays that users are prepared with.
 *
 * Users are PREFIX:00000000 and on, chosen by Zipf; items are item:NNN... of 25 bytes. The n-th prepared play of every
 * user is the same item, so that one list of candidates fits all users: only the user's name is put in front of it. A
 * few lists alternate. Candidates are played and never-played items in random order.
 *
 * So the filters of all users are alike, and a list gets the same answer each time: a never-played candidate that is
 * hidden once would be counted each time. So `verify` counts them only in one question of BENCH_FRESH on each
 * connection, which gets its own never-played candidates. (Each costs the generator a copy of the list.) Pools are as
 * they are: there `verify` sees to it alone that nothing that was played is unseen.
 */
#ifndef UNSEEN_CLI_BENCH_BENCH_WORK_H
#define UNSEEN_CLI_BENCH_BENCH_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/bench/bench_engine.h"
#include "cli/bench/zipf.h"

enum {
    BENCH_LISTS = 8,
    BENCH_FRESH = 16,
    BENCH_USERS_MAX = 100 * 1000 * 1000,
};

enum bench_reply_form { BENCH_ITEMS, BENCH_INDEXES, BENCH_BITMAP };

struct bench_terms {
    const char *prefix;
    uint64_t users;
    double skew;
    uint32_t candidates;
    uint32_t seen_percent;
    uint32_t plays_per_month; /* prepared */
    uint32_t months;
    enum bench_reply_form form;
    bool verify;    /* look into each answer */
    bool pools;     /* the lists are pools, and questions name them (bench_make_pools()) */
    uint32_t limit; /* with pools: only the first so many are asked for; 0: all */
    bool deliver;   /* and recorded as delivered */
    bool hashes;    /* questions hold hashes instead of items, made with ... */
    uint64_t seed;  /* ... the server's (bench_read_seed()) */
};

struct bench_works;

/* The terms must outlive the works. */
int bench_works_new(const struct bench_terms *terms, struct bench_works **works, struct err *err);
void bench_works_free(struct bench_works *w);

const struct bench_work *bench_pings(const struct bench_works *w);
const struct bench_work *bench_questions(const struct bench_works *w);
const struct bench_work *bench_plays(const struct bench_works *w);

/* Before the works are made: asks for the server's seed, which needs an account of the role admin. */
int bench_read_seed(struct bench_terms *terms, const char *address, const char *password, struct err *err);

/* Sets a pool for each list, PREFIX:list:0 and on. */
int bench_make_pools(const struct bench_works *w, const char *address, const char *password, struct err *err);

/* PLAYEDAT, month by month and user by user, until all are there; once. */
int bench_preparation(struct bench_works *w, const struct bench_work **work, struct err *err);

#endif
