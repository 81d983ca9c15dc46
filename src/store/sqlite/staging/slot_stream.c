/* Reading a slot side by side. The ids of each table are cut into ranges, numbered through; of n threads each reads
 * every n-th range, and puts its batches into a queue of its own. The caller takes them range by range, so that rows
 * come in the order of their ids, whichever thread read them. A queue holds more than a range: so while one range is
 * taken, all others who have a turn can read theirs. Ranges without rows are passed over, so that a gap in the ids
 * costs nothing.
 *
 * A thread does not step from row to row: a statement gives all rows with SLOT_BATCH ids to a function, which costs a
 * quarter less than stepping. The caller who reads alone steps, since their ids may be far apart.
 */
#include "store/sqlite/staging/slot_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANGE = SLOT_BATCH * SLOT_AHEAD / 2, /* ids */
    CACHE = -256,                        /* KiB of a thread's SQLite: no page is read twice */
};

struct reader {
    struct slot_stream *stream;
    struct db own;
    struct db *db;
    struct staged_months months;
    int64_t range; /* its number: the one under way, or the next */
    int table;     /* that it is of */
    bool in_range, had_rows;
    int64_t next, last;         /* of a thread: ids of the range under way that are still to be read */
    struct slot_batch *filling; /* by take_row() */
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t wake;    /* either side waits for the other, never both */
    uint64_t filled, taken; /* batches */
    bool stop, ended;       /* ended: with err, or behind the last range */
    struct err err;
    struct slot_batch *ahead[SLOT_AHEAD];
};

struct slot_stream {
    const char *folder;
    struct db *db;
    uint64_t seed;
    struct slot_table_rows tables[SLOT_PARTS_MAX];
    int64_t begins[SLOT_PARTS_MAX + 1]; /* the first range of each, and of none */
    int n_tables;
    int readers; /* 0: the caller reads, each table in one range */
    int n_started;
    int64_t range;        /* the one that is taken */
    struct reader *taken; /* whose batch the caller has; NULL: none's */
    bool range_ended;
    struct reader reader[];
};

/* --- reading --- */

static void copy_ids(struct slot_batch *batch, struct staged_row *row)
{
    char *to = batch->ids + batch->bytes;
    row->user.data = memcpy(to, row->user.data, row->user.len);
    row->item.data = memcpy(to + row->user.len, row->item.data, row->item.len);
    batch->bytes += row->user.len + row->item.len;
}

static sqlite3_stmt *range_stmt(struct reader *r, struct err *err)
{
    return db_stmt_for(r->db, SQL_STAGED_RANGE, r->stream->tables[r->table].table, err);
}

/* The first id of the range under way. */
static int64_t range_from(const struct reader *r)
{
    const struct slot_stream *stream = r->stream;
    return stream->tables[r->table].first + (r->range - stream->begins[r->table]) * RANGE;
}

static void begin_batch(const struct reader *r, struct slot_batch *batch)
{
    batch->n = batch->bytes = 0;
    batch->range = r->range;
    batch->table = r->table;
}

static void end_batch(struct reader *r, struct slot_batch *batch, bool range_ends)
{
    batch->range_ends = range_ends;
    r->in_range = !range_ends;
    r->had_rows = r->had_rows || batch->n > 0;
}

static void note_row(struct slot_batch *batch, const char *problem)
{
    if (problem == NULL) {
        copy_ids(batch, &batch->at[batch->n]);
    }
    batch->problem[batch->n++] = problem;
}

/* Fills a batch from the table under way, which is one range. */
static int fill(struct reader *r, struct slot_batch *batch, struct err *err)
{
    begin_batch(r, batch);
    sqlite3_stmt *stmt = range_stmt(r, err);
    if (stmt != NULL && !r->in_range) {
        sqlite3_bind_int64(stmt, 1, r->stream->tables[r->table].first);
        sqlite3_bind_int64(stmt, 2, r->stream->tables[r->table].last);
        r->had_rows = false;
    }
    int result = 1;
    while (batch->n < SLOT_BATCH && (result = db_step(r->db, stmt, err)) == 1) {
        note_row(batch, staged_row_read(stmt, r->stream->seed, &r->months, &batch->at[batch->n]));
    }
    end_batch(r, batch, result != 1);
    return result < 0 ? result : 0;
}

