/* What the parts of the scenario runner share; the language stands at the top of run_scenario.c. */
#ifndef UNSEEN_TESTS_SCENARIO_H
#define UNSEEN_TESTS_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "tests/lib/world.h"

enum { WORDS_MAX = 4096, LINE_SIZE = 4096 };

struct scenario {
    struct world world;
    const char *path;
    int line;
    char text[LINE_SIZE]; /* of the line, for messages */
    bool clock_set;
    bool sending;   /* do not wait */
    struct buf out; /* what the command answered */
    char kept[256]; /* by the keep command */
};

struct words {
    char *word[WORDS_MAX];
    int n;
};

/* Ends the test with file, line and what is wrong. */
void fail(const struct scenario *s, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

int64_t parse_number(const struct scenario *s, const char *text);
int64_t parse_duration(const struct scenario *s, const char *text);
int64_t parse_time(const struct scenario *s, const char *text);

/* Copies text with the number in the place of `name`, wherever that stands. */
void put_number(char *out, size_t size, const char *text, const char *name, int64_t number);

/* Splits a line at blanks, puts i for {i} (unless i < 0), and writes x[1-3] out. The words point into `store`. */
void split(const struct scenario *s, const char *text, int64_t i, struct words *w, struct buf *store);
void need_words(const struct scenario *s, const struct words *w, int least);

/* Adds a word to what the command answers. */
void add_word(struct scenario *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs a command; what it answers goes to s->out. Returns 0 or its error. */
int run_command(struct scenario *s, const struct words *w, struct err *err);
int run_bulk(struct scenario *s, const char *text, int64_t n, struct err *err);
int run_sql(struct scenario *s, const char *file, const char *sql, bool change, struct err *err);

/* The commands fail and hold; held, release and heal; truncate, garble, write, remove and grep. */
int disk_fault(struct scenario *s, const struct words *w, struct err *err);
int disk_vfs(struct scenario *s, const struct words *w, struct err *err);
int disk_file(struct scenario *s, const struct words *w, struct err *err);

#endif
