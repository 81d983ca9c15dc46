/* `unseen load`: files of `unseen export` into a folder or a running server, by union.
 *
 * Every file is read to its end before anything is changed, then once more to load it. Input from a pipe is copied to a
 * temporary file first. An interrupted load may be repeated.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/transfer/export_file.h"
#include "cli/transfer/load_target.h"
#include "store/codec/user_snapshot.h"

static const char help[] =
    "Loads users that `unseen export` wrote: into the data folder, or into the server that has it; with store = rados\n"
    "into the pool.\n\n"
    "Usage: unseen load [--to ADDRESS] [OPTION ...] FILE...\n\n"
    "A FILE is read to its end before anything is loaded: one that is damaged, cut off, of another seed or of a\n"
    "newer version changes nothing. - is standard input, which is copied to a temporary file first. A folder without\n"
    "plays adopts the file's seed, and so does a pool that no `unseen rados init` has made ready yet.\n\n"
    "Users are united with what is there: afterwards an item is hidden that either has hidden. Each user comes in\n"
    "as a whole. Loading twice changes nothing, so an interrupted load is just repeated. What can't be loaded at the\n"
    "moment (-BUSY) is tried again, until nothing could be loaded for ten minutes; a server that goes away meanwhile "
    "is\n"
    "waited for, for one minute, and gets what it had not acknowledged once more. A user who was forgotten here does\n"
    "not come back with an older file: only months after that of the FORGET are taken, and deliveries after it. A\n"
    "single item that was forgotten here and that the file has is seen again: forget it once more.\n\n"
    "Options:\n"
    "      --to ADDRESS       load into the server at host:port, tls://host:port or unix:/path; its password is\n"
    "                         requirepass of the configuration, or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --check            read the files, say what is in them, load nothing\n"
    "      --new              begin an empty history where the data folder holds none, although\n"
    "                         expect_data says that it should\n"
    "      --json             print the summary as JSON\n"
    "      --quiet            print no summary and no progress\n\n"
    "Exit code: 0 loaded; 1 failed, or some users could not be loaded: they are named; 2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen load users.unseen\n"
    "  unseen load --to 10.0.0.7:7979 shard0.unseen shard1.unseen\n"
    "  ssh old runuser -u unseen -- unseen export - | unseen load --to 127.0.0.1:7979 -\n";

enum { SHOWN_MAX = 20 /* of the users that are listed; JSON has all */ };

struct names {
    struct buf ids; /* each behind a length byte */
    uint64_t n;
};

struct loading {
    const char *to;
    bool check, json, quiet, begin_new;
    struct config cfg;
    FILE **files;
    char **paths;
    int n_files;
    uint64_t size, done; /* bytes of all files */
    struct export_head head;
    struct export_counts counts;
    uint64_t loaded, old;
    struct names over, crowded;
    struct arena arena;
    struct progress progress;
    const char *reading; /* the file at hand, NULL: none */
};

static const char *shown(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* --- files --- */

static int get(void *arg, void *bytes, size_t size, size_t *n, struct err *err)
{
    FILE *file = arg;
    *n = fread(bytes, 1, size, file);
    return *n == 0 && ferror(file) ? err_set(err, ERR_IO, "can't read: %s", strerror(errno)) : 0;
}

/* Copies what can be read only once. */
static int spool(FILE **file, struct err *err)
{
    char bytes[64 * 1024];
    size_t n;
    FILE *copy = tmpfile();
    if (copy == NULL) {
        return err_set(err, ERR_SYSTEM, "can't make a temporary file: %s", strerror(errno));
    }
    while ((n = fread(bytes, 1, sizeof bytes, *file)) > 0) {
        if (fwrite(bytes, 1, n, copy) != n) {
            break;
        }
    }
    bool unread = ferror(*file) != 0;
    if (unread || n > 0 || fflush(copy) != 0) {
        int rc = err_set(err, unread ? ERR_IO : ERR_FULL, "can't %s: %s", unread ? "read" : "write a temporary copy",
                         strerror(errno));
        fclose(copy);
        return rc;
    }
    if (*file != stdin) {
        fclose(*file);
    }
    *file = copy;
    return 0;
}

static int open_file(const char *path, FILE **file, uint64_t *size, struct err *err)
{
    struct stat st;
    *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (*file == NULL) {
        return err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_SYSTEM, "can't open %s: %s", path, strerror(errno));
    }
    int rc = 0;
    if (fstat(fileno(*file), &st) < 0 || !S_ISREG(st.st_mode) || *file == stdin) {
        rc = spool(file, err);
        if (rc == 0 && fstat(fileno(*file), &st) < 0) {
            rc = err_set(err, ERR_SYSTEM, "can't tell its size: %s", strerror(errno));
        }
    }
    *size = rc == 0 ? (uint64_t)st.st_size : 0;
    return rc < 0 ? err_prefix(err, "%s", shown(path)) : 0;
}

