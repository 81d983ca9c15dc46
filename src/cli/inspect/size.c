#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/user_size.h"

static const char help[] =
    "Reckons what a number of users takes: disk, memory, processors, a flush, a start, a replica.\n\n"
    "Usage: unseen size --users N --plays-a-month N [--questions N] [--candidates N] [--id-bytes N] [--json]\n"
    "                   [OPTION ...]\n\n"
    "N may be written as 50M, 300k or 1.5G. All users are taken to be alike. window, retention, error_rate and\n"
    "slot_length are those of the configuration, so --retention 12 shows what a longer history costs. The bytes of a\n"
    "month come from filters that are made for it; the other factors were measured: docs/sizing.md and scale.md.\n\n"
    "Options:\n"
    "      --users N          users who play\n"
    "      --plays-a-month N  plays of each\n"
    "      --questions N      questions a second, on average; by default one for seven plays\n"
    "      --candidates N     of a question (2000)\n"
    "      --id-bytes N       bytes of an id of a user, or of an item (16)\n"
    "      --json             print JSON\n\n"
    "Examples:\n"
    "  unseen size --users 50M --plays-a-month 300\n"
    "  unseen size --users 200k --plays-a-month 30 --retention 12 --window 12\n";

/* Measured: docs/sizing.md and docs/scale.md name the commands, bench/NOTES.md has the runs. */
static const double user_row = 21;         /* bytes of a row of `users`, without the id */
static const double month_row = 17;        /* of a row of a month, without its filter */
static const double staged_play = 23;      /* bytes of memory; */
static const double staged_user = 123;     /* and of each user with staged plays */
static const double staged_row = 20;       /* bytes on disk, without the ids */
static const double flush_user_s = 100e-6; /* of one thread, when nothing of the user is in memory */
static const double start_play_s = 0.46e-6;
static const double play_cpu_s = 15e-6;
static const double question_cpu_s = 24e-6, candidate_cpu_s = 0.013e-6;
static const double staging_wear = 470; /* bytes written a play */
static const double event_bytes = 10;   /* of the feed, without the ids */
static const double process_memory = 9e6;
static const double peak = 2; /* of the average, for processors */

enum { DAY_S = 24 * 3600, MONTH_DAYS = 30 };

struct asked {
    double users, plays, questions, candidates, id_bytes;
};

struct sizes {
    double plays_a_second;
    double sealed, live;                /* bytes of a user's month */
    double disk, history, staging_disk; /* bytes; disk is all of it */
    double slot_users, slot_plays;
    double staging, memory;  /* bytes */
    double flush_s, start_s; /* at most */
    double cores;            /* at the peak */
    double written_a_day;    /* bytes */
    double feed_a_second;    /* bytes */
};

/* What a row takes of the file's pages of 2 KiB: half a row is left over in each on average, and a row that is longer
 * than a page leaves a quarter of one. bench/size measures the whole. */
static double in_pages(double row)
{
    return fmin(row * 2048 / (2040 - fmin(row, 2000) / 2), row + 512);
}

/* Bytes that a flush writes for a play, with slots of 6 h: measured at 30, 300 and 3,000 plays a month, and in between
 * as the logarithm goes. With other slots it changes as their length to the power of -0.8. */
static double flush_wear(double plays_a_month, double slot_h)
{
    double at = log10(plays_a_month / 30);
    double base = at <= 0 ? 808 : at <= 1 ? 808 - 243 * at : at <= 2 ? 565 - 123 * (at - 1) : 442;
    return base * pow(6 / slot_h, 0.8);
}

