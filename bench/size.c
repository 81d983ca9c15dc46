/* Bytes a play on disk:
 *
 *   make bench/size && bench/size [--users N] [--plays-a-month N] [--page BYTES] [--even] [--deliveries]
 *
 * First, a data folder as it is after years of use, at the end of a month, when it is largest: seven months of plays
 * (retention is 6: six full months, the current one), all but the last sealed by the store itself, the last live and
 * full. The users are the mix of the comparison: 60 % have 100 plays in all, 30 % 1,000, 10 % 20,000, spread unevenly
 * over the months. With --plays-a-month all users are alike instead: light ones cost mostly rows and `users`. Each
 * month is written the way flushes write it: the users' rows grow, in key order, again and again (ROUNDS times a month;
 * a real month has more, smaller ones), through the codec and the store's own statements. Then the night of sealing. At
 * the end two slots' plays of an hour are staged. Everything in both files counts: indexes, users, free pages,
 * half-filled ones.
 *
 * Then, one month of users with the same number of plays each, sealed and packed, beside other ways to keep them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"
#include "tests/lib/grown.h"
#include "tests/lib/random.h"
#include "tests/lib/world.h"

enum { MONTHS = 7, ROUNDS = 30, ID_SIZE = 32, DELIVERIES = 100, ITEM_BYTES = 25, PLAYS_A_MONTH_MAX = 8000 };

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench/size: %s\n", what);
        exit(1);
    }
}

static void must_do(int result, const struct err *err)
{
    must(result >= 0, err->text);
}

struct user {
    int64_t key;
    char id[ID_SIZE];
    uint32_t in_all;
};

static int by_key(const void *a, const void *b)
{
    const struct user *x = a;
    const struct user *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static uint32_t plays_a_month; /* of every user; 0: the mix */

static uint32_t plays_in_all(uint32_t i)
{
    if (plays_a_month > 0) {
        return plays_a_month * MONTHS;
    }
    return i % 10 < 6 ? 100 : i % 10 < 9 ? 1000 : 20000;
}

static struct user *make_users(uint32_t n, uint64_t seed)
{
    struct user *users = calloc(n, sizeof *users);
    must(users != NULL, "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        snprintf(users[i].id, sizeof users[i].id, "user%08" PRIu32, i);
        users[i].key = hash_user_key(seed, slice_str(users[i].id));
        users[i].in_all = plays_in_all(i);
    }
    qsort(users, n, sizeof *users, by_key);
    return users;
}

static bool even;
static uint32_t coarse_max; /* as a flush takes it */

/* A month's share of the user's plays. Unless --even they are unevenly spread, from once to three times as many in one
 * month as in another: equal rows would all fit their pages equally well, or badly. */
static uint32_t plays_of_month(const struct user *u, int m)
{
    uint64_t random = (uint64_t)u->key;
    uint64_t before = 0;
    uint64_t all = 0;
    uint64_t to = 0;
    for (int i = 0; i < MONTHS; i++) {
        uint64_t weight = even ? 1 : 1000 + random_below(&random, 2000);
        before += i < m ? weight : 0;
        to += i <= m ? weight : 0;
        all += weight;
    }
    return (uint32_t)(u->in_all * to / all - u->in_all * before / all);
}

/* The blob of the first n of the user's plays of a month, which stand in no order. */
static void encode_plays(const struct user *u, int m, uint32_t n, struct buf *out)
{
    static uint32_t positions[20000];
    static uint32_t scratch[20000];
    uint64_t random = (uint64_t)u->key + (uint64_t)m * 1000003;
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (uint32_t)(random_next(&random) >> 32);
    }
    static struct arena arena;
    struct filter f = {0};
    arena_reset(&arena);
    must(filter_add(&f, positions, filter_sort(positions, n, scratch), coarse_max, &arena) == 0, "add");
    buf_clear(out);
    must(filter_encode(&f, out) == 0, "encode");
}

static void put_row(struct db *db, int table, int64_t key, uint32_t items, const struct buf *blob)
{
    struct err err = {0};
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_PUT, table, &err);
    must(stmt != NULL, err.text);
    sqlite3_bind_int64(stmt, 1, key);
    sqlite3_bind_int64(stmt, 2, items);
    sqlite3_bind_blob(stmt, 3, blob->data, (int)blob->len, SQLITE_STATIC);
    must_do(db_run(db, stmt, &err), &err);
}

static void put_user(struct db *db, const struct user *u, int month)
{
    struct err err = {0};
    sqlite3_stmt *stmt = db_stmt(db, SQL_USER_PUT, &err);
    must(stmt != NULL, err.text);
    sqlite3_bind_int64(stmt, 1, u->key);
    db_bind_id(stmt, 2, slice_str(u->id));
    sqlite3_bind_int(stmt, 3, month);
    must_do(db_run(db, stmt, &err), &err);
}

