/* `unseen pool`: lists of candidates that the server holds. A list is sent in pieces under a name that no question
 * names, and renamed once it is whole: so what asks for the pool sees the old one or the new one. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/server.h"
#include "dedup/pool.h"

static const char help[] =
    "Keeps pools: lists of candidates that the server holds, so that FILTER ... POOL asks about them without sending\n"
    "them.\n"
    "\n"
    "Usage: unseen pool load NAME FILE [--to ADDRESS] [OPTION ...]\n"
    "       unseen pool list [--json] [OPTION ...]\n"
    "       unseen pool get NAME [OPTION ...]\n"
    "       unseen pool drop NAME [OPTION ...]\n"
    "\n"
    "load makes the lines of FILE the pool, an id each, in place of what it had: at once, when all are there, or, "
    "after\n"
    "an error, not at all. FILE may be -, for standard input. An id that comes again keeps its first place. get "
    "prints\n"
    "the ids, a line each. All of them ask the server.\n"
    "\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that serves the\n"
    "                         data folder; its password is requirepass of the configuration, or $UNSEEN_PASSWORD;\n"
    "                         $UNSEEN_USER: its account\n"
    "      --json             with list: print JSON\n"
    "\n"
    "Exit code: 0 done; 1 it failed, or there is no such pool; 2 wrong usage.\n"
    "\n"
    "Examples:\n"
    "  unseen pool load hot hot.txt\n"
    "  recall --all | unseen pool load hot - --to 10.0.0.1:7979\n"
    "  unseen pool list\n";

enum { PIECE_ITEMS = 20000, PIECE_BYTES = 256 * 1024, GET_ITEMS = 10000, NAME_TEXT = 300, NUMBER_TEXT = 24 };

/* --- load --- */

struct loading {
    struct pipeline *pipeline;
    struct slice name;
    FILE *in;
    const char *path;
    char part[32]; /* the name that the pieces have until all are there */
    uint64_t line, pieces;
    struct buf bytes; /* of the piece */
    size_t ends[PIECE_ITEMS];
    size_t n;
    int64_t items;
};

