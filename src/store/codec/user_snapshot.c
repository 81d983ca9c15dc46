/* A user as one run of bytes. Numbers are varints unless it says otherwise.
 *
 *   1    version: 1; 2 of a user who is noted; 3 of one who was forgotten; 4 of one of whose items some were; 5 of one
 *        whose deliveries have times
 *   8    key, little endian
 *   any  user: a length byte and its bytes; last month
 *   any  n, then n months: month, length of the blob, the blob
 *   any  n, then n staged plays: month, and 8 bytes of hash, little endian
 *   any  length of the deliveries' blob, the blob
 *   any  n, then n exceptions: 8 bytes of hash, little endian
 *   any  n, then n damaged months
 *   1    only from version 2 on: 1: to be noted; from 3 on also 0
 *   any  only from version 3 on: when the user was last forgotten, unix ms; from 4 on also 0: never
 *   any  only from version 4 on: n, then n forgotten items: 8 bytes of hash, little endian, and when, unix ms; in 5 n
 *        may be 0
 *   4    checksum: low half of the unseeded XXH3 64 of all bytes before it, little endian
 *
 * Lists are in order and without repeats, so that one user has one form, and equal files are equal users.
 */
#include "store/codec/user_snapshot.h"

#include <stdlib.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/varint.h"
#include "store/tombstones.h"
#include "store/user/deliveries.h"

enum {
    VERSION_1 = 1,
    VERSION_2 = 2,
    VERSION_3 = 3,
    VERSION_4 = 4,
    VERSION_5 = USER_SNAPSHOT_VERSION,
    NOTED = 1,
    HASH = 8,
    CHECKSUM = 4,
    LEAST = 1 + HASH + 2 + 1 + 5 + CHECKSUM
};

static void put_number(struct buf *out, uint64_t v)
{
    uint8_t bytes[VARINT_MAX];
    buf_add(out, bytes, varint_put(bytes, v));
}

static void put_fixed(struct buf *out, uint64_t v, int n)
{
    uint8_t bytes[HASH];
    for (int i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    buf_add(out, bytes, (size_t)n);
}

static uint64_t fixed_at(const uint8_t *at, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) {
        v |= (uint64_t)at[i] << (8 * i);
    }
    return v;
}

static bool month_good(int month)
{
    return month >= 0 && month <= USER_SNAPSHOT_MONTH_MAX;
}

static bool play_before(const struct store_play *a, const struct store_play *b)
{
    return a->month != b->month ? a->month < b->month : a->hash < b->hash;
}

static bool is_sound(const struct user_snapshot *p)
{
    bool good = p->user.len >= 1 && p->user.len <= 255 && month_good(p->last_month) &&
                p->n_months <= USER_SNAPSHOT_LISTS_MAX && p->n_damaged <= USER_SNAPSHOT_LISTS_MAX;
    for (size_t i = 0; good && i < p->n_months; i++) {
        good = month_good(p->months[i].month) && (i == 0 || p->months[i - 1].month < p->months[i].month);
    }
    for (size_t i = 0; good && i < p->n_plays; i++) {
        good = month_good(p->plays[i].month) && (i == 0 || play_before(&p->plays[i - 1], &p->plays[i]));
    }
    for (size_t i = 1; good && i < p->n_exceptions; i++) {
        good = p->exceptions[i - 1] < p->exceptions[i];
    }
    for (size_t i = 0; good && i < p->n_damaged; i++) {
        good = month_good(p->damaged[i]) && (i == 0 || p->damaged[i - 1] < p->damaged[i]);
    }
    for (size_t i = 0; good && i < p->n_forgotten; i++) {
        const struct snapshot_forgotten *f = &p->forgotten[i];
        good = f->item > (i == 0 ? TOMBSTONE_USER : f[-1].item) && f->at_ms > 0 && f->at_ms > p->forgotten_ms;
    }
    return good;
}