/* take_staged(). There are no more rows than ids, but in a table that is damaged. */
static void take_row(sqlite3_context *context, int n, sqlite3_value **values)
{
    (void)n;
    struct reader *r = sqlite3_user_data(context);
    struct slot_batch *batch = r->filling;
    if (batch->n == SLOT_BATCH) {
        sqlite3_result_error_code(context, SQLITE_CORRUPT);
        return;
    }
    note_row(batch, staged_row_take(values, r->stream->seed, &r->months, &batch->at[batch->n]));
}

static void took_all(sqlite3_context *context)
{
    (void)context;
}

static void begin_range(struct reader *r)
{
    int64_t last = r->stream->tables[r->table].last;
    r->next = range_from(r);
    r->last = last - r->next < RANGE ? last : r->next + RANGE - 1;
    r->had_rows = false;
}

/* The same by a thread, from SLOT_BATCH ids of the range under way. */
static int fill_ahead(struct reader *r, struct slot_batch *batch, struct err *err)
{
    begin_batch(r, batch);
    if (!r->in_range) {
        begin_range(r);
    }
    bool ends = r->last - r->next < SLOT_BATCH;
    sqlite3_stmt *stmt = db_stmt_for(r->db, SQL_STAGED_TAKE, r->stream->tables[r->table].table, err);
    if (stmt == NULL) {
        return err->code;
    }
    sqlite3_bind_int64(stmt, 1, r->next);
    sqlite3_bind_int64(stmt, 2, ends ? r->last : r->next + SLOT_BATCH - 1);
    r->filling = batch;
    int result = db_step(r->db, stmt, err);
    if (result == 1) {
        sqlite3_reset(stmt);
    }
    r->next += ends ? 0 : SLOT_BATCH;
    end_batch(r, batch, ends);
    return result < 0 ? result : 0;
}

/* The first range behind the one under way that may have rows: the one of the table's next row, or its next table's
 * first. *out: unchanged when there is none. */
static int find_range(struct reader *r, int64_t *out, struct err *err)
{
    const struct slot_stream *stream = r->stream;
    const struct slot_table_rows *table = &stream->tables[r->table];
    sqlite3_stmt *stmt = db_stmt_for(r->db, SQL_STAGED_NEXT, table->table, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, range_from(r));
    }
    int result = db_step(r->db, stmt, err);
    if (result < 1) {
        return result;
    }
    int64_t id = sqlite3_column_int64(stmt, 0); /* 0: NULL, no row has a higher one */
    sqlite3_reset(stmt);
    *out = id == 0 || id > table->last ? stream->begins[r->table + 1]
                                       : stream->begins[r->table] + (id - table->first) / RANGE;
    return 0;
}

/* The reader's next range, behind one that had rows, or the first that may have some. 1; 0: there is none. */
static int next_range(struct reader *r, struct err *err)
{
    const struct slot_stream *stream = r->stream;
    if (!r->had_rows) {
        int64_t next = r->range + 1;
        int result = find_range(r, &next, err);
        if (result < 0) {
            return result;
        }
        r->range += next > r->range ? (next - r->range - 1) / stream->readers * stream->readers : 0;
    }
    r->range += stream->readers;
    if (r->range >= stream->begins[stream->n_tables]) {
        return 0;
    }
    while (r->range >= stream->begins[r->table + 1]) {
        r->table++;
    }
    return 1;
}

/* --- a thread --- */

/* Waits for room. False: the stream is being closed. */
static bool wait_for_room(struct reader *r)
{
    pthread_mutex_lock(&r->mutex);
    while (!r->stop && r->filled - r->taken == SLOT_AHEAD) {
        pthread_cond_wait(&r->wake, &r->mutex);
    }
    bool go_on = !r->stop;
    pthread_mutex_unlock(&r->mutex);
    return go_on;
}

static void put_batch(struct reader *r)
{
    pthread_mutex_lock(&r->mutex);
    r->filled++;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}