/* 1: a piece is there; 0: the file is at its end. */
static int read_piece(struct loading *l, char **line, size_t *size, struct err *err)
{
    ssize_t len = 0;
    buf_clear(&l->bytes);
    l->n = 0;
    while (l->n < PIECE_ITEMS && l->bytes.len < PIECE_BYTES && (len = getline(line, size, l->in)) > 0) {
        l->line++;
        len -= (*line)[len - 1] == '\n';
        len -= len > 0 && (*line)[len - 1] == '\r';
        if (len < 1 || len > HASH_ID_MAX) {
            return err_set(err, ERR_INVALID, "%s:%" PRIu64 ": an id of %zd bytes: expected 1 to %d", l->path, l->line,
                           len, HASH_ID_MAX);
        }
        if (buf_add(&l->bytes, *line, (size_t)len) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        l->ends[l->n++] = l->bytes.len;
    }
    if (len < 0 && ferror(l->in)) {
        return err_set(err, ERR_IO, "%s: %s", l->path, strerror(errno));
    }
    return l->n > 0;
}

/* The answer says how many items the pool has now, and its version. */
static int ask_changed(struct loading *l, const char *name, const struct slice *words, size_t n, struct err *err)
{
    const struct reply *reply;
    int rc = pipeline_call(l->pipeline, words, n, &reply, err);
    if (rc == 0 && (reply->kind != REPLY_ARRAY || reply->n != 2 || !reply_integer(&reply->items[0], &l->items))) {
        rc = server_something_else(pipeline_address(l->pipeline), name, "a number and a version", err);
    }
    return rc;
}

static int send_piece(struct loading *l, struct err *err)
{
    struct slice *words = malloc((l->n + 3) * sizeof *words);
    if (words == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    words[0] = slice_str("POOL");
    words[1] = slice_str(l->pieces == 0 ? "SET" : "ADD");
    words[2] = slice_str(l->part);
    for (size_t i = 0, from = 0; i < l->n; from = l->ends[i++]) {
        words[3 + i] = slice_of(l->bytes.data + from, l->ends[i] - from);
    }
    int rc = ask_changed(l, "POOL SET", words, l->n + 3, err);
    free(words);
    l->pieces += rc == 0;
    return rc;
}

static int rename_part(struct loading *l, struct err *err)
{
    const struct slice words[] = {slice_str("POOL"), slice_str("RENAME"), slice_str(l->part), l->name};
    if (l->pieces == 0) {
        return err_set(err, ERR_INVALID, "%s: there are no ids: a pool holds at least one", l->path);
    }
    return ask_changed(l, "POOL RENAME", words, 4, err);
}

static void drop_part(struct loading *l)
{
    const struct slice words[] = {slice_str("POOL"), slice_str("DROP"), slice_str(l->part)};
    const struct reply *reply;
    struct err err;
    if (l->pieces > 0) {
        (void)pipeline_call(l->pipeline, words, 3, &reply, &err); /* what failed is told already */
    }
}

static int send_all(struct loading *l, struct err *err)
{
    char *line = NULL;
    size_t size = 0;
    int rc;
    while ((rc = read_piece(l, &line, &size, err)) == 1 && (rc = send_piece(l, err)) == 0) {
    }
    free(line);
    buf_free(&l->bytes);
    rc = rc < 0 ? rc : rename_part(l, err);
    if (rc < 0) {
        drop_part(l);
    }
    return rc;
}

static int load(const struct config *cfg, const char *to, const char *name, const char *path, struct err *err)
{
    static struct loading l;
    uint64_t chance;
    l = (struct loading){.name = slice_str(name), .path = path};
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance) {
        return err_set(err, ERR_SYSTEM, "can't draw a name: %s", strerror(errno));
    }
    snprintf(l.part, sizeof l.part, "loading-%016" PRIx64, chance);
    bool piped = strcmp(path, "-") == 0;
    l.in = piped ? stdin : fopen(path, "re");
    if (l.in == NULL) {
        return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    }
    int rc = server_pipeline(cfg, to, "pool", &l.pipeline, err);
    rc = rc < 0 ? rc : send_all(&l, err);
    pipeline_close(l.pipeline);
    if (!piped) {
        fclose(l.in);
    }
    if (rc == 0) {
        char count[OUTPUT_TEXT];
        printf("%s items\n", count_text((uint64_t)l.items, count));
    }
    return rc;
}

/* --- what there is --- */

static void print_list(const struct reply *list, bool json)
{
    struct json j = {.out = stdout};
    struct table t;
    if (json) {
        json_open(&j, NULL, '[');
    } else {
        table_begin(&t, "pool|items>|memory>|version|changed");
    }
    for (size_t i = 0; i < list->n; i++) {
        const struct reply *pool = &list->items[i];
        char items[OUTPUT_TEXT], bytes[OUTPUT_TEXT], version[NAME_TEXT], date[OUTPUT_TEXT];
        if (json) {
            json_open(&j, NULL, '{');
            reply_json(&j, pool);
            json_close(&j, '}');
            continue;
        }
        struct buf name = {0};
        const struct reply *field = reply_field(pool, "name");
        escape_id(&name, field != NULL ? field->text : slice_str(""));
        reply_copy(pool, "version", version, sizeof version);
        table_cell(&t, "%.*s", (int)name.len, name.data);
        table_cell(&t, "%s", count_text(reply_count(pool, "items"), items));
        table_cell(&t, "%s", size_text(reply_count(pool, "bytes"), bytes));
        table_cell(&t, "%s", version);
        table_cell(&t, "%s", date_text(reply_signed(pool, "changed"), date));
        buf_free(&name);
    }
    if (json) {
        json_close(&j, ']');
    } else {
        table_end(&t, stdout);
    }
}

static int show_list(struct client *client, bool json, struct err *err)
{
    const struct slice words[] = {slice_str("POOL"), slice_str("LIST")};
    const struct reply *reply;
    int rc = server_ask_list(client, words, 2, "name", &reply, err);
    if (rc == 0) {
        print_list(reply, json);
    }
    return rc;
}

static int no_pool(const char *name, struct err *err)
{
    return err_set(err, ERR_POOL, "there is no pool \"%s\"", name);
}

static int show_items(struct client *client, const char *name, struct err *err)
{
    char from[NUMBER_TEXT], count[NUMBER_TEXT];
    const struct reply *reply;
    uint64_t at = 0, n = 1;
    snprintf(count, sizeof count, "%d", GET_ITEMS);
    while (at < n) {
        snprintf(from, sizeof from, "%" PRIu64, at);
        const struct slice words[] = {slice_str("POOL"), slice_str("GET"), slice_str(name), slice_str(from),
                                      slice_str(count)};
        int rc = client_call(client, words, 5, &reply, err);
        if (rc < 0) {
            return rc;
        }
        const struct reply *ids = reply_field(reply, "ids");
        if (reply->kind == REPLY_NULL || (ids != NULL && ids->n == 0)) {
            return no_pool(name, err);
        }
        n = reply_count(reply, "items");
        if (ids == NULL || n > POOL_ITEMS_MAX) {
            return server_something_else(client_address(client), "POOL GET", "a pool's ids", err);
        }
        for (size_t i = 0; i < ids->n; i++) {
            struct slice id = ids->items[i].text;
            fwrite(id.data, 1, id.len, stdout);
            putchar('\n');
        }
        at += ids->n;
    }
    return 0;
}

static int drop(struct client *client, const char *name, struct err *err)
{
    const struct slice words[] = {slice_str("POOL"), slice_str("DROP"), slice_str(name)};
    const struct reply *reply;
    int64_t dropped = 0;
    int rc = client_call(client, words, 3, &reply, err);
    if (rc == 0 && (!reply_integer(reply, &dropped) || dropped < 0 || dropped > 1)) {
        return server_something_else(client_address(client), "POOL DROP", "0 or 1", err);
    }
    return rc == 0 && dropped == 0 ? no_pool(name, err) : rc;
}

static const struct verb {
    const char *name;
    int words;
} verbs[] = {{"load", 3}, {"list", 1}, {"get", 2}, {"drop", 2}, {NULL, 0}};

static int run(const struct config *cfg, const char *to, char **words, bool json, struct err *err)
{
    if (strcmp(words[0], "load") == 0) {
        return load(cfg, to, words[1], words[2], err);
    }
    struct client *client;
    int rc = server_connect(cfg, to, &client, err);
    if (rc == 0) {
        rc = words[0][0] == 'g'   ? show_items(client, words[1], err)
             : words[0][0] == 'd' ? drop(client, words[1], err)
                                  : show_list(client, json, err);
        client_close(client);
    }
    return rc;
}

int cli_pool(int argc, char **argv)
{
    bool json = false;
    const char *to = NULL;
    const struct cli_flag flags[] = {{"to", NULL, &to}, {"json", &json, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"pool", help, "load NAME FILE, list, get NAME or drop NAME", 1, 3, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    const struct verb *verb = verbs;
    while (verb->name != NULL && strcmp(verb->name, options.words[0]) != 0) {
        verb++;
    }
    if (verb->name == NULL || options.n_words != verb->words) {
        return cli_misuse("pool", "expected load NAME FILE, list, get NAME or drop NAME");
    }
    if (json && strcmp(verb->name, "list") != 0) {
        return cli_misuse("pool", "--json goes with list");
    }
    struct config cfg;
    struct err err;
    return cli_options_config(&options, &cfg, &err) < 0 || run(&cfg, to, options.words, json, &err) < 0 ? cli_fail(&err)
                                                                                                        : EXIT_GOOD;
}