static int by_month_and_hash(const void *a, const void *b)
{
    const struct store_play *x = a, *y = b;
    return x->month != y->month ? (x->month > y->month) - (x->month < y->month)
                                : (x->hash > y->hash) - (x->hash < y->hash);
}

size_t user_snapshot_sort_plays(struct store_play *plays, size_t n)
{
    size_t kept = 0;
    if (n > 0) {
        qsort(plays, n, sizeof *plays, by_month_and_hash);
    }
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || by_month_and_hash(&plays[kept - 1], &plays[i]) != 0) {
            plays[kept++] = plays[i];
        }
    }
    return kept;
}

int user_snapshot_encode(const struct user_snapshot *p, struct buf *out)
{
    if (!is_sound(p)) {
        return ERR_INVALID;
    }
    const size_t start = out->len;
    const bool timed = p->deliveries.len > 0 && !delivered_is_old(p->deliveries);
    const char version = timed                 ? VERSION_5
                         : p->n_forgotten > 0  ? VERSION_4
                         : p->forgotten_ms > 0 ? VERSION_3
                         : p->migration_state  ? VERSION_2
                                               : VERSION_1;
    const char user_len = (char)p->user.len;
    buf_add(out, &version, 1);
    put_fixed(out, (uint64_t)p->key, HASH);
    buf_add(out, &user_len, 1);
    buf_add(out, p->user.data, p->user.len);
    put_number(out, (uint64_t)p->last_month);
    put_number(out, p->n_months);
    for (size_t i = 0; i < p->n_months; i++) {
        put_number(out, (uint64_t)p->months[i].month);
        put_number(out, p->months[i].blob.len);
        buf_add(out, p->months[i].blob.data, p->months[i].blob.len);
    }
    put_number(out, p->n_plays);
    for (size_t i = 0; i < p->n_plays; i++) {
        put_number(out, (uint64_t)p->plays[i].month);
        put_fixed(out, p->plays[i].hash, HASH);
    }
    put_number(out, p->deliveries.len);
    buf_add(out, p->deliveries.data, p->deliveries.len);
    put_number(out, p->n_exceptions);
    for (size_t i = 0; i < p->n_exceptions; i++) {
        put_fixed(out, p->exceptions[i], HASH);
    }
    put_number(out, p->n_damaged);
    for (size_t i = 0; i < p->n_damaged; i++) {
        put_number(out, (uint64_t)p->damaged[i]);
    }
    if (version != VERSION_1) {
        put_fixed(out, p->migration_state ? NOTED : 0, 1);
    }
    if (version >= VERSION_3) {
        put_number(out, (uint64_t)(p->forgotten_ms > 0 ? p->forgotten_ms : 0));
    }
    if (version >= VERSION_4) {
        put_number(out, p->n_forgotten);
    }
    for (size_t i = 0; i < p->n_forgotten; i++) {
        put_fixed(out, p->forgotten[i].item, HASH);
        put_number(out, (uint64_t)p->forgotten[i].at_ms);
    }
    if (!out->failed) {
        put_fixed(out, hash_checksum(out->data + start, out->len - start), CHECKSUM);
    }
    return out->failed ? ERR_NOMEM : 0;
}

/* --- decoding: the first thing that is wrong is kept, and nothing is read after it --- */

struct input {
    const uint8_t *start, *at, *end;
    struct arena *arena;
    struct err *err;
    int result;
};

static void bad(struct input *in, const char *what)
{
    if (in->result == 0) {
        in->result =
            err_set(in->err, ERR_CORRUPT, "parcel of a user: %s at byte %zu", what, (size_t)(in->at - in->start));
    }
}

static uint64_t get_number(struct input *in, uint64_t most, const char *what)
{
    uint64_t v = 0;
    size_t used = in->result == 0 ? varint_get(in->at, in->end, &v) : 0;
    if (used == 0 || v > most) {
        bad(in, what);
        return 0;
    }
    in->at += used;
    return v;
}