static int read_all(struct reader *r, struct err *err)
{
    int more = 1;
    while (more == 1 && wait_for_room(r)) {
        struct slot_batch *batch = r->ahead[r->filled % SLOT_AHEAD];
        more = fill_ahead(r, batch, err);
        if (more < 0) {
            break;
        }
        if (r->had_rows) {
            put_batch(r); /* the caller has it: what it says must not be read any more */
        }
        more = r->in_range ? 1 : next_range(r, err);
    }
    return more < 0 ? more : 0;
}

static int add_function(struct reader *r, struct err *err)
{
    int flags = SQLITE_UTF8 | SQLITE_DIRECTONLY; /* no view or trigger of the file may call it */
    int rc = sqlite3_create_function_v2(r->db->handle, "take_staged", STAGED_ROW_VALUES, flags, r, NULL, take_row,
                                        took_all, NULL);
    return rc == SQLITE_OK ? 0 : db_error(r->db, err, "take_staged()");
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    const struct slot_stream *stream = r->stream;
    struct err err = {0};
    int result = db_open(&r->own, stream->folder, "staging", stream->db->vfs, DB_READ, &err);
    if (result == 0) {
        if ((result = add_function(r, &err)) == 0 && (result = db_pragma(r->db, "cache_size", CACHE, &err)) == 0 &&
            (result = db_begin_read(r->db, &err)) == 0) {
            result = db_end_read(r->db, read_all(r, &err), &err);
        }
        db_close(&r->own);
    }
    pthread_mutex_lock(&r->mutex);
    r->ended = true;
    if (result < 0) {
        r->err = err;
    }
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* --- the caller --- */

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while recovering staged rows");
}

static int prepare(struct slot_stream *stream, int i, struct err *err)
{
    struct reader *r = &stream->reader[i];
    r->stream = stream;
    r->db = stream->readers > 0 ? &r->own : stream->db;
    r->range = i;
    while (stream->readers > 0 && r->range >= stream->begins[r->table + 1]) {
        r->table++;
    }
    for (int k = 0; k < (stream->readers > 0 ? SLOT_AHEAD : 1); k++) {
        r->ahead[k] = malloc(sizeof *r->ahead[k]);
        if (r->ahead[k] == NULL) {
            return out_of_memory(err);
        }
    }
    return 0;
}

static int start(struct slot_stream *stream, struct reader *r, struct err *err)
{
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    int rc = pthread_create(&r->thread, NULL, reader_main, r);
    if (rc != 0) {
        pthread_cond_destroy(&r->wake);
        pthread_mutex_destroy(&r->mutex);
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
    }
    stream->n_started++;
    return 0;
}

