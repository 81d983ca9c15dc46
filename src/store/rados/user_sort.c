/* Records are 8 bytes of key, a length byte and the id. A run is sorted by an index of offsets and written as a whole;
 * the last one stays in memory. Runs are united by looking at the first record of each: there are few. */
#include "store/rados/user_sort.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { HEAD = sizeof(int64_t) + 1, RECORD_MAX = HEAD + 255, READ_BYTES = 64 * 1024 };

struct run {
    off_t at, end; /* of what is in the file and was not read yet */
    struct buf bytes;
    size_t used; /* of the bytes */
};

struct user_sort {
    size_t memory;
    struct buf bytes, index; /* of the run in memory; of uint32_t */
    FILE *file;
    off_t file_end;
    struct run *runs;
    size_t n_runs, cap_runs;
    size_t next_in_memory;
    uint64_t count;
    bool any; /* the last one that was given */
    char last[RECORD_MAX];
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while users are sorted");
}

static int no_file(struct err *err)
{
    return err_set(err, errno == ENOSPC ? ERR_FULL : ERR_IO, "temporary file of users: %s", strerror(errno));
}

static size_t record_len(const char *record)
{
    return HEAD + (uint8_t)record[HEAD - 1];
}

static int compare(const char *a, const char *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    if (x != y) {
        return x < y ? -1 : 1;
    }
    size_t n = record_len(a), m = record_len(b);
    int order = memcmp(a + HEAD, b + HEAD, (n < m ? n : m) - HEAD);
    return order != 0 ? order : (n > m) - (n < m);
}

static int by_record(const void *a, const void *b, void *bytes)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return compare((const char *)bytes + x, (const char *)bytes + y);
}

static void sort_memory(struct user_sort *s)
{
    if (s->index.len > sizeof(uint32_t)) {
        qsort_r(s->index.data, s->index.len / sizeof(uint32_t), sizeof(uint32_t), by_record, s->bytes.data);
    }
}

static const char *record_in_memory(const struct user_sort *s, size_t i)
{
    uint32_t at;
    memcpy(&at, s->index.data + i * sizeof at, sizeof at);
    return s->bytes.data + at;
}

/* --- taking them in --- */

static int spill(struct user_sort *s, struct err *err)
{
    if (s->file == NULL && (s->file = tmpfile()) == NULL) {
        return no_file(err);
    }
    if (s->n_runs == s->cap_runs) {
        size_t cap = s->cap_runs > 0 ? 2 * s->cap_runs : 16;
        struct run *more = reallocarray(s->runs, cap, sizeof *more);
        if (more == NULL) {
            return no_memory(err);
        }
        s->runs = more;
        s->cap_runs = cap;
    }
    struct run *run = &s->runs[s->n_runs];
    *run = (struct run){.at = s->file_end, .end = s->file_end};
    sort_memory(s);
    for (size_t i = 0; i < s->index.len / sizeof(uint32_t); i++) {
        const char *record = record_in_memory(s, i);
        size_t len = record_len(record);
        if (fwrite(record, 1, len, s->file) != len) {
            return no_file(err);
        }
        run->end += (off_t)len;
    }
    if (fflush(s->file) != 0) {
        return no_file(err);
    }
    s->file_end = run->end;
    s->n_runs++;
    buf_clear(&s->bytes);
    buf_clear(&s->index);
    return 0;
}

int user_sort_add(struct user_sort *s, int64_t key, struct slice user, struct err *err)
{
    uint32_t at = (uint32_t)s->bytes.len;
    char len = (char)user.len;
    if (s->bytes.len + s->index.len + RECORD_MAX > s->memory && s->index.len > 0) {
        int result = spill(s, err);
        if (result < 0) {
            return result;
        }
        at = 0;
    }
    if (buf_add(&s->bytes, &key, sizeof key) < 0 || buf_add(&s->bytes, &len, 1) < 0 ||
        buf_add(&s->bytes, user.data, user.len) < 0 || buf_add(&s->index, &at, sizeof at) < 0) {
        return no_memory(err);
    }
    s->count++;
    return 0;
}

/* --- giving them out --- */

/* The first record of a run; NULL: it is at its end. */
static int first_of_run(struct user_sort *s, struct run *run, const char **record, struct err *err)
{
    size_t left = run->bytes.len - run->used;
    if (run->at < run->end && left < RECORD_MAX) {
        size_t wanted = (size_t)(run->end - run->at) < READ_BYTES ? (size_t)(run->end - run->at) : READ_BYTES;
        if (left > 0) {
            memmove(run->bytes.data, run->bytes.data + run->used, left);
        }
        run->bytes.len = left;
        run->used = 0;
        if (buf_reserve(&run->bytes, wanted) < 0) {
            return no_memory(err);
        }
        if (fseeko(s->file, run->at, SEEK_SET) < 0 || fread(run->bytes.data + left, 1, wanted, s->file) != wanted) {
            return no_file(err);
        }
        run->bytes.len += wanted;
        run->at += (off_t)wanted;
    }
    *record = run->used < run->bytes.len ? run->bytes.data + run->used : NULL;
    return 0;
}

/* The lowest record of all; NULL: that was the end. */
static int take_lowest(struct user_sort *s, const char **record, struct err *err)
{
    struct run *from = NULL;
    bool in_memory = s->next_in_memory < s->index.len / sizeof(uint32_t);
    *record = in_memory ? record_in_memory(s, s->next_in_memory) : NULL;
    for (size_t i = 0; i < s->n_runs; i++) {
        const char *first = NULL;
        int result = first_of_run(s, &s->runs[i], &first, err);
        if (result < 0) {
            return result;
        }
        if (first != NULL && (*record == NULL || compare(first, *record) < 0)) {
            *record = first;
            from = &s->runs[i];
        }
    }
    if (from != NULL) {
        from->used += record_len(*record);
    } else if (*record != NULL) {
        s->next_in_memory++;
    }
    return 0;
}

void user_sort_end(struct user_sort *s)
{
    sort_memory(s);
}

int user_sort_next(struct user_sort *s, int64_t *key, struct slice *user, struct err *err)
{
    const char *record;
    int result;
    while ((result = take_lowest(s, &record, err)) == 0 && record != NULL) {
        bool again = s->any && compare(record, s->last) == 0;
        memcpy(s->last, record, record_len(record));
        s->any = true;
        if (!again) {
            memcpy(key, s->last, sizeof *key);
            *user = slice_of(s->last + HEAD, record_len(s->last) - HEAD);
            return 1;
        }
    }
    return result;
}

uint64_t user_sort_count(const struct user_sort *s)
{
    return s->count;
}

int user_sort_new(size_t memory, struct user_sort **sort, struct err *err)
{
    struct user_sort *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return no_memory(err);
    }
    s->memory = memory;
    *sort = s;
    return 0;
}

void user_sort_free(struct user_sort *s)
{
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->n_runs; i++) {
        buf_free(&s->runs[i].bytes);
    }
    free(s->runs);
    if (s->file != NULL) {
        fclose(s->file);
    }
    buf_free(&s->bytes);
    buf_free(&s->index);
    free(s);
}