/* One of the month's flushes: every user with new plays, in key order. */
static void write_round(struct sqlite_store *s, const struct user *users, uint32_t n, int m, int month, uint32_t round)
{
    struct db *db = &s->historian.db;
    struct err err = {0};
    static struct buf blob;
    static uint32_t *bytes;
    if (bytes == NULL) {
        bytes = calloc(n, sizeof *bytes);
        must(bytes != NULL, "out of memory");
    }
    must_do(history_begin(s, &err), &err);
    for (uint32_t i = 0; i < n; i++) {
        const struct user *u = &users[i];
        uint32_t most = plays_of_month(u, m);
        uint32_t before = (uint32_t)((uint64_t)most * round / ROUNDS);
        uint32_t now = (uint32_t)((uint64_t)most * (round + 1) / ROUNDS);
        bytes[i] = before == 0 ? 0 : bytes[i];
        if (now == before) {
            continue;
        }
        encode_plays(u, m, now, &blob);
        must_do(month_ensure(s, month, &err), &err);
        put_row(db, month, u->key, now, &blob);
        must_do(month_count(s, month, before == 0, now - before, (int64_t)blob.len - bytes[i], &err), &err);
        if (before == 0) {
            put_user(db, u, month);
        }
        bytes[i] = (uint32_t)blob.len;
        if (i % 512 == 511) {
            must_do(history_commit(s, &err), &err);
            must_do(history_begin(s, &err), &err);
        }
    }
    must_do(history_commit(s, &err), &err);
    must_do(db_checkpoint(db, SQLITE_CHECKPOINT_TRUNCATE, &err), &err);
}

/* The last deliveries of everyone, of random ids: nothing in them repeats. */
static void put_deliveries(struct sqlite_store *s, const struct user *users, uint32_t n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    static char ids[DELIVERIES][ITEM_BYTES];
    struct store_delivery list[DELIVERIES];
    struct historian *h = &s->historian;
    struct err err = {0};
    uint64_t random = 1;
    uint64_t id = 1000000;
    must_do(history_begin(s, &err), &err);
    for (uint32_t i = 0; i < n; i++) {
        for (int d = 0; d < DELIVERIES; d++) {
            for (int c = 0; c < ITEM_BYTES; c++) {
                ids[d][c] = letters[random_below(&random, 64)];
            }
            list[d] = (struct store_delivery){
                .stamp = delivered_stamp(clock_wall_ms() - d / 10 * 3600000, (uint64_t)(DELIVERIES - d)),
                .hash = (uint64_t)d,
                .item = slice_of(ids[d], ITEM_BYTES)};
        }
        id += 1000;
        struct delivered sent = {.list = list, .n = DELIVERIES};
        delivered_unite(&sent, DELIVERIES);
        buf_clear(&h->blob);
        must(delivered_pack(&h->codec, &sent, &h->blob) == 0, "deliveries");
        sqlite3_stmt *stmt = db_stmt(&h->db, SQL_DELIVERED_PUT, &err);
        must(stmt != NULL, err.text);
        sqlite3_bind_int64(stmt, 1, users[i].key);
        sqlite3_bind_blob(stmt, 2, h->blob.data, (int)h->blob.len, SQLITE_STATIC);
        must_do(db_run(&h->db, stmt, &err), &err);
    }
    must_do(history_commit(s, &err), &err);
}

static void write_month(const struct world *w, const struct user *users, uint32_t n, int m, bool deliveries)
{
    struct sqlite_store *s = calloc(1, sizeof *s);
    struct err err = {0};
    must(s != NULL, "out of memory");
    s->cfg = &w->cfg;
    must_do(db_open(&s->historian.db, w->cfg.data, "history", NULL, DB_WRITE_NORMAL, &err), &err);
    int month = month_of_ms(clock_wall_ms());
    for (uint32_t round = 0; round < ROUNDS; round++) {
        write_round(s, users, n, m, month, round);
    }
    if (deliveries) {
        put_deliveries(s, users, n);
    }
    db_close(&s->historian.db);
    buf_free(&s->historian.blob);
    delivered_codec_free(&s->historian.codec);
    free(s);
}

static void start(struct world *w)
{
    struct err err = {0};
    must_do(world_start(w, &err), &err);
}