/* As many as there are cores: adding takes one of them, but not all of its time. */
static int threads_for(const struct slot_table_rows *tables, int n)
{
    uint64_t span = 0;
    for (int i = 0; i < n; i++) {
        uint64_t last = (uint64_t)tables[i].last - (uint64_t)tables[i].first;
        if (last > UINT32_MAX) {
            return 0;
        }
        span += last;
    }
    if (span < SLOT_THREADED) {
        return 0;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > SLOT_READERS ? SLOT_READERS : (int)cores;
}

static void take_tables(struct slot_stream *stream, const struct slot_table_rows *tables, int n)
{
    stream->n_tables = n;
    for (int i = 0; i < n; i++) {
        int64_t ranges = stream->readers > 0 ? (tables[i].last - tables[i].first) / RANGE + 1 : 1;
        stream->tables[i] = tables[i];
        stream->begins[i + 1] = stream->begins[i] + ranges;
    }
}

int slot_stream_open(struct db *db, const char *folder, uint64_t seed, const struct slot_table_rows *tables,
                     int n_tables, struct slot_stream **out, struct err *err)
{
    int readers = threads_for(tables, n_tables);
    int n = readers > 0 ? readers : 1;
    struct slot_stream *stream = calloc(1, sizeof *stream + (size_t)n * sizeof stream->reader[0]);
    *out = NULL;
    if (stream == NULL) {
        return out_of_memory(err);
    }
    *stream = (struct slot_stream){
        .folder = folder, .db = db, .seed = seed, .readers = readers, .range = -1, .range_ended = true};
    take_tables(stream, tables, n_tables);
    int result = 0;
    for (int i = 0; i < n && result == 0; i++) {
        result = prepare(stream, i, err);
    }
    for (int i = 0; i < readers && result == 0; i++) {
        result = start(stream, &stream->reader[i], err);
    }
    if (result < 0) {
        slot_stream_close(stream);
        return result;
    }
    *out = stream;
    return 0;
}

static int read_here(struct slot_stream *stream, struct slot_batch **batch, struct err *err)
{
    struct reader *r = &stream->reader[0];
    if (r->ended) {
        return 0;
    }
    *batch = r->ahead[0];
    int result = fill(r, *batch, err);
    if (result == 0 && (*batch)->range_ends && r->table + 1 < stream->n_tables) {
        r->table++;
        r->range++;
    } else {
        r->ended = result < 0 || (*batch)->range_ends;
    }
    return result < 0 ? result : 1;
}

/* Gives the caller's batch back. */
static void give_back(struct slot_stream *stream)
{
    struct reader *r = stream->taken;
    if (r == NULL) {
        return;
    }
    stream->taken = NULL;
    pthread_mutex_lock(&r->mutex);
    r->taken++;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}

/* Waits for the reader's next batch, which is *batch then. Returns its range, or the range at which the reader has
 * failed
 * (*batch is NULL); INT64_MAX: it has read all of its own. */
static int64_t wait_for_range(struct reader *r, struct slot_batch **batch)
{
    pthread_mutex_lock(&r->mutex);
    while (r->filled == r->taken && !r->ended) {
        pthread_cond_wait(&r->wake, &r->mutex);
    }
    *batch = r->filled > r->taken ? r->ahead[r->taken % SLOT_AHEAD] : NULL;
    int64_t range = *batch != NULL ? (*batch)->range : r->err.code < 0 ? r->range : INT64_MAX;
    pthread_mutex_unlock(&r->mutex);
    return range;
}

/* Who has the next range: mostly it is the one behind the last, and its reader's turn. NULL: there is none. */
static struct reader *choose(struct slot_stream *stream)
{
    struct reader *lowest = &stream->reader[(stream->range + (stream->range_ended ? 1 : 0)) % stream->readers];
    if (!stream->range_ended) {
        return lowest;
    }
    struct slot_batch *batch;
    int64_t range = wait_for_range(lowest, &batch);
    if (range != stream->range + 1) {
        for (int i = 0; i < stream->readers; i++) {
            int64_t other = wait_for_range(&stream->reader[i], &batch);
            if (other < range) {
                range = other;
                lowest = &stream->reader[i];
            }
        }
    }
    if (range == INT64_MAX) {
        return NULL;
    }
    stream->range = range;
    stream->range_ended = false;
    return lowest;
}

int slot_stream_next(struct slot_stream *stream, struct slot_batch **batch, struct err *err)
{
    if (stream->readers == 0) {
        return read_here(stream, batch, err);
    }
    give_back(stream);
    struct reader *r = choose(stream);
    if (r == NULL) {
        return 0;
    }
    wait_for_range(r, batch);
    if (*batch == NULL) { /* it has ended, by an error */
        *err = r->err;
        return err->code;
    }
    stream->taken = r;
    stream->range_ended = (*batch)->range_ends;
    return 1;
}

void slot_stream_close(struct slot_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    for (int i = 0; i < stream->n_started; i++) {
        struct reader *r = &stream->reader[i];
        pthread_mutex_lock(&r->mutex);
        r->stop = true;
        pthread_cond_signal(&r->wake);
        pthread_mutex_unlock(&r->mutex);
        pthread_join(r->thread, NULL);
        pthread_cond_destroy(&r->wake);
        pthread_mutex_destroy(&r->mutex);
    }
    for (int i = 0; i < (stream->readers > 0 ? stream->readers : 1); i++) {
        for (int k = 0; k < SLOT_AHEAD; k++) {
            free(stream->reader[i].ahead[k]);
        }
    }
    if (stream->readers == 0) { /* it may be closed amid a range */
        struct err err = {0};
        sqlite3_reset(range_stmt(&stream->reader[0], &err));
    }
    free(stream);
}
