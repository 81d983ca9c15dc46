/* `unseen import`: files through the reader into a target: the data folder, a running server, or nothing (--dry-run).
 *
 * A malformed line is counted and skipped. With --strict the files are read twice: first only for malformed lines,
 * before anything is opened for writing, so that a bad file loads nothing. A pipe can be read only once. An interrupted
 * import may be repeated, because a load is a union.
 *
 * A pipe may stay open for ever, so its events are submitted when they are SUBMIT_MS old, and the number of durable
 * ones is printed. A pipe that is never empty needs no timer: full batches are submitted anyway.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/plural.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/import/follow.h"
#include "cli/import/import_impl.h"
#include "cli/import/import_input.h"
#include "cli/import/letters.h"
#include "cli/lib/data_folder.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "net/client.h"
#include "store/bulk.h"
#include "store/rados/rados_store.h"
#include "store/sqlite/sqlite_store.h"
#include "store/stats.h"

enum { MAX_REJECTS = 1000 * 1000 };

static const char help[] =
    "Loads plays from files: into the data folder, into the pool with store = rados, or into a running server.\n\n"
    "Usage: unseen import [--to ADDRESS] [OPTION ...] FILE...\n"
    "       unseen import --dead-letters [--to ADDRESS] [OPTION ...] [FILE...]\n\n"
    "A FILE is TSV, CSV (quotes as in RFC 4180) or NDJSON, plain or packed with gzip or zstd; - is standard input.\n"
    "Each line is a play: when (unix time in milliseconds), which user, which item. Ids are 1 to 255 bytes.\n\n"
    "  1383782400000<tab>u42<tab>video:7                              TSV\n"
    "  1383782400000,u42,\"video:7\"                                    CSV\n"
    "  {\"unix_ms\": 1383782400000, \"user\": \"u42\", \"item\": \"video:7\"}   NDJSON; other keys are ignored\n\n"
    "A first line \"unix_ms,user,item\" (or with tabs) is taken as a header. Malformed lines are counted, shown and\n"
    "skipped. Plays past retention, more than a day ahead, or not newer than a FORGET are counted and not loaded. A\n"
    "play that is there already changes nothing, so an import, also an interrupted one, may be repeated. A large "
    "import\n"
    "into the folder is faster with more memory: --staging-memory 1GiB.\n\n"
    "A server that is too busy (-BUSY) or still loading is asked again, for ten minutes; one that goes away meanwhile "
    "is\n"
    "waited for, for one, and gets what it had not acknowledged once more.\n\n"
    "Databases write TSV with escapes that begin with a backslash, and the word NULL for no value. Nothing in a file\n"
    "says so. So without --escapes a line with one in its time, user or item is not loaded, and the exit code is 1.\n\n"
    "Options:\n"
    "      --to ADDRESS       send to the server at host:port, tls://host:port or unix:/path; its password is\n"
    "                         requirepass of the configuration, or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --format FORMAT    tsv, csv or ndjson (default: told by each file's first line)\n"
    "      --columns LIST     which field of TSV or CSV is what: time, user and item once each, - for one that is "
    "passed\n"
    "                         over (default: time,user,item). A first line without a digit in its time is a header\n"
    "      --time-unit UNIT   the time is in s, ms, us or ns (default: ms). NDJSON and a header then name it unix_s,\n"
    "                         unix_us or unix_ns; only seconds may have a decimal point\n"
    "      --escapes WHOSE    of TSV: psql (COPY), mysql (--batch, INTO OUTFILE) or clickhouse (TabSeparated) wrote "
    "it;\n"
    "                         none: a backslash and the word NULL stand for themselves\n"
    "      --rejects FILE     write each line that was not loaded there, behind its file:line, a tab, why, and a tab. "
    "A\n"
    "                         new file, or with --follow also an old one, whose end it goes to\n"
    "      --max-rejects N    stop behind so many of them (default: 1000000); what came before is loaded\n"
    "      --dead-letters     load messages of Kafka that could not be read: those in the data folder, or in FILE\n"
    "      --strict           stop at the first malformed line. Files are checked before anything is loaded; of a "
    "pipe\n"
    "                         or standard input, what came before that line is loaded\n"
    "      --dry-run          read and count, load nothing\n"
    "      --follow           go on for ever: wait for more, and for a server that is away. A FILE is read on as it\n"
    "                         grows, is renamed and begins again; a named pipe, as writers come and go. Plain lines, "
    "where\n"
    "                         it is no pipe. SIGTERM ends it. Needs --to\n"
    "      --state FILE       where --follow keeps how far the file was acknowledged (default: the file's name with\n"
    "                         .follow behind it); one follower at a time has it\n"
    "      --new              begin an empty history where the data folder holds none, although\n"
    "                         expect_data says that it should\n"
    "      --json             print the summary as JSON\n"
    "      --quiet            print no summary and no progress\n\n"
    "A pipe may stay open: what it gave is loaded within a second, and a line says how many events are durable.\n\n"
    "Dead letters are read by the options of [kafka] as they are now, so correct those first, or the letters in their\n"
    "files. A letter leaves its file once what it says is durable; what still can't be read stays. Deliveries need a\n"
    "running server (--to), which takes them as of now; others stay.\n\n"
    "Exit code: 0 loaded (malformed lines or not); 1 failed, refused by the server, nothing loaded, or lines of which\n"
    "only --escapes can tell what they mean; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen import plays.tsv.gz\n"
    "  unseen import --dry-run --strict january.csv february.csv\n"
    "  psql -c 'copy plays to stdout' | unseen import --escapes psql -\n"
    "  mysql -BN -e 'select user, at, item from plays' shop | unseen import --escapes mysql --time-unit s \\\n"
    "      --columns user,time,item --rejects refused.tsv -\n"
    "  unseen import --to 127.0.0.1:7979 plays.ndjson.zst\n"
    "  unseen import --to 127.0.0.1:7979 --follow /var/log/plays.tsv\n"
    "  unseen import --dead-letters --to 127.0.0.1:7979\n";

int import_take_event(struct import *im, const struct import_event *event, const char *file, uint64_t line,
                      struct err *err)
{
    enum import_time time = import_tally_time(&im->tally, event->at_ms);
    if (time != IMPORT_TIME_GOOD) {
        if (im->rejects != NULL) {
            import_tally_reject_time(&im->tally, time, file, line, im->reader.raw);
        }
        return 0;
    }
    uint64_t user = hash_id(im->seed, event->user);
    uint64_t item = hash_id(im->seed, event->item);
    int rc = import_tally_event(&im->tally, event->at_ms, user, item, err);
    if (rc == 0 && im->store != NULL) {
        rc = im->store->bulk->add(im->store, event->at_ms, (int64_t)user, event->user, item, err);
    } else if (rc == 0 && im->remote != NULL) {
        rc = import_remote_add(im->remote, event, file, line, &im->tally, err);
    }
    return rc;
}

int import_drain(struct import *im, const char *file, bool check_only, struct err *err)
{
    struct import_reader *r = &im->reader;
    struct import_event event;
    int rc = 0;
    for (enum import_answer answer; rc == 0 && (answer = import_reader_next(r, &event)) != IMPORT_MORE;) {
        if (answer == IMPORT_EVENT) {
            rc = check_only ? 0 : import_take_event(im, &event, file, r->line, err);
        } else if (im->strict) {
            im->stopped = true;
            rc = err_set(err, ERR_INVALID, "%s:%llu: %s", file, (unsigned long long)r->line, r->err.text);
        } else {
            import_tally_malformed(&im->tally, file, r->line, r->err.text, r->raw);
            im->tally.untold += r->untold;
        }
    }
    /* The reader is about to move its bytes. */
    if (rc == 0 && im->remote != NULL) {
        rc = import_remote_flush(im->remote, &im->tally, err);
    }
    if (rc == 0 && im->rejects != NULL) {
        rc = import_rejects_good(im->rejects, err);
        im->stopped = rc == ERR_INVALID;
        if (rc == 0 && !im->follow) {
            rc = import_rejects_sync(im->rejects, err);
        }
    }
    return rc;
}