static int reckon(const struct asked *a, const struct config *cfg, struct sizes *s, struct err *err)
{
    double slot_s = (double)config_slot_length_ms(cfg) / 1000;
    double a_slot = a->plays / MONTH_DAYS / DAY_S * slot_s; /* of a user */
    int rc = user_size((uint32_t)ceil(a->plays), cfg->error_rate, cfg->window, &s->live, &s->sealed, err);
    if (rc < 0) {
        return rc;
    }
    s->plays_a_second = a->users * a->plays / MONTH_DAYS / DAY_S;
    s->history = a->users * (user_row + a->id_bytes + (double)(cfg->retention + 1) * in_pages(month_row + s->sealed) +
                             in_pages(month_row + s->live));
    s->slot_plays = s->plays_a_second * slot_s;
    s->slot_users = a->users * (1 - exp(-a_slot)); /* plays come by chance */
    s->staging_disk = 2 * s->slot_plays * (staged_row + 2 * a->id_bytes);
    s->disk = s->history + s->staging_disk + (double)cfg->wal_limit + (double)cfg->min_free;
    s->staging = 2 * (s->slot_plays * staged_play + s->slot_users * staged_user);
    s->memory = s->staging + (double)cfg->history_memory + (double)cfg->request_memory + process_memory;
    s->flush_s = s->slot_users * flush_user_s;
    s->start_s = 2 * s->slot_plays * start_play_s;
    s->cores =
        peak * (s->plays_a_second * play_cpu_s + a->questions * (question_cpu_s + a->candidates * candidate_cpu_s));
    s->cores += s->flush_s / slot_s;
    s->written_a_day = s->plays_a_second * DAY_S * (staging_wear + flush_wear(a->plays, slot_s / 3600));
    s->feed_a_second = s->plays_a_second * (event_bytes + 2 * a->id_bytes);
    return 0;
}

