#include "cli/import/import_tally.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "cli/lib/output.h"

static const int64_t DAY_MS = 24 * 3600 * 1000;

int import_tally_init(struct import_tally *t, int64_t retention, int64_t earlier_ms, int64_t later_ms, struct err *err)
{
    memset(t, 0, sizeof(*t));
    t->newest_ms = later_ms + DAY_MS;
    t->first_month = month_of_ms(earlier_ms) - (int)retention;
    t->oldest_ms = month_start_ms(t->first_month);
    t->n_months = month_of_ms(t->newest_ms) - t->first_month + 1;
    t->months = calloc((size_t)t->n_months, sizeof(*t->months));
    return t->months == NULL ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int resize(struct import_tally *t, int n_months, struct err *err)
{
    if (n_months > t->n_months) {
        uint64_t *months = realloc(t->months, (size_t)n_months * sizeof *months);
        if (months == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        memset(months + t->n_months, 0, (size_t)(n_months - t->n_months) * sizeof *months);
        t->months = months;
        t->n_months = n_months;
        t->month_from = t->month_to = 0; /* t->month may have moved */
    }
    return 0;
}

int import_tally_until(struct import_tally *t, int64_t later_ms, struct err *err)
{
    int64_t newest_ms = later_ms + DAY_MS;
    int rc = resize(t, month_of_ms(newest_ms) - t->first_month + 1, err);
    if (rc == 0 && newest_ms > t->newest_ms) {
        t->newest_ms = newest_ms;
    }
    return rc;
}

int import_tally_copy(struct import_tally *to, const struct import_tally *from, struct err *err)
{
    int rc = resize(to, from->n_months, err);
    if (rc == 0) {
        struct import_tally own = *to;
        *to = *from;
        to->users = own.users;
        to->items = own.items;
        to->months = own.months;
        to->month_from = to->month_to = 0;
        memcpy(to->months, from->months, (size_t)from->n_months * sizeof *to->months);
    }
    return rc;
}

void import_tally_free(struct import_tally *t)
{
    free(t->months);
    distinct_free(&t->users);
    distinct_free(&t->items);
}

enum import_time import_tally_time(struct import_tally *t, int64_t at_ms)
{
    if (at_ms < t->oldest_ms) {
        t->too_old++;
        return IMPORT_TIME_OLD;
    }
    if (at_ms > t->newest_ms) {
        t->ahead++;
        return IMPORT_TIME_AHEAD;
    }
    return IMPORT_TIME_GOOD;
}

int import_tally_event(struct import_tally *t, int64_t at_ms, uint64_t user_hash, uint64_t item_hash, struct err *err)
{
    if (at_ms < t->month_from || at_ms >= t->month_to) {
        int month = month_of_ms(at_ms);
        t->month_from = month_start_ms(month);
        t->month_to = month_start_ms(month + 1);
        t->month = &t->months[month - t->first_month];
    }
    if (!t->endless && (distinct_add(&t->users, user_hash) < 0 || distinct_add(&t->items, item_hash) < 0)) {
        return err_set(err, ERR_NOMEM, "out of memory while counting users and items");
    }
    ++*t->month;
    t->events++;
    return 0;
}

static void reject(struct import_tally *t, const char *file, uint64_t line, const char *reason, struct slice raw)
{
    if (t->rejects != NULL) {
        import_rejects_add(t->rejects, file, line, reason, raw);
    }
}

static void note(struct import_tally *t, const char *file, uint64_t line, const char *reason)
{
    if (t->n_bad < IMPORT_BAD_SHOWN) {
        struct import_bad *bad = &t->bad[t->n_bad++];
        bad->file = file;
        bad->line = line;
        snprintf(bad->reason, sizeof(bad->reason), "%s", reason);
    }
}

void import_tally_reject_time(struct import_tally *t, enum import_time time, const char *file, uint64_t line,
                              struct slice raw)
{
    char why[64], name[MONTH_TEXT], date[OUTPUT_TEXT];
    if (time == IMPORT_TIME_OLD) {
        snprintf(why, sizeof why, "past retention: before %s", month_name(t->first_month, name));
    } else {
        snprintf(why, sizeof why, "ahead: after %s", date_text(t->newest_ms, date));
    }
    reject(t, file, line, why, raw);
}

void import_tally_malformed(struct import_tally *t, const char *file, uint64_t line, const char *reason,
                            struct slice raw)
{
    t->malformed++;
    note(t, file, line, reason);
    reject(t, file, line, reason, raw);
}

void import_tally_refused(struct import_tally *t, const char *file, uint64_t line, uint64_t n, const char *reason)
{
    char text[sizeof(((struct import_bad *)0)->reason)];
    t->refused += n;
    t->events -= n;
    note(t, file, line, reason);
    if (n > 1) { /* the plays of a user and time go in one command */
        snprintf(text, sizeof text, "%.200s (and so the %llu plays behind it of this user and time)", reason,
                 (unsigned long long)n - 1);
        reason = text;
    }
    reject(t, file, line, reason, slice_of("", 0));
}

void import_tally_forgotten(struct import_tally *t, uint64_t n)
{
    n = n < t->events ? n : t->events;
    t->forgotten += n;
    t->events -= n;
}

const char *import_tally_why_none(const struct import_tally *t, char out[IMPORT_WHY_NONE])
{
    const struct {
        uint64_t n;
        const char *name;
    } counts[] = {
        {t->too_old, "too old"}, {t->ahead, "ahead"}, {t->forgotten, "forgotten"}, {t->malformed, "malformed"}};
    size_t len = 0;
    char text[OUTPUT_TEXT];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].n > 0) {
            len += (size_t)snprintf(out + len, IMPORT_WHY_NONE - len, "%s%s %s", len > 0 ? ", " : "",
                                    count_text(counts[i].n, text), counts[i].name);
        }
    }
    return len > 0 ? out : "no line in the input";
}