void import_tell_durable(struct import *im, const char *file)
{
    char count[OUTPUT_TEXT];
    im->submitted = im->tally.events;
    im->waiting_since_us = 0;
    count_text(im->submitted, count);
    if (im->progress.shown) {
        progress_show(&im->progress, 0, 0, "%s event%s  all durable  %s", count, plural(im->submitted), file);
    } else if (!im->quiet) {
        fprintf(stderr, "import: %s event%s durable\n", count, im->submitted == 1 ? " is" : "s are");
    }
}

int import_make_durable(struct import *im, struct err *err)
{
    if (im->store != NULL) {
        int rc = im->store->bulk->turn(im->store, err);
        return rc < 0 ? rc : im->store->bulk->turn(im->store, err); /* with nothing to hand over it waits */
    }
    return im->remote != NULL ? import_remote_end(im->remote, &im->tally, err) : 0;
}

static int submit(struct import *im, const struct import_input *in, struct err *err)
{
    int rc = import_make_durable(im, err);
    if (rc == 0) {
        import_tell_durable(im, import_input_name(in));
    }
    return rc;
}

/* Returns when the input has more, or has ended. Meanwhile what was read doesn't grow older than SUBMIT_MS. */
static int wait_for_input(struct import *im, const struct import_input *in, struct err *err)
{
    if (im->store == NULL && im->remote == NULL) {
        return 0;
    }
    if (im->waiting_since_us == 0 && im->tally.events > im->submitted) {
        im->waiting_since_us = clock_real_us();
    }
    int rc = 0;
    while (rc == 0 && im->waiting_since_us > 0) {
        int64_t left = IMPORT_SUBMIT_MS - (clock_real_us() - im->waiting_since_us) / 1000;
        if (import_input_wait(in, left > 0 ? (int)left : 0)) {
            break;
        }
        if (left <= 0) {
            rc = submit(im, in, err);
        }
    }
    return rc;
}

