/* A data folder with many users in minutes: `make bench/fill && bench/fill --data DIR [--users N] [--page BYTES] ...`.
 *
 * Blobs go through the codec and the store's own statements straight into history.db, in key order, month by month,
 * without a journal (the folder must be new: a fill that was cut off is thrown away). Users and their plays are those
 * of `unseen bench --prepare` with the same --users, --prefix, --plays-per-month and --months, so that its questions,
 * --verify too, find what they expect. With --spread every user's months differ in size, as they do in life. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/bench/bench_ids.h"
#include "filter/error_budget.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"

enum { ROWS_A_TRANSACTION = 20000, NAME_SIZE = BENCH_PREFIX_MAX + 32, SPREAD_MAX = 100 };

struct fill {
    const char *data, *prefix;
    uint32_t users, plays_per_month, months, spread, page;
    uint64_t seed;
    struct user *by_key;
    uint32_t *hashed; /* of the month's items, in the order of bench_item_id() */
    uint32_t *positions, *scratch;
    struct arena arena;
    uint32_t coarse_max;
    struct buf blob;
};

struct user {
    int64_t key;
    uint32_t number;
};

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench/fill: %s\n", what);
        exit(1);
    }
}

static void must_do(int result, const struct err *err)
{
    must(result >= 0, err->text);
}

static struct slice user_name(const struct fill *f, uint32_t number, char out[NAME_SIZE])
{
    int len = snprintf(out, NAME_SIZE, "%s:%0*" PRIu32, f->prefix, BENCH_USER_DIGITS, number);
    return slice_of(out, (size_t)len);
}

static int by_key(const void *a, const void *b)
{
    const struct user *x = a;
    const struct user *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static void make_users(struct fill *f)
{
    char name[NAME_SIZE];
    f->by_key = calloc(f->users, sizeof *f->by_key);
    must(f->by_key != NULL, "out of memory for the users");
    for (uint32_t i = 0; i < f->users; i++) {
        f->by_key[i] = (struct user){hash_user_key(f->seed, user_name(f, i, name)), i};
    }
    qsort(f->by_key, f->users, sizeof *f->by_key, by_key);
}

/* A file of another page size than the store would make. */
static void make_page_size(const struct fill *f)
{
    char path[PATH_MAX + 16];
    char sql[64];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/history.db", f->data);
    snprintf(sql, sizeof sql, "PRAGMA page_size = %" PRIu32 "; VACUUM", f->page);
    must(mkdir(f->data, 0777) == 0 || errno == EEXIST, f->data);
    must(sqlite3_open(path, &db) == SQLITE_OK && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "page size");
    sqlite3_close(db);
}

/* The store makes both files, and draws the seed. */
static void make_folder(struct fill *f, struct config *cfg)
{
    struct err err = {0};
    struct store *store;
    config_defaults(cfg);
    snprintf(cfg->data, sizeof cfg->data, "%s", f->data);
    const struct sqlite_store_options options = {.vfs = NULL};
    must_do(sqlite_store_open(cfg, &options, &store, &err), &err);
    f->seed = store->ops->seed(store);
    store->ops->close(store);
}

/* Between 100 - spread and 100 + spread percent of the mean, by chance. */
static uint32_t plays_of(const struct fill *f, int64_t key, uint32_t month)
{
    uint64_t chance = (uint64_t)bench_item_id((uint64_t)key + month) % (2 * f->spread + 1);
    return (uint32_t)((uint64_t)f->plays_per_month * (100 - f->spread + chance) / 100);
}

static void hash_items(struct fill *f, uint32_t month, uint32_t n)
{
    char item[BENCH_ITEM_LEN];
    for (uint32_t i = 0; i < n; i++) {
        bench_write_item(item, bench_item_id((uint64_t)month * f->plays_per_month + i));
        f->hashed[i] = filter_position(hash_id(f->seed, slice_of(item, sizeof item)), FILTER_LIVE_M);
    }
}

static uint32_t encode(struct fill *f, uint32_t n)
{
    memcpy(f->positions, f->hashed, n * sizeof *f->positions);
    struct filter filter = {0};
    arena_reset(&f->arena);
    n = filter_sort(f->positions, n, f->scratch);
    must(filter_add(&filter, f->positions, n, f->coarse_max, &f->arena) == 0, "add");
    buf_clear(&f->blob);
    must(filter_encode(&filter, &f->blob) == 0, "encode");
    return (uint32_t)filter_items(&filter);
}

static void put_month(struct sqlite_store *s, int month, int64_t key, uint32_t items, const struct buf *blob)
{
    struct db *db = &s->historian.db;
    struct err err = {0};
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_PLAY_PUT, month, &err);
    must(stmt != NULL, err.text);
    sqlite3_bind_int64(stmt, 1, key);
    sqlite3_bind_int64(stmt, 2, items);
    sqlite3_bind_blob(stmt, 3, blob->data, (int)blob->len, SQLITE_STATIC);
    must_do(db_run(db, stmt, &err), &err);
    must_do(month_count(s, month, 1, items, (int64_t)blob->len, &err), &err);
}

static void put_user(struct sqlite_store *s, const struct fill *f, const struct user *u, int month)
{
    struct db *db = &s->historian.db;
    struct err err = {0};
    char name[NAME_SIZE];
    sqlite3_stmt *stmt = db_stmt(db, SQL_USER_PUT, &err);
    must(stmt != NULL, err.text);
    sqlite3_bind_int64(stmt, 1, u->key);
    db_bind_id(stmt, 2, user_name(f, u->number, name));
    sqlite3_bind_int(stmt, 3, month);
    must_do(db_run(db, stmt, &err), &err);
}