/* Two slots of an hour's plays: one flushed, one open. */
static uint64_t stage(struct world *w, const struct user *users, uint32_t n)
{
    struct err err = {0};
    uint64_t all = 0;
    uint64_t plays = 0;
    uint64_t random = 5;
    for (uint32_t i = 0; i < n; i++) {
        all += users[i].in_all;
    }
    uint64_t an_hour = all / MONTHS / 720;
    for (int slot = 0; slot < 2; slot++) {
        for (uint64_t i = 0; i < an_hour; i++, plays++) {
            char id[ITEM_BYTES + 1];
            snprintf(id, sizeof id, "item%021" PRIu64, random_next(&random));
            const struct slice item = slice_of(id, ITEM_BYTES);
            world_record(w,
                         &(struct world_event){.kind = STORE_PLAY,
                                               .at_ms = clock_wall_ms(),
                                               .user = slice_str(users[random_below(&random, n)].id),
                                               .items = &item,
                                               .n = 1},
                         1, NULL, NULL);
        }
        must_do(world_wait(w, NULL, &err), &err);
        if (slot == 0) {
            world_flush(w);
            must_do(world_wait(w, NULL, &err), &err);
        }
    }
    return plays;
}

static int64_t file_bytes(const struct world *w, const char *name)
{
    char path[PATH_MAX + 32];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", w->cfg.data, name);
    must(stat(path, &st) == 0, path);
    return st.st_size;
}

static void print_tables(const struct world *w, uint64_t plays)
{
    struct db db;
    struct err err = {0};
    sqlite3_stmt *stmt = NULL;
    must_do(db_open(&db, w->cfg.data, "history", NULL, DB_READ, &err), &err);
    must(sqlite3_prepare_v2(db.handle,
                            "SELECT name, sum(pgsize), sum(pgsize - unused) FROM dbstat GROUP BY name UNION ALL SELECT "
                            "'free pages', freelist_count * page_size, 0 FROM pragma_freelist_count, pragma_page_size",
                            -1, &stmt, NULL) == SQLITE_OK,
         sqlite3_errmsg(db.handle));
    printf("\n%-22s %14s %8s %12s\n", "history.db", "bytes", "filled", "bytes a play");
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        double bytes = sqlite3_column_double(stmt, 1);
        if (bytes >= 65536) {
            printf("%-22s %14.0f %6.1f %% %12.3f\n", sqlite3_column_text(stmt, 0), bytes,
                   100 * sqlite3_column_double(stmt, 2) / bytes, bytes / (double)plays);
        }
    }
    sqlite3_finalize(stmt);
    db_close(&db);
}

static void make_page_size(const struct world *w, int64_t page)
{
    char path[PATH_MAX + 32];
    char sql[64];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/history.db", w->cfg.data);
    snprintf(sql, sizeof sql, "PRAGMA page_size = %" PRId64 "; VACUUM", page);
    must(sqlite3_open(path, &db) == SQLITE_OK && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "page size");
    sqlite3_close(db);
}

static void measure_mix(struct world *w, uint32_t n, int64_t page, bool deliveries)
{
    struct err err = {0};
    if (page > 0) {
        make_page_size(w, page);
    }
    int64_t now = INT64_C(1777636800000); /* 2026-05-01T12:00Z */
    clock_test_start(now);
    start(w);
    struct user *users = make_users(n, w->dedup.seed);
    for (int m = 0; m < MONTHS; m++) {
        world_stop(w);
        write_month(w, users, n, m, deliveries && m == MONTHS - 1);
        start(w);
        if (m < MONTHS - 1) {
            /* The night of sealing, and on to the middle of the next month. */
            int64_t night = month_start_ms(month_of_ms(clock_wall_ms()) + 1) + INT64_C(26) * 3600 * 1000;
            while (clock_wall_ms() < night) {
                int64_t step = night - clock_wall_ms();
                must_do(world_advance(w, step < 86400000 ? step : 86400000, &err), &err);
            }
            must_do(world_advance(w, 12 * 3600 * 1000, &err), &err);
        }
    }
    uint64_t plays = stage(w, users, n);
    for (uint32_t i = 0; i < n; i++) {
        plays += users[i].in_all;
    }
    world_stop(w);
    int64_t history = file_bytes(w, "history.db");
    int64_t staging = file_bytes(w, "staging.db");
    char mix[64] = "60 % with 100 plays in all, 30 % 1,000, 10 % 20,000";
    if (plays_a_month > 0) {
        snprintf(mix, sizeof mix, "%" PRIu32 " plays a user and month", plays_a_month);
    }
    printf("%" PRIu32 " users (%s), %" PRIu64 " plays retained, %d months%s\n", n, mix, plays, MONTHS,
           deliveries ? ", 100 deliveries a user" : "");
    printf("history.db %" PRId64 " + staging.db %" PRId64 " = %" PRId64 " bytes: %.3f a play, %.0f a user\n", history,
           staging, history + staging, (double)(history + staging) / (double)plays,
           (double)(history + staging) / (double)n);
    print_tables(w, plays);
    free(users);
}