static int read_input(struct import *im, struct import_input *in, bool check_only, struct err *err)
{
    const char *file = import_input_name(in);
    char count[OUTPUT_TEXT];
    import_reader_restart(&im->reader);
    for (;;) {
        size_t room, n = 0;
        char *bytes = import_reader_room(&im->reader, &room);
        int rc = wait_for_input(im, in, err);
        if (rc == 0) {
            rc = import_input_read(in, bytes, room, &n, err);
        }
        if (rc == 0) {
            import_reader_filled(&im->reader, n);
            rc = import_drain(im, file, check_only, err);
        }
        if (rc < 0 || n == 0) {
            return rc;
        }
        progress_show(&im->progress, import_input_done(in), import_input_size(in), "%s event%s  %s",
                      count_text(im->tally.events, count), plural(im->tally.events), file);
    }
}

/* Reads the files: all of them to load them, or those that can be read again to check them. */
static int read_files(struct import *im, const struct cli_options *options, bool check_only, struct err *err)
{
    int rc = 0;
    progress_begin(&im->progress, check_only ? "check" : "import", im->quiet);
    for (int i = 0; rc == 0 && i < options->n_words; i++) {
        struct import_input *in;
        rc = import_input_open(options->words[i], &in, err);
        if (rc == 0) {
            if (!check_only || import_input_regular(in)) {
                rc = read_input(im, in, check_only, err);
            }
            import_input_close(in);
        }
    }
    progress_end(&im->progress);
    return rc;
}