static void next_row(struct sqlite_store *s, uint32_t i)
{
    struct err err = {0};
    if (i % ROWS_A_TRANSACTION == ROWS_A_TRANSACTION - 1) {
        must_do(history_commit(s, &err), &err);
        must_do(history_begin(s, &err), &err);
    }
}

static void write_users(struct sqlite_store *s, const struct fill *f, int month)
{
    struct err err = {0};
    must_do(history_begin(s, &err), &err);
    for (uint32_t i = 0; i < f->users; i++) {
        put_user(s, f, &f->by_key[i], month);
        next_row(s, i);
    }
    must_do(history_commit(s, &err), &err);
}

static uint64_t write_month(struct sqlite_store *s, struct fill *f, uint32_t m, int month)
{
    struct err err = {0};
    uint32_t most = f->plays_per_month * (100 + f->spread) / 100;
    uint64_t plays = 0;
    uint32_t n = 0;
    hash_items(f, m, most);
    if (f->spread == 0) {
        n = encode(f, most);
    }
    must_do(history_begin(s, &err), &err);
    must_do(month_ensure(s, month, &err), &err);
    for (uint32_t i = 0; i < f->users; i++) {
        int64_t key = f->by_key[i].key;
        if (f->spread > 0) {
            n = encode(f, plays_of(f, key, m));
        }
        put_month(s, month, key, n, &f->blob);
        plays += n;
        next_row(s, i);
    }
    must_do(history_commit(s, &err), &err);
    return plays;
}

static void fill(struct fill *f)
{
    static struct config cfg;
    struct err err = {0};
    int64_t began = clock_figures_us();
    if (f->page > 0) {
        make_page_size(f);
    }
    make_folder(f, &cfg);
    f->coarse_max = error_budget_coarse_max(cfg.error_rate);
    make_users(f);
    size_t most = (size_t)f->plays_per_month * (100 + f->spread) / 100 + 1;
    f->hashed = malloc(most * sizeof *f->hashed);
    f->positions = malloc(most * sizeof *f->positions);
    f->scratch = malloc(most * sizeof *f->scratch);
    struct sqlite_store *s = calloc(1, sizeof *s);
    must(s != NULL && f->hashed != NULL && f->positions != NULL && f->scratch != NULL, "out of memory");
    s->cfg = &cfg;
    struct db *db = &s->historian.db;
    must_do(db_open(db, cfg.data, "history", NULL, DB_WRITE_NORMAL, &err), &err);
    must_do(db_exec(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", &err), &err);
    int now = month_of_ms(clock_wall_ms());
    uint64_t plays = 0;
    write_users(s, f, now);
    for (uint32_t m = 0; m < f->months; m++) {
        plays += write_month(s, f, m, now - (int)m);
    }
    must_do(db_exec(db, "PRAGMA journal_mode = WAL", &err), &err);
    int64_t pages = 0;
    must_do(db_int(db, "PRAGMA page_count", &pages, &err), &err);
    double bytes = (double)pages * (double)db->page_size;
    db_close(db);
    printf("%" PRIu32 " users, %" PRIu64 " plays in %" PRIu32 " months: history.db %.1f MiB, %.2f bytes a play, %.0f a "
           "user; in %.1f s\n",
           f->users, plays, f->months, bytes / 1048576, bytes / (double)plays, bytes / f->users,
           (double)(clock_figures_us() - began) / 1e6);
}

static uint32_t number(const char *text, uint32_t most)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || n > most) {
        fprintf(stderr, "bench/fill: '%s': expected a whole number up to %" PRIu32 "\n", text, most);
        exit(2);
    }
    return (uint32_t)n;
}

int main(int argc, char **argv)
{
    struct fill f = {.prefix = "bench", .users = 1000, .plays_per_month = 200, .months = 4};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--data") == 0) {
            f.data = value;
        } else if (strcmp(argv[i], "--prefix") == 0) {
            f.prefix = value;
        } else if (strcmp(argv[i], "--users") == 0) {
            f.users = number(value, 100 * 1000 * 1000);
        } else if (strcmp(argv[i], "--plays-per-month") == 0) {
            f.plays_per_month = number(value, 10 * 1000 * 1000);
        } else if (strcmp(argv[i], "--months") == 0) {
            f.months = number(value, 120);
        } else if (strcmp(argv[i], "--page") == 0) {
            f.page = number(value, 65536);
        } else if (strcmp(argv[i], "--spread") == 0) {
            f.spread = number(value, SPREAD_MAX);
        } else {
            f.data = NULL;
            break;
        }
    }
    if (f.data == NULL || f.data[0] == '\0' || f.users == 0 || strlen(f.prefix) > BENCH_PREFIX_MAX) {
        fprintf(stderr,
                "usage: bench/fill --data DIR [--users N] [--plays-per-month N] [--months N] [--spread PERCENT] "
                "[--prefix TEXT] [--page BYTES]\n");
        return 2;
    }
    log_set_level(LOG_LEVEL_WARN);
    fill(&f);
    free(f.by_key);
    free(f.hashed);
    free(f.positions);
    free(f.scratch);
    buf_free(&f.blob);
    arena_free(&f.arena);
    return 0;
}