/* --- by size --- */

struct by_size {
    double live, sealed, packed; /* bytes a play: of a blob, of a blob, of the pages of a packed table */
};

static struct by_size measure_size(uint32_t n, double error_rate, int64_t window)
{
    enum { POSITIONS = 400000 };
    struct by_size out = {0};
    struct buf blob = {0};
    struct err err = {0};
    uint32_t rows = POSITIONS / n < 8 ? 8 : POSITIONS / n;
    char folder[] = "/tmp/unseen-size-XXXXXX";
    char sql[1024];
    struct db db;
    must(mkdtemp(folder) != NULL, "no folder");
    must_do(db_open(&db, folder, "table", NULL, DB_WRITE_NORMAL, &err), &err);
    db_expand(sql_file_month, 0, sql, sizeof sql);
    must_do(db_exec(&db, sql, &err), &err);
    must_do(db_begin(&db, &err), &err);
    uint64_t *hashes = malloc(n * sizeof *hashes);
    must(hashes != NULL, "out of memory");
    uint64_t random = n;
    struct arena arena = {0};
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < n; i++) {
            hashes[i] = random_next(&random);
        }
        struct filter f = {0};
        arena_reset(&arena);
        must(grown_add(&f, hashes, n, ROUNDS, coarse_max, error_budget_live_max(error_rate), &arena) == 0, "add");
        buf_clear(&blob);
        must(filter_encode(&f, &blob) == 0, "encode");
        out.live += (double)blob.len;
        must(error_budget_seal(&f, error_rate, window, &arena) == 1, "seal");
        buf_clear(&blob);
        must(filter_encode(&f, &blob) == 0, "encode");
        out.sealed += (double)blob.len;
        put_row(&db, 0, INT64_MIN + (int64_t)(r * (UINT64_MAX / rows)), n, &blob);
    }
    must_do(db_commit(&db, &err), &err);
    int64_t bytes = 0;
    must_do(db_int(&db, "SELECT sum(pgsize) FROM dbstat WHERE name GLOB 'plays_*'", &bytes, &err), &err);
    out.packed = (double)bytes;
    db_close(&db);
    world_remove_folder(folder);
    double all = (double)rows * n;
    out.live /= all;
    out.sealed /= all;
    out.packed /= all;
    arena_free(&arena);
    buf_free(&blob);
    free(hashes);
    return out;
}

static void print_sizes(const struct config *cfg)
{
    static const uint32_t sizes[] = {3, 10, 30, 100, 1000, 10000, 30000};
    double share = error_budget_share(cfg->error_rate, cfg->window);
    printf("\nBytes a play, one sealed month of a user (error_rate %g over a window of %" PRId64
           " full months: %.3g a month)\n\n",
           cfg->error_rate, cfg->window, share);
    printf("| plays a month | in the file | the blob | before its sealing | classic Bloom, same error | limit |\n"
           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct by_size s = measure_size(sizes[i], cfg->error_rate, cfg->window);
        printf("| %" PRIu32 " | %.2f | %.2f | %.2f | %.2f | %.2f |\n", sizes[i], s.packed, s.sealed, s.live,
               -log(share) / (log(2) * log(2)) / 8, -log2(share) / 8);
    }
}

int main(int argc, char **argv)
{
    static struct world w;
    char made[] = "/tmp/unseen-size-XXXXXX";
    uint32_t users = 10000;
    int64_t page = 0;
    bool deliveries = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--users") == 0 && i + 1 < argc) {
            users = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--page") == 0 && i + 1 < argc) {
            page = strtoll(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--plays-a-month") == 0 && i + 1 < argc) {
            plays_a_month = (uint32_t)strtoul(argv[++i], NULL, 10);
            must(plays_a_month > 0 && plays_a_month <= PLAYS_A_MONTH_MAX, "--plays-a-month: expected 1 to 8,000");
        } else if (strcmp(argv[i], "--even") == 0) {
            even = true;
        } else if (strcmp(argv[i], "--deliveries") == 0) {
            deliveries = true;
        } else {
            fprintf(stderr,
                    "usage: bench/size [--users N] [--plays-a-month N] [--page BYTES] [--even] [--deliveries]\n");
            return 2;
        }
    }
    must(users > 0, "no users");
    must(mkdtemp(made) != NULL, "no folder");
    log_set_level(LOG_LEVEL_WARN);
    world_init(&w, made, NULL);
    coarse_max = error_budget_coarse_max(w.cfg.error_rate);
    measure_mix(&w, users, page, deliveries);
    if (!deliveries && plays_a_month == 0) {
        print_sizes(&w.cfg);
    }
    world_remove_folder(made);
    return 0;
}