/* Opens the target and sets the limits of good times by its clock and retention. */
static int begin(struct import *im, struct err *err)
{
    int64_t later = clock_wall_ms(), earlier = later, retention = im->cfg.retention;
    int rc = 0;
    if (im->dry_run) {
        return import_tally_init(&im->tally, retention, earlier, later, err);
    }
    if (im->to != NULL) {
        rc = client_prepare(&im->cfg, &im->password, err);
        if (rc == 0 && im->follow) {
            rc = follow_connect(im, &retention, err);
        } else if (rc == 0) {
            const struct import_remote_how how = {im->to, im->password, false, im->quiet ? NULL : &im->progress};
            rc = import_remote_open(&how, &im->remote, &retention, err);
        }
        return rc < 0 ? rc : import_tally_init(&im->tally, retention, earlier, later, err);
    }
    if (im->cfg.store == STORE_ENGINE_RADOS) {
        rc = rados_store_open(&im->cfg, &(struct rados_store_options){.use = RADOS_LOADS}, &im->store, err);
    } else {
        rc = data_folder_open(&im->cfg, "import", im->begin_new, &im->store, err);
    }
    if (rc == ERR_LOCKED) {
        char address[CONFIG_TEXT + 16];
        if (sqlite_store_address(im->cfg.data, address, sizeof(address), NULL) == 0 && address[0] != '\0') {
            err_set(err, rc, "a server has the data folder %s: import with --to %s", im->cfg.data, address);
        }
    }
    if (rc < 0) {
        return rc;
    }
    im->seed = im->store->ops->seed(im->store);
    im->store->ops->now(im->store, &later, &earlier);
    struct store_stats stats;
    im->store->ops->stats(im->store, &stats);
    im->forgotten = stats.forgotten_dropped;
    rc = import_tally_init(&im->tally, retention, earlier, later, err);
    return rc < 0 ? rc : im->store->bulk->begin(im->store, false, err);
}

static int end(struct import *im, struct err *err)
{
    int rc = 0;
    if (im->store != NULL) {
        struct store_stats stats;
        progress_begin(&im->progress, "import", im->quiet);
        progress_show(&im->progress, 0, 0, "writing the last of them ...");
        rc = im->store->bulk->end(im->store, err);
        progress_end(&im->progress);
        im->store->ops->stats(im->store, &stats);
        import_tally_forgotten(&im->tally, stats.forgotten_dropped - im->forgotten);
    } else if (im->remote != NULL) {
        rc = import_remote_end(im->remote, &im->tally, err);
    }
    return rc;
}

static int open_rejects(struct import *im, const struct cli_options *options, uint64_t max, struct err *err)
{
    int rc = import_rejects_open(im->rejects_path, im->follow, max, &im->rejects, err);
    for (int i = 0; rc == 0 && i < options->n_words; i++) {
        if (strcmp(options->words[i], "-") != 0 && import_rejects_is(im->rejects, options->words[i])) {
            rc = err_set(err, ERR_INVALID, "--rejects %s: that is the file that is read", im->rejects_path);
        }
    }
    return rc;
}

static int run(struct import *im, const struct cli_options *options, uint64_t max_rejects, struct err *err)
{
    int rc = import_reader_init(&im->reader, &im->rules);
    if (rc < 0) {
        return err_set(err, rc, "out of memory");
    }
    /* A file that isn't there must not leave a new folder behind. */
    for (int i = 0; i < options->n_words && !im->follow && !im->dead_letters; i++) {
        if ((rc = import_input_check(options->words[i], err)) < 0) {
            return rc;
        }
    }
    if (im->dead_letters && options->n_words == 0 && im->cfg.store == STORE_ENGINE_RADOS) {
        return err_set(err, ERR_INVALID,
                       "store = rados has no data folder: name the FILEs that the dead letters are in");
    }
    if (im->strict && (rc = read_files(im, options, true, err)) < 0) {
        return rc;
    }
    if (im->rejects_path != NULL && (rc = open_rejects(im, options, max_rejects, err)) < 0) {
        return rc;
    }
    if ((rc = begin(im, err)) < 0) {
        return rc;
    }
    im->tally.rejects = im->rejects;
    im->tally.of_letters = im->dead_letters;
    int64_t began = clock_figures_us();
    rc = im->dead_letters ? import_all_letters(im, options, err)
         : im->follow     ? follow(im, options->words[0], err)
                          : read_files(im, options, false, err);
    if (rc == 0) {
        rc = end(im, err);
    } else if (im->stopped) {
        end(im, NULL); /* what came before the malformed line; the error is that line */
    }
    if (im->rejects != NULL) { /* whatever else failed, unless it fails itself */
        struct err own;
        int failed = import_rejects_sync(im->rejects, &own);
        rc = rc < 0 || failed == 0 ? rc : err_set(err, failed, "%s", own.text);
    }
    im->tally.elapsed_us = clock_figures_us() - began;
    return rc;
}