static struct slice get_bytes(struct input *in, size_t len)
{
    struct slice out = slice_of((const char *)in->at, len);
    in->at += len;
    return out;
}

/* A count of things that take at least so many bytes each. */
static size_t get_count(struct input *in, size_t least, const char *what)
{
    return (size_t)get_number(in, (uint64_t)(in->end - in->at) / least, what);
}

static void *get_list(struct input *in, size_t n, size_t size)
{
    void *list = in->result == 0 ? arena_alloc(in->arena, n * size + 1) : NULL;
    if (list == NULL && in->result == 0) {
        in->result = err_set(in->err, ERR_NOMEM, "no memory for a user's parcel");
    }
    return list;
}

static void get_months(struct input *in, struct user_snapshot *p)
{
    size_t n = get_count(in, 2, "a broken count of months");
    if (n > USER_SNAPSHOT_LISTS_MAX) {
        bad(in, "too many months");
    }
    struct snapshot_month *list = get_list(in, n, sizeof *list);
    for (size_t i = 0; i < n && in->result == 0; i++) {
        list[i].month = (int)get_number(in, USER_SNAPSHOT_MONTH_MAX, "a broken month");
        size_t len = get_count(in, 1, "a broken length of a filter");
        if (in->result == 0) {
            list[i].blob = get_bytes(in, len);
        }
        if (i > 0 && list[i - 1].month >= list[i].month) {
            bad(in, "a month out of order");
        }
    }
    p->months = list;
    p->n_months = n;
}

static uint64_t get_hash(struct input *in)
{
    if (in->result < 0 || in->end - in->at < HASH) {
        bad(in, "a hash cut off");
        return 0;
    }
    in->at += HASH;
    return fixed_at(in->at - HASH, HASH);
}

static void get_plays(struct input *in, struct user_snapshot *p)
{
    size_t n = get_count(in, 1 + HASH, "a broken count of staged plays");
    struct store_play *list = get_list(in, n, sizeof *list);
    for (size_t i = 0; i < n && in->result == 0; i++) {
        list[i].month = (int32_t)get_number(in, USER_SNAPSHOT_MONTH_MAX, "a broken month of a staged play");
        list[i].hash = get_hash(in);
        if (i > 0 && !play_before(&list[i - 1], &list[i])) {
            bad(in, "a staged play out of order");
        }
    }
    p->plays = list;
    p->n_plays = n;
}

static void get_exceptions(struct input *in, struct user_snapshot *p)
{
    size_t n = get_count(in, HASH, "a broken count of exceptions");
    uint64_t *list = get_list(in, n, sizeof *list);
    for (size_t i = 0; i < n && in->result == 0; i++) {
        list[i] = get_hash(in);
        if (i > 0 && list[i - 1] >= list[i]) {
            bad(in, "an exception out of order");
        }
    }
    p->exceptions = list;
    p->n_exceptions = n;
}

static void get_damaged(struct input *in, struct user_snapshot *p)
{
    size_t n = get_count(in, 1, "a broken count of damaged months");
    if (n > USER_SNAPSHOT_LISTS_MAX) {
        bad(in, "too many damaged months");
    }
    int *list = get_list(in, n, sizeof *list);
    for (size_t i = 0; i < n && in->result == 0; i++) {
        list[i] = (int)get_number(in, USER_SNAPSHOT_MONTH_MAX, "a broken damaged month");
        if (i > 0 && list[i - 1] >= list[i]) {
            bad(in, "a damaged month out of order");
        }
    }
    p->damaged = list;
    p->n_damaged = n;
}

static void get_user(struct input *in, struct user_snapshot *p)
{
    p->key = (int64_t)get_hash(in);
    size_t len = in->at < in->end ? *in->at : 0;
    if (len == 0 || (size_t)(in->end - in->at) < 1 + len) {
        bad(in, "a broken user");
        return;
    }
    in->at++;
    p->user = get_bytes(in, len);
    p->last_month = (int)get_number(in, USER_SNAPSHOT_MONTH_MAX, "a broken last month");
}