static double rate(const struct import_tally *t)
{
    uint64_t all = t->events + t->too_old + t->ahead + t->forgotten + t->refused;
    return t->elapsed_us > 0 ? (double)all * 1e6 / (double)t->elapsed_us : 0;
}

static void print_count(const char *name, uint64_t n)
{
    char text[OUTPUT_TEXT];
    printf("%-10s %16s", name, count_text(n, text));
}

void import_tally_print(const struct import_tally *t, bool dry_run)
{
    char text[OUTPUT_TEXT], other[OUTPUT_TEXT], name[MONTH_TEXT];
    if (t->of_letters) {
        print_count("letters", t->letters_taken + t->letters_kept);
        printf("   %s taken, %s kept\n", count_text(t->letters_taken, text), count_text(t->letters_kept, other));
    }
    print_count("events", t->events);
    puts(dry_run ? "   read, none loaded" : "");
    if (!t->endless) {
        print_count("users", distinct_count(&t->users));
        putchar('\n');
        print_count("items", distinct_count(&t->items));
        putchar('\n');
    }
    print_count("too old", t->too_old);
    printf("   before %s\n", month_name(t->first_month, name));
    print_count("ahead", t->ahead);
    printf("   after %s\n", date_text(t->newest_ms, text));
    if (t->forgotten > 0) {
        print_count("forgotten", t->forgotten);
        puts("   not newer than a FORGET of the user or item");
    }
    print_count("malformed", t->malformed);
    putchar('\n');
    if (t->refused > 0) {
        print_count("refused", t->refused);
        puts("   by the server");
    }
    for (int i = 0; i < t->n_bad; i++) {
        printf("  %s:%llu: %s\n", t->bad[i].file, (unsigned long long)t->bad[i].line, t->bad[i].reason);
    }
    if (t->malformed + t->refused > (uint64_t)t->n_bad) {
        puts("  ...");
    }
    printf("seconds    %16.1f   %s events/s\n", (double)t->elapsed_us / 1e6, count_text((uint64_t)rate(t), text));
    if (t->events == 0) {
        return;
    }
    putchar('\n');
    struct table table;
    table_begin(&table, "month|events>");
    for (int i = 0; i < t->n_months; i++) {
        if (t->months[i] > 0) {
            table_cell(&table, "%s", month_name(t->first_month + i, name));
            table_cell(&table, "%s", count_text(t->months[i], text));
        }
    }
    table_end(&table, stdout);
}

void import_tally_print_json(const struct import_tally *t, bool dry_run)
{
    char name[MONTH_TEXT], time[TIME_TEXT];
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_bool(&j, "dry_run", dry_run);
    if (t->of_letters) {
        json_number(&j, "letters_taken", (int64_t)t->letters_taken);
        json_number(&j, "letters_kept", (int64_t)t->letters_kept);
    }
    json_number(&j, "events", (int64_t)t->events);
    if (!t->endless) {
        json_number(&j, "users", (int64_t)distinct_count(&t->users));
        json_number(&j, "items", (int64_t)distinct_count(&t->items));
    }
    json_open(&j, "months", '[');
    for (int i = 0; i < t->n_months; i++) {
        if (t->months[i] > 0) {
            json_open(&j, NULL, '{');
            json_text(&j, "month", month_name(t->first_month + i, name));
            json_number(&j, "events", (int64_t)t->months[i]);
            json_close(&j, '}');
        }
    }
    json_close(&j, ']');
    json_number(&j, "too_old", (int64_t)t->too_old);
    json_text(&j, "oldest", time_text(t->oldest_ms, time));
    json_number(&j, "ahead", (int64_t)t->ahead);
    json_text(&j, "newest", time_text(t->newest_ms, time));
    json_number(&j, "forgotten", (int64_t)t->forgotten);
    json_number(&j, "malformed", (int64_t)t->malformed);
    json_number(&j, "refused", (int64_t)t->refused);
    json_open(&j, "problems", '[');
    for (int i = 0; i < t->n_bad; i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "file", t->bad[i].file);
        json_number(&j, "line", (int64_t)t->bad[i].line);
        json_text(&j, "reason", t->bad[i].reason);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_double(&j, "seconds", (double)t->elapsed_us / 1e6);
    json_number(&j, "events_per_second", (int64_t)rate(t));
    json_close(&j, '}');
}