/* The summary, and the exit code that it means. */
static int finish(const struct import *im)
{
    const struct import_tally *t = &im->tally;
    if (im->json) {
        import_tally_print_json(t, im->dry_run);
    } else if (!im->quiet) {
        import_tally_print(t, im->dry_run);
    }
    struct err err;
    if (t->n_bad > 0 && im->quiet && !im->json) {
        fprintf(stderr, "unseen import: %llu malformed or refused, the first at %s:%llu: %s\n",
                (unsigned long long)(t->malformed + t->refused), t->bad[0].file, (unsigned long long)t->bad[0].line,
                t->bad[0].reason);
    }
    if (t->refused > 0) {
        err_set(&err, ERR_INVALID, "import: the server refused %llu event%s", (unsigned long long)t->refused,
                plural(t->refused));
        return cli_fail(&err);
    }
    if (t->untold > 0) {
        err_set(&err, ERR_INVALID,
                "import: %llu line%s not loaded, since nothing says what a backslash or the word NULL means there: add "
                "--escapes psql, mysql, clickhouse or none, and repeat the import",
                (unsigned long long)t->untold, t->untold == 1 ? " was" : "s were");
        return cli_fail(&err);
    }
    bool some = t->malformed + t->too_old + t->ahead + t->forgotten > 0;
    if (t->of_letters ? t->malformed > 0 && t->events + t->too_old + t->ahead == 0
                      : t->events == 0 && (some || !im->follow)) {
        char why[IMPORT_WHY_NONE];
        err_set(&err, ERR_INVALID, "import: nothing %s loaded: %s", im->dry_run ? "would be" : "was",
                import_tally_why_none(t, why));
        return cli_fail(&err);
    }
    return EXIT_GOOD;
}

static int count_standard_input(const struct cli_options *options)
{
    int n = 0;
    for (int i = 0; i < options->n_words; i++) {
        n += strcmp(options->words[i], "-") == 0;
    }
    return n;
}

/* What does not go with --follow; NULL: all is well. */
static const char *wrong_follow(const struct import *im, const struct cli_options *options)
{
    return options->n_words != 1               ? "--follow takes one FILE, or -"
           : im->to == NULL                    ? "--follow needs --to ADDRESS"
           : im->strict || im->dry_run         ? "--follow goes with neither --strict nor --dry-run"
           : im->state == NULL                 ? NULL
           : import_is_pipe(options->words[0]) ? "--state is for a FILE; a pipe can't be read again"
                                               : NULL;
}

/* Puts into the rules what the options say of lines. NULL; or what is wrong with them. */
static const char *read_rules(struct import *im, struct err *err)
{
    struct import_rules *rules = &im->rules;
    import_rules_init(rules);
    rules->keep = im->rejects_path != NULL;
    if (im->format_name != NULL && import_format_parse(im->format_name, &rules->format) < 0) {
        err_set(err, ERR_INVALID, "--format '%s': expected tsv, csv or ndjson", im->format_name);
        return err->text;
    }
    if (im->unit_name != NULL && import_unit_parse(im->unit_name, &rules->unit) < 0) {
        err_set(err, ERR_INVALID, "--time-unit '%s': expected s, ms, us or ns", im->unit_name);
        return err->text;
    }
    if (im->escapes_name != NULL && import_escapes_parse(im->escapes_name, &rules->escapes) < 0) {
        err_set(err, ERR_INVALID, "--escapes '%s': expected psql, mysql, clickhouse or none", im->escapes_name);
        return err->text;
    }
    if (im->columns_name != NULL && import_columns_parse(im->columns_name, &rules->columns, err) < 0) {
        char why[sizeof err->text];
        snprintf(why, sizeof why, "%.200s", err->text);
        err_set(err, ERR_INVALID, "--columns '%s': %s; expected such as user,-,item,time", im->columns_name, why);
        return err->text;
    }
    if (im->columns_name != NULL && rules->format == IMPORT_NDJSON) {
        return "--columns is for TSV and CSV; NDJSON names its fields";
    }
    if (rules->escapes >= IMPORT_ESCAPES_PSQL) {
        if (rules->format == IMPORT_CSV || rules->format == IMPORT_NDJSON) {
            return "--escapes psql, mysql and clickhouse are for TSV";
        }
        rules->format = IMPORT_TSV;
    }
    return NULL;
}

