/* What the nightly walks have found, in their objects and as `MONTHS` shows it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "store/rados/night.h"
#include "store/rados/wait.h"

/* --- a piece --- */

int night_month_add(struct night_piece *piece, const struct night_month *add)
{
    size_t at = 0;
    while (at < piece->n_months && piece->months[at].month < add->month) {
        at++;
    }
    if (at == piece->n_months || piece->months[at].month != add->month) {
        struct night_month *now = realloc(piece->months, (piece->n_months + 1) * sizeof *now);
        if (now == NULL) {
            return ERR_NOMEM;
        }
        piece->months = now;
        memmove(&now[at + 1], &now[at], (piece->n_months - at) * sizeof *now);
        now[at] = (struct night_month){.month = add->month};
        piece->n_months++;
    }
    struct night_month *m = &piece->months[at];
    m->users += add->users;
    m->sealed += add->sealed;
    m->plays += add->plays;
    m->bytes += add->bytes;
    return 0;
}

void night_piece_free(struct night_piece *piece)
{
    free(piece->months);
    *piece = (struct night_piece){.day = -1};
}

void night_piece_name(size_t i, char out[NIGHT_NAME])
{
    snprintf(out, NIGHT_NAME, "night.%zu", i);
}

struct piece_read {
    struct cluster_read read; /* first */
    struct night_piece *piece;
    bool failed;
};

static void on_pair(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct piece_read *r = (struct piece_read *)read;
    char text[128], name[MONTH_TEXT];
    uint64_t n;
    (void)range;
    if (slice_eq(key, slice_str("done")) && layout_unhex(value, &n)) {
        r->piece->day = (int64_t)n;
    } else if (slice_eq(key, slice_str("forgotten")) && layout_unhex(value, &n)) {
        r->piece->tombstones = n;
    } else if (key.len == LAYOUT_MONTH && value.len < sizeof text && r->piece->n_months < NIGHT_MONTHS) {
        struct night_month m = {0};
        memcpy(name, key.data, key.len);
        name[key.len] = '\0';
        memcpy(text, value.data, value.len);
        text[value.len] = '\0';
        m.month = month_parse(name);
        if (m.month > 0 && sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &m.users, &m.sealed, &m.plays,
                                  &m.bytes) == 4) {
            r->failed = night_month_add(r->piece, &m) < 0 || r->failed;
        }
    }
}

int night_piece_read(struct rados_store *s, size_t i, struct night_piece *out, struct err *err)
{
    char name[NIGHT_NAME];
    struct piece_read r = {.read = {.op = {.object = name},
                                    .ranges = {{.prefix = "", .after = "", .max = CLUSTER_PAGE}},
                                    .n_ranges = 1,
                                    .pair = on_pair},
                           .piece = out};
    *out = (struct night_piece){.day = -1};
    night_piece_name(i, name);
    enum cluster_result result = wait_read(s->ops, s->cluster, &r.read);
    if (result == CLUSTER_ABSENT || (result == CLUSTER_DONE && !r.failed)) {
        return 0;
    }
    night_piece_free(out);
    return result == CLUSTER_DONE ? err_set(err, ERR_NOMEM, "out of memory while reading marks of the walk")
                                  : cluster_error_of(s, &r.read.op, "reading", name, err);
}

int night_piece_write(struct rados_store *s, size_t i, const struct night_piece *piece, struct err *err)
{
    char name[NIGHT_NAME], day[LAYOUT_HEX], tombstones[LAYOUT_HEX];
    size_t n = piece->n_months;
    struct cluster_pair *set = calloc(n + 2, sizeof *set);
    char(*texts)[128] = calloc(n + 1, sizeof *texts);
    char(*keys)[MONTH_TEXT] = calloc(n + 1, sizeof *keys);
    int result = set == NULL || texts == NULL || keys == NULL
                     ? err_set(err, ERR_NOMEM, "out of memory while writing marks of the walk")
                     : 0;
    night_piece_name(i, name);
    if (result == 0) {
        layout_hex((uint64_t)piece->day, day);
        layout_hex(piece->tombstones, tombstones);
        set[0] = (struct cluster_pair){slice_str("done"), slice_of(day, sizeof day)};
        set[1] = (struct cluster_pair){slice_str("forgotten"), slice_of(tombstones, sizeof tombstones)};
        for (size_t j = 0; j < n; j++) {
            const struct night_month *m = &piece->months[j];
            snprintf(texts[j], sizeof *texts, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, m->users, m->sealed,
                     m->plays, m->bytes);
            set[j + 2] = (struct cluster_pair){slice_str(month_suffix(m->month, keys[j])), slice_str(texts[j])};
        }
        /* An object that isn't there has no omap to clear. */
        struct cluster_write w = {.op = {.object = name}, .exclusive = true, .set = set, .n_set = n + 2};
        enum cluster_result code = wait_write(s->ops, s->cluster, &w);
        if (code == CLUSTER_EXISTS) {
            w.exclusive = false;
            w.clear = true;
            code = wait_write(s->ops, s->cluster, &w);
        }
        result = code == CLUSTER_DONE ? 0 : cluster_error_of(s, &w.op, "marking", name, err);
    }
    free(set);
    free(texts);
    free(keys);
    return result;
}

/* --- the seam --- */

struct store_reader;

static int months_of(struct rados_store *s, struct store_month_info *out, int max, struct err *err)
{
    struct night_month months[NIGHT_MONTHS];
    struct night_age age;
    int64_t later, earlier;
    int first_kept = guarded_clock_first_kept(&s->clock);
    guarded_clock_now(&s->clock, &later, &earlier);
    int n = night_months(s, months, max < NIGHT_MONTHS ? max : NIGHT_MONTHS, &age, err);
    for (int i = 0; i < n; i++) {
        const struct night_month *m = &months[i];
        out[i] = (struct store_month_info){.month = m->month, .users = m->users, .plays = m->plays, .bytes = m->bytes};
        out[i].found_ms = age.oldest_ms;
        out[i].coverage = (double)age.walked / NIGHT_PIECES;
        if (m->month < first_kept) {
            out[i].state = STORE_MONTH_EXPIRING;
        } else if (m->month >= month_of_ms(later)) {
            out[i].state = STORE_MONTH_LIVE;
        } else {
            out[i].state = m->sealed == m->users ? STORE_MONTH_SEALED : STORE_MONTH_SEALING;
            out[i].progress = m->users > 0 ? (double)m->sealed / (double)m->users : 1;
        }
    }
    return n;
}

static int admin_months(struct store_reader *reader, struct store_month_info *out, int max, struct err *err)
{
    return months_of(rados_reader_store(reader), out, max, err);
}

static void admin_backup_state(struct store *base, struct store_backup_state *out)
{
    (void)base;
    *out = (struct store_backup_state){.phase = BACKUP_NONE};
}

static void admin_backup_stop(struct store *base)
{
    (void)base;
}

const struct store_admin_ops night_admin_ops = {
    .months = admin_months, .backup_state = admin_backup_state, .backup_stop = admin_backup_stop};