static const char *span_text(double seconds, char out[OUTPUT_TEXT])
{
    if (seconds < 120) {
        snprintf(out, OUTPUT_TEXT, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    } else if (seconds < 7200) {
        snprintf(out, OUTPUT_TEXT, "%.0f min", seconds / 60);
    } else {
        snprintf(out, OUTPUT_TEXT, "%.1f h", seconds / 3600);
    }
    return out;
}

static const char *bytes_text(double bytes, char out[OUTPUT_TEXT])
{
    return size_text((uint64_t)bytes, out);
}

static void print_people(const struct asked *a, const struct config *cfg, const struct sizes *s)
{
    char b[OUTPUT_TEXT], c[OUTPUT_TEXT];
    double slot_h = (double)config_slot_length_ms(cfg) / 3600e3;
    struct table t;
    table_begin(&t, "|value>|how");
#define ROW(name, value, ...) (table_cell(&t, name), table_cell(&t, "%s", value), table_cell(&t, __VA_ARGS__))
    snprintf(b, sizeof b, "%s/s", count_text((uint64_t)s->plays_a_second, c));
    ROW("plays", b, "users x plays a month / 30 days, on average");
    ROW("disk", bytes_text(s->disk, b), "history + staging + wal_limit + min_free");
    ROW("  history", bytes_text(s->history, b),
        "users x (%.0f + id + %" PRId64 " sealed months of %.0f bytes + the live one of %.0f), in pages", user_row,
        cfg->retention + 1, month_row + s->sealed, month_row + s->live);
    ROW("  staging", bytes_text(s->staging_disk, b), "plays of two slots of %g h x (%.0f + 2 ids)", slot_h, staged_row);
    ROW("memory", bytes_text(s->memory, b), "staging + history_memory + request_memory + 9 MB");
    ROW("  staging", bytes_text(s->staging, b), "two slots: %.0f x plays + %.0f x users who played, %s a slot",
        staged_play, staged_user, count_text((uint64_t)s->slot_users, c));
    snprintf(b, sizeof b, "%.1f", s->cores);
    ROW("processors", b,
        "%.0f x (plays x 15 us + %.0f questions a second x (24 us + 13 ns a candidate)), and the flush", peak,
        a->questions);
    ROW("flush", span_text(s->flush_s, b), "at most: 0.1 ms a user who played; one thread, of each %g h", slot_h);
    ROW("start", span_text(s->start_s, b), "at most, after a crash: 0.46 us a staged play");
    snprintf(c, sizeof c, "%s/day", bytes_text(s->written_a_day, b));
    ROW("disk wear", c, "plays x (%.0f of staging + %.0f of the flush)", staging_wear, flush_wear(a->plays, slot_h));
    snprintf(c, sizeof c, "%s/s", bytes_text(s->feed_a_second, b));
    ROW("a replica", c, "plays x (%.0f + 2 ids); it needs the same disk and memory", event_bytes);
#undef ROW
    table_end(&t, stdout);
    if (s->flush_s > slot_h * 3600 / 2) {
        puts("\nThe flush takes more than half of a slot: divide the users over several servers, by the user's hash.");
    }
    if (s->staging > (double)cfg->staging_memory) {
        printf("\nstaging_memory is %s, below what two slots need: slots are flushed before their time.\n",
               size_text((uint64_t)cfg->staging_memory, b));
    }
}

static void print_json(const struct sizes *s)
{
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_double(&j, "plays_a_second", s->plays_a_second);
    json_double(&j, "sealed_month_bytes", s->sealed);
    json_double(&j, "live_month_bytes", s->live);
    json_double(&j, "disk_bytes", s->disk);
    json_double(&j, "history_bytes", s->history);
    json_double(&j, "staging_disk_bytes", s->staging_disk);
    json_double(&j, "memory_bytes", s->memory);
    json_double(&j, "staging_memory_bytes", s->staging);
    json_double(&j, "processors", s->cores);
    json_double(&j, "flush_seconds", s->flush_s);
    json_double(&j, "start_seconds", s->start_s);
    json_double(&j, "written_bytes_a_day", s->written_a_day);
    json_double(&j, "replica_bytes_a_second", s->feed_a_second);
    json_close(&j, '}');
}

/* "50M", "300k", "1.5G", "2000"; between the two. */
static bool read_number(const char *name, const char *text, double least, double most, double *out)
{
    char *end;
    double value = strtod(text, &end);
    double unit = *end == 'k' || *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;
    end += unit > 1;
    if (end == text || *end != '\0' || !(value * unit >= least && value * unit <= most)) {
        cli_misuse("size", "--%s is '%s', expected a number from %.0f to %.0f, such as 300, 20k or 50M", name, text,
                   least, most);
        return false;
    }
    *out = value * unit;
    return true;
}

int cli_size(int argc, char **argv)
{
    const char *users = NULL, *plays = NULL, *questions = NULL, *candidates = "2000", *id_bytes = "16";
    bool json = false;
    const struct cli_flag flags[] = {{"users", NULL, &users},
                                     {"plays-a-month", NULL, &plays},
                                     {"questions", NULL, &questions},
                                     {"candidates", NULL, &candidates},
                                     {"id-bytes", NULL, &id_bytes},
                                     {"json", &json, NULL},
                                     {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"size", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    struct config cfg;
    struct asked a;
    struct sizes s;
    struct err err;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (users == NULL || plays == NULL) {
        return cli_misuse("size", "expected --users N and --plays-a-month N");
    }
    if (!read_number("users", users, 1, 1e12, &a.users) ||
        !read_number("plays-a-month", plays, 1, USER_SIZE_PLAYS_MAX, &a.plays) ||
        !read_number("candidates", candidates, 1, 65536, &a.candidates) ||
        !read_number("id-bytes", id_bytes, 1, 255, &a.id_bytes)) {
        return EXIT_USAGE;
    }
    a.questions = a.users * a.plays / MONTH_DAYS / DAY_S / 7;
    if (questions != NULL && !read_number("questions", questions, 0, 1e9, &a.questions)) {
        return EXIT_USAGE;
    }
    if (cli_options_config(&options, &cfg, &err) < 0 || reckon(&a, &cfg, &s, &err) < 0) {
        return cli_fail(&err);
    }
    json ? print_json(&s) : print_people(&a, &cfg, &s);
    return EXIT_GOOD;
}