int cli_import(int argc, char **argv)
{
    struct import im = {0};
    const struct cli_flag flags[] = {
        {"to", NULL, &im.to},
        {"format", NULL, &im.format_name},
        {"columns", NULL, &im.columns_name},
        {"time-unit", NULL, &im.unit_name},
        {"escapes", NULL, &im.escapes_name},
        {"rejects", NULL, &im.rejects_path},
        {"max-rejects", NULL, &im.max_rejects},
        {"strict", &im.strict, NULL},
        {"dry-run", &im.dry_run, NULL},
        {"json", &im.json, NULL},
        {"quiet", &im.quiet, NULL},
        {"follow", &im.follow, NULL},
        {"state", NULL, &im.state},
        {"dead-letters", &im.dead_letters, NULL},
        {"new", &im.begin_new, NULL},
        {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"import", help, "a FILE, or - for standard input", 0, -1, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct err err;
    const char *wrong = read_rules(&im, &err);
    if (wrong != NULL) {
        return cli_misuse("import", "%s", wrong);
    }
    uint64_t max_rejects = MAX_REJECTS;
    if (im.max_rejects != NULL && (im.rejects_path == NULL || !count_read(im.max_rejects, UINT64_MAX, &max_rejects))) {
        return cli_misuse("import", "--max-rejects is a number of lines, and needs --rejects");
    }
    if (im.rejects_path != NULL && im.strict) {
        return cli_misuse("import", "--rejects goes on behind a malformed line, and --strict stops there");
    }
    if (options.n_words == 0 && !im.dead_letters) {
        return cli_misuse("import",
                          "expected a FILE, or - for standard input, got 0 arguments: see unseen help import");
    }
    bool of_lines = im.format_name != NULL || im.columns_name != NULL || im.unit_name != NULL ||
                    im.escapes_name != NULL || im.rejects_path != NULL;
    if (im.dead_letters && (im.strict || im.follow || of_lines || count_standard_input(&options) > 0)) {
        return cli_misuse("import",
                          "--dead-letters goes with none of --strict, --follow, --format, --columns, --time-unit, "
                          "--escapes, --rejects and standard input");
    }
    if (count_standard_input(&options) > 1) {
        return cli_misuse("import", "- is given twice, but standard input can be read only once");
    }
    wrong = im.follow ? wrong_follow(&im, &options) : im.state != NULL ? "--state needs --follow" : NULL;
    if (wrong != NULL) {
        return cli_misuse("import", "%s", wrong);
    }
    if (cli_options_config(&options, &im.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    int rc = run(&im, &options, max_rejects, &err);
    if (im.store != NULL) {
        im.store->ops->close(im.store);
    }
    import_remote_close(im.remote);
    if (rc < 0 && im.tally.events > 0 && !im.dry_run) {
        char text[sizeof(err.text)];
        memcpy(text, err.text, sizeof(text));
        err_set(&err, rc, "%s (stopped there; repeating the import is harmless)", text);
    }
    exit_code = rc < 0 ? cli_fail(&err) : finish(&im);
    import_reader_free(&im.reader);
    import_rejects_close(im.rejects);
    import_tally_free(&im.tally);
    arena_free(&im.names);
    return exit_code;
}