static void add_counts(struct export_counts *sum, const struct export_counts *c)
{
    sum->users += c->users;
    sum->months += c->months;
    sum->plays += c->plays;
    sum->deliveries += c->deliveries;
    sum->exceptions += c->exceptions;
    sum->damaged += c->damaged;
    sum->migration_state += c->migration_state;
    sum->forgotten += c->forgotten;
}

/* Reads one file to its end; its users go to the target, if there is one. */
static int read_file(struct loading *l, int i, struct load_target *target, struct err *err)
{
    struct export_reader *r;
    struct export_head head;
    struct export_counts counts;
    struct slice snapshot;
    char text[OUTPUT_TEXT];
    uint64_t users = 0;
    rewind(l->files[i]);
    l->reading = shown(l->paths[i]);
    int rc = export_reader_new(get, l->files[i], &head, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (i > 0 && head.seed != l->head.seed) {
        rc = err_set(err, ERR_SEED, "its seed (fingerprint %08" PRIx32 ") is not that of %s",
                     hash_seed_fingerprint(head.seed), shown(l->paths[0]));
    }
    l->head = head;
    while (rc == 0 && (rc = export_reader_next(r, &snapshot, &counts, err)) == 1) {
        rc = 0;
        if (target != NULL && (rc = load_target_add(target, snapshot, err)) < 0) {
            l->reading = NULL; /* it is not the file's fault */
        }
        if (++users % 256 == 0) {
            long at = ftell(l->files[i]);
            progress_show(&l->progress, l->done + (at > 0 ? (uint64_t)at : 0), l->size, "%s user%s  %s",
                          count_text(target != NULL ? l->loaded : users, text),
                          plural(target != NULL ? l->loaded : users), shown(l->paths[i]));
        }
    }
    export_reader_free(r);
    if (rc == 0 && target == NULL) {
        add_counts(&l->counts, &counts);
    }
    long end = ftell(l->files[i]);
    l->done += end > 0 ? (uint64_t)end : 0;
    return rc;
}

static int read_files(struct loading *l, struct load_target *target, struct err *err)
{
    int rc = 0;
    l->done = 0;
    progress_begin(&l->progress, target == NULL ? "check" : "load", l->quiet || l->json);
    for (int i = 0; i < l->n_files && rc == 0; i++) {
        rc = read_file(l, i, target, err);
    }
    if (rc == 0 && target != NULL) {
        l->reading = NULL;
        rc = load_target_end(target, err);
    }
    progress_end(&l->progress);
    return rc < 0 && l->reading != NULL ? err_prefix(err, "%s", l->reading) : rc;
}

/* --- what became of the users --- */

static void note(struct loading *l, struct names *names, struct slice bytes)
{
    struct user_snapshot snapshot;
    arena_reset(&l->arena);
    names->n++;
    if (user_snapshot_decode(bytes.data, bytes.len, &l->arena, &snapshot, NULL) == 0) {
        char len = (char)snapshot.user.len;
        buf_add(&names->ids, &len, 1);
        buf_add(&names->ids, snapshot.user.data, snapshot.user.len);
    }
}

static void imported(void *arg, struct slice snapshot, int verdict)
{
    struct loading *l = arg;
    switch (verdict) {
    case IMPORT_OLD:
        l->old++;
        break;
    case IMPORT_CROWDED:
        note(l, &l->crowded, snapshot);
        break;
    case IMPORT_OVER:
        note(l, &l->over, snapshot);
        l->loaded++;
        break;
    default:
        l->loaded++;
        break;
    }
}

static bool next_name(const struct names *names, size_t *at, struct slice *id)
{
    if (*at >= names->ids.len) {
        return false;
    }
    size_t len = (uint8_t)names->ids.data[*at];
    *id = slice_of(names->ids.data + *at + 1, len);
    *at += 1 + len;
    return true;
}

static void print_names(FILE *out, const struct names *names, const char *what)
{
    struct buf line = {0};
    struct slice id;
    char text[OUTPUT_TEXT];
    size_t at = 0;
    if (names->n == 0) {
        return;
    }
    fprintf(out, "%s user%s %s\n", count_text(names->n, text), plural(names->n), what);
    for (int i = 0; i < SHOWN_MAX && next_name(names, &at, &id); i++) {
        buf_clear(&line);
        escape_id(&line, id);
        fprintf(out, "  %.*s\n", (int)line.len, line.data);
    }
    if (names->n > SHOWN_MAX) {
        fprintf(out, "  ... and %s more (--json lists all)\n", count_text(names->n - SHOWN_MAX, text));
    }
    buf_free(&line);
}

static void print_json_names(struct json *j, const char *key, const struct names *names)
{
    struct slice id;
    size_t at = 0;
    json_open(j, key, '[');
    while (next_name(names, &at, &id)) {
        json_id(j, NULL, id);
    }
    json_close(j, ']');
}

static void print_summary(const struct loading *l)
{
    const struct export_counts *c = &l->counts;
    char users[OUTPUT_TEXT];
    char text[OUTPUT_TEXT];
    if (l->json) {
        struct json j = {.out = stdout};
        char fingerprint[9];
        snprintf(fingerprint, sizeof fingerprint, "%08" PRIx32, hash_seed_fingerprint(l->head.seed));
        json_open(&j, NULL, '{');
        export_counts_json(&j, c);
        json_text(&j, "seed_fingerprint", fingerprint);
        json_number(&j, "created_ms", l->head.created_ms);
        if (!l->check) {
            json_number(&j, "loaded", (int64_t)l->loaded);
            json_number(&j, "past_retention", (int64_t)l->old);
            print_json_names(&j, "beyond_error_rate", &l->over);
            print_json_names(&j, "not_loaded", &l->crowded);
        }
        json_close(&j, '}');
        return;
    }
    if (l->check && !l->quiet) {
        char date[OUTPUT_TEXT];
        printf("%s user%s, %s staged play%s, exported on %s, seed fingerprint %08" PRIx32 "\n",
               count_text(c->users, users), plural(c->users), count_text(c->plays, text), plural(c->plays),
               date_text(l->head.created_ms, date), hash_seed_fingerprint(l->head.seed));
    } else if (!l->quiet) {
        printf("%s user%s loaded\n", count_text(l->loaded, users), plural(l->loaded));
        if (c->migration_state > 0) {
            printf("%s of them are noted: the rest of theirs is read from the old Redis that [legacy] names\n",
                   count_text(c->migration_state, text));
        }
        if (l->old > 0) {
            printf("%s user%s with nothing within the retention\n", count_text(l->old, text), plural(l->old));
        }
        print_names(stdout, &l->over, "beyond error_rate now, the chance that an unseen item is hidden:");
    }
    print_names(stderr, &l->crowded, "not loaded, because a month has too many parts:");
}

static int run(struct loading *l, struct err *err)
{
    struct load_target *target;
    for (int i = 0; i < l->n_files; i++) {
        uint64_t size;
        int rc = open_file(l->paths[i], &l->files[i], &size, err);
        if (rc < 0) {
            return rc;
        }
        l->size += size;
    }
    int rc = read_files(l, NULL, err);
    if (rc < 0 || l->check) {
        return rc;
    }
    if ((rc = load_target_open(&l->cfg, l->to, l->begin_new, l->head.seed, imported, l,
                               l->quiet || l->json ? NULL : &l->progress, &target, err)) < 0) {
        return rc;
    }
    rc = read_files(l, target, err);
    load_target_close(target);
    if (rc < 0 && l->loaded > 0) {
        char text[sizeof err->text];
        memcpy(text, err->text, sizeof text);
        rc = err_set(err, rc, "%s (stopped there; loading again is harmless)", text);
    }
    return rc;
}

static int count_standard_input(const struct cli_options *options)
{
    int n = 0;
    for (int i = 0; i < options->n_words; i++) {
        n += strcmp(options->words[i], "-") == 0;
    }
    return n;
}

int cli_load(int argc, char **argv)
{
    struct loading l = {0};
    const struct cli_flag flags[] = {
        {"to", NULL, &l.to},       {"check", &l.check, NULL},   {"json", &l.json, NULL},
        {"quiet", &l.quiet, NULL}, {"new", &l.begin_new, NULL}, {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"load", help, "a FILE, or - for standard input", 1, -1, flags, false};
    struct cli_options options;
    struct err err;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (count_standard_input(&options) > 1) {
        return cli_misuse("load", "- is given twice, but standard input can be read only once");
    }
    if (cli_options_config(&options, &l.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    l.paths = options.words;
    l.n_files = options.n_words;
    l.files = calloc((size_t)l.n_files, sizeof *l.files);
    int rc = l.files == NULL ? err_set(&err, ERR_NOMEM, "out of memory") : run(&l, &err);
    exit_code = EXIT_GOOD;
    if (rc < 0) {
        exit_code = cli_fail(&err);
    } else {
        print_summary(&l);
        exit_code = l.crowded.n > 0 ? EXIT_FAILED : EXIT_GOOD;
    }
    for (int i = 0; i < l.n_files && l.files != NULL; i++) {
        if (l.files[i] != NULL && l.files[i] != stdin) {
            fclose(l.files[i]);
        }
    }
    free(l.files);
    buf_free(&l.over.ids);
    buf_free(&l.crowded.ids);
    arena_free(&l.arena);
    return exit_code;
}