static void get_note(struct input *in, struct user_snapshot *p, int version)
{
    if (in->result == 0 && (in->at == in->end || *in->at > NOTED || (version == VERSION_2 && *in->at != NOTED))) {
        bad(in, "a broken mark of a note");
    }
    p->migration_state = in->result == 0 && *in->at++ == NOTED;
}

static void get_forgotten(struct input *in, struct user_snapshot *p, int version)
{
    p->forgotten_ms = (int64_t)get_number(in, INT64_MAX, "a broken time of a forget");
    if (version == VERSION_3) {
        if (p->forgotten_ms == 0) {
            bad(in, "a forget without a time");
        }
        return;
    }
    size_t n = get_count(in, HASH + 1, "a broken count of forgotten items");
    if (n == 0 && version == VERSION_4) {
        bad(in, "no forgotten items");
    }
    struct snapshot_forgotten *list = get_list(in, n, sizeof *list);
    for (size_t i = 0; i < n && in->result == 0; i++) {
        list[i].item = get_hash(in);
        list[i].at_ms = (int64_t)get_number(in, INT64_MAX, "a broken time of a forgotten item");
        if (list[i].item <= (i == 0 ? TOMBSTONE_USER : list[i - 1].item)) {
            bad(in, "a forgotten item out of order");
        }
        if (list[i].at_ms <= p->forgotten_ms) {
            bad(in, "an item forgotten before its user");
        }
    }
    p->forgotten = list;
    p->n_forgotten = n;
}

int user_snapshot_decode(const void *bytes, size_t len, struct arena *arena, struct user_snapshot *out, struct err *err)
{
    const uint8_t *start = bytes;
    *out = (struct user_snapshot){0};
    if (len < LEAST) {
        return err_set(err, ERR_CORRUPT, "parcel of a user: %zu bytes, fewer than any has", len);
    }
    if (start[0] < VERSION_1 || start[0] > VERSION_5) {
        return err_set(err, ERR_VERSION, "parcel of a user: version %u, this program reads 1 to 5", start[0]);
    }
    len -= CHECKSUM;
    if (fixed_at(start + len, CHECKSUM) != (uint32_t)hash_checksum(start, len)) {
        return err_set(err, ERR_CORRUPT, "parcel of a user: wrong checksum");
    }
    struct input in = {start, start + 1, start + len, arena, err, 0};
    get_user(&in, out);
    get_months(&in, out);
    get_plays(&in, out);
    size_t blob = get_count(&in, 1, "a broken length of the deliveries");
    if (in.result == 0) {
        out->deliveries = get_bytes(&in, blob);
        if ((start[0] == VERSION_5) != (blob > 0 && !delivered_is_old(out->deliveries))) {
            bad(&in, "deliveries of another version");
        }
    }
    get_exceptions(&in, out);
    get_damaged(&in, out);
    if (start[0] != VERSION_1) {
        get_note(&in, out, start[0]);
    }
    if (start[0] >= VERSION_3) {
        get_forgotten(&in, out, start[0]);
    }
    if (in.at != in.end) {
        bad(&in, "something left over");
    }
    return in.result;
}

int user_snapshot_without_times(struct slice *bytes, struct buf *out, struct err *err)
{
    struct arena arena = {0};
    struct delivered_codec codec = {0};
    struct buf blob = {0};
    struct user_snapshot p;
    struct delivered d;
    if (bytes->len == 0 || bytes->data[0] < VERSION_5) {
        return 0;
    }
    int rc = user_snapshot_decode(bytes->data, bytes->len, &arena, &p, err);
    rc = rc < 0 ? rc : delivered_unpack(&codec, p.deliveries.data, p.deliveries.len, 0, &arena, &d, err);
    if (rc == 0 && delivered_pack_old(&codec, &d, &blob) == 0) {
        p.deliveries = buf_slice(&blob);
        const size_t start = out->len;
        rc = user_snapshot_encode(&p, out);
        *bytes = slice_of(out->data + start, out->len - start);
    } else if (rc == 0) {
        rc = ERR_NOMEM;
    }
    arena_free(&arena);
    delivered_codec_free(&codec);
    buf_free(&blob);
    return rc == ERR_NOMEM ? err_set(err, ERR_NOMEM, "no memory for a user's parcel") : rc;
}

