#include "store/user/parcel.h"

#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"

int parcel_open(struct slice bytes, uint64_t seed, struct arena *arena, struct user_snapshot *out, struct err *err)
{
    int result = user_snapshot_decode(bytes.data, bytes.len, arena, out, err);
    if (result == 0 && out->key != hash_user_key(seed, out->user)) {
        result = err_set(err, ERR_SEED, "user %s was packed in a store with another seed", log_quote(out->user));
    }
    return result;
}

static int refuse(const struct user_snapshot *p, int code, const struct err *why, struct err *err)
{
    return code < 0 ? err_set(err, code, "user %s: %s", log_quote(p->user), why->text) : 0;
}

static int newest_of(const struct user_snapshot *p)
{
    int newest = p->last_month;
    for (size_t i = 0; i < p->n_months; i++) {
        newest = p->months[i].month > newest ? p->months[i].month : newest;
    }
    for (size_t i = 0; i < p->n_plays; i++) {
        newest = p->plays[i].month > newest ? p->plays[i].month : newest;
    }
    return newest;
}

int parcel_admit(struct user_snapshot *p, int64_t forgotten_ms, int64_t later, int first_kept, struct arena *arena,
                 int *newest, struct err *err)
{
    struct err why = {0};
    struct filter filter;
    int result = user_snapshot_forget(p, forgotten_ms, arena, err);
    *newest = newest_of(p);
    result = result < 0 ? result : user_snapshot_check_forgets(p, later, err);
    if (result == 0 && *newest > month_of_ms(later) + 1) {
        char name[MONTH_TEXT];
        result = err_set(err, ERR_RANGE, "user %s has something in %s, which lies ahead", log_quote(p->user),
                         month_name(*newest, name));
    }
    for (size_t i = 0; i < p->n_months && result == 0; i++) {
        result = refuse(p, filter_weigh(p->months[i].blob.data, p->months[i].blob.len, &filter, &why), &why, err);
    }
    for (; p->n_months > 0 && p->months[0].month < first_kept; p->n_months--) {
        p->months++;
    }
    for (; p->n_plays > 0 && p->plays[0].month < first_kept; p->n_plays--) {
        p->plays++;
    }
    if (p->last_month < first_kept) {
        p->deliveries = slice_of("", 0);
    }
    return result;
}

int parcel_month(const struct user_snapshot *p, size_t i, struct arena *arena, struct filter *out, struct err *err)
{
    struct err why = {0};
    return refuse(p, filter_decode(p->months[i].blob.data, p->months[i].blob.len, arena, out, &why), &why, err);
}

int parcel_months(const struct user_snapshot *p, struct arena *arena, struct filter **out, struct err *err)
{
    *out = arena_alloc(arena, p->n_months * sizeof **out + 1);
    int result = *out == NULL ? err_set(err, ERR_NOMEM, "out of memory while joining users") : 0;
    for (size_t i = 0; i < p->n_months && result == 0; i++) {
        result = parcel_month(p, i, arena, &(*out)[i], err);
    }
    return result;
}

bool parcel_mark(struct user_snapshot *p, int *damaged, int month, const char *why, char text[STORE_ERROR_TEXT])
{
    char name[MONTH_TEXT];
    size_t at = 0;
    while (at < p->n_damaged && damaged[at] < month) {
        at++;
    }
    if ((at < p->n_damaged && damaged[at] == month) || p->n_damaged == USER_SNAPSHOT_LISTS_MAX) {
        return false;
    }
    memmove(&damaged[at + 1], &damaged[at], (p->n_damaged - at) * sizeof *damaged);
    damaged[at] = month;
    p->n_damaged++;
    snprintf(text, STORE_ERROR_TEXT, "user %s: %s: %s", log_quote(p->user),
             month == 0 ? "deliveries" : month_name(month, name), why);
    return true;
}