int user_snapshot_check_forgets(const struct user_snapshot *p, int64_t later, struct err *err)
{
    const int64_t most = later + USER_SNAPSHOT_AHEAD_MS;
    if (p->forgotten_ms > most) {
        return err_set(err, ERR_RANGE, "user %s was forgotten at a time that lies ahead", log_quote(p->user));
    }
    for (size_t i = 0; i < p->n_forgotten; i++) {
        if (p->forgotten[i].at_ms > most) {
            return err_set(err, ERR_RANGE, "an item of user %s was forgotten at a time that lies ahead",
                           log_quote(p->user));
        }
    }
    return 0;
}

size_t user_snapshot_later_items(struct snapshot_forgotten *items, size_t n, int64_t forgotten_ms)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i].at_ms > forgotten_ms) {
            items[left++] = items[i];
        }
    }
    return left;
}

/* Of its deliveries those that were sent later. *last: the month of the newest of them; 0: none is left. */
static int later_deliveries(struct user_snapshot *p, int64_t forgotten_ms, struct arena *arena, int *last,
                            struct err *err)
{
    struct delivered_codec codec = {0};
    struct buf blob = {0};
    struct delivered d = {0};
    struct err why = {0};
    const struct slice packed = p->deliveries;
    const struct delivered_unseen earlier = {.cut = delivered_stamp(forgotten_ms + 1, 0)};
    *last = 0;
    p->deliveries = slice_of("", 0);
    if (packed.len == 0 || delivered_is_old(packed)) {
        return 0; /* those were sent long ago */
    }
    int rc = delivered_unpack(&codec, packed.data, packed.len, 0, arena, &d, &why);
    if (rc == 0) {
        delivered_unsee(&d, &earlier);
    }
    if (rc == 0 && d.n > 0) {
        rc = delivered_pack(&codec, &d, &blob);
        const char *copy = rc == 0 ? arena_copy(arena, blob.data, blob.len) : NULL;
        if (copy != NULL) {
            p->deliveries = slice_of(copy, blob.len);
            *last = month_of_ms(delivered_ms(d.list[0].stamp));
        }
        rc = copy != NULL ? 0 : ERR_NOMEM;
    }
    delivered_codec_free(&codec);
    buf_free(&blob);
    return rc == ERR_NOMEM ? err_set(err, ERR_NOMEM, "no memory for what user %s was sent", log_quote(p->user))
           : rc < 0        ? err_set(err, rc, "user %s: %s", log_quote(p->user), why.text)
                           : 0;
}

int user_snapshot_forget(struct user_snapshot *p, int64_t forgotten_ms, struct arena *arena, struct err *err)
{
    int sent;
    if (forgotten_ms <= p->forgotten_ms) {
        return 0;
    }
    const int last = month_of_ms(forgotten_ms);
    for (; p->n_months > 0 && p->months[0].month <= last; p->n_months--) {
        p->months++;
    }
    for (; p->n_plays > 0 && p->plays[0].month <= last; p->n_plays--) {
        p->plays++;
    }
    int rc = later_deliveries(p, forgotten_ms, arena, &sent, err);
    if (rc < 0) {
        return rc;
    }
    if (p->last_month <= last) {
        p->last_month = sent < p->last_month ? sent : p->last_month;
        p->n_exceptions = 0;
    }
    for (; p->n_damaged > 0 && p->damaged[0] <= last; p->n_damaged--) {
        p->damaged++;
    }
    return 0;
}
