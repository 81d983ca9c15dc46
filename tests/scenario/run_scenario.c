/* Runs one scenario: a text file, a command a line, against a real store in a folder of its own.
 *
 *   # comment
 *   command words ...                 must succeed
 *   command words ... = expected      must succeed, and answer exactly this (also != < > >= <=; ~ and !~ look for
 *                                     it inside)
 *   expect-error BUSY: command ...    must fail with that error (BUSY "text": ... and with that text)
 *   repeat 100 command u{i} ...       {i} counts from 0
 *   keep command ...                  keeps what it answers: from then on "= kept" compares with it
 *
 * x[1-3] stands for x1 x2 x3, \xff for a byte. Times are 2026-11-21T10:00Z, now, now-1d; durations 10s, 5min, 1h, 2d.
 *
 *   clock TIME            where the test's clock begins; the first line
 *   config NAME VALUE     at the next start; before the first: 6 slots of 1 h, UTC, defaults
 *   parts N               a slot's tables hold the rows of N ids each
 *   start stop restart    as SIGTERM and a new process do; crash: as kill -9 and a new process do
 *   advance D, to TIME    moves both clocks and does what became due; jump D: the wall clock alone
 *   tick                  does what is due
 *   accept, set-back      an administrator's word on the clock; built TIME: of the program, for the next start
 *
 *   played U I ...        playedat U TIME I ...   delivered U I ...   forget U [I ...]   flush
 *   bulk N COMMAND        N of played, playedat or delivered as one batch, with {i}
 *   send COMMAND          one of the above or jump, handed in and not waited for; wait: for all that was sent
 *
 *   unseen U I ...        the unseen ones; unseen-count U I ...: how many; seen U I ...: 0s and 1s
 *   why U I               places, newest first
 *   history U             nil, or months newest first and their items: 2026-11:3 2026-10:2 staged=1 delivered=0
 *   months                months newest first and their states: 2026-11:live 2026-04:expiring
 *   progress MONTH        of its sweep
 *   ring                  the slots' states; ring-rows; turn; busy; doubted: yes or no
 *   stat NAME             a counter of struct store_stats
 *   check                 how many problems a check of both files finds
 *
 *   fail OPS FILE N [full] [sticky]   the N-th write|sync|truncate|delete|open|change of staging|history fails
 *   hold OPS FILE N, held, release    the N-th waits; held waits until one does
 *   heal                              forgets all of this
 *   sql FILE SELECT ...   the rows, columns joined by |; exec FILE SQL ...: while stopped
 *   grep FILE TEXT        1 when the file holds the bytes, else 0; FILE is history.db, ...
 *   truncate FILE SIZE, garble FILE FROM N, write FILE TEXT, remove FILE     while stopped
 */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "scenario.h"
#include "store/stats.h"
#include "tests/lib/vfs_fault.h"

enum { HANG_SECONDS = 240 };

static struct scenario *current; /* for the alarm */

static void on_alarm(int sig)
{
    (void)sig;
    fail(current, "nothing has moved for %d s", HANG_SECONDS);
}

/* Cuts the first word off and returns what follows it. */
static char *after_word(char *text)
{
    text += strcspn(text, " \t");
    if (*text) {
        *text++ = '\0';
    }
    return text + strspn(text, " \t");
}

static int run(struct scenario *s, const char *text, int64_t i, struct err *err)
{
    static struct words w;
    static struct buf store;
    char copy[LINE_SIZE];
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = after_word(copy);
    if (strcmp(copy, "repeat") == 0) {
        char *command = after_word(rest);
        int64_t n = parse_number(s, rest);
        int rc = 0;
        for (int64_t k = 0; k < n && rc == 0; k++) {
            rc = run(s, command, k, err);
        }
        return rc;
    }
    if (strcmp(copy, "send") == 0) {
        s->sending = true;
        int rc = run(s, rest, i, err);
        s->sending = false;
        return rc;
    }
    if (strcmp(copy, "bulk") == 0) {
        char command[LINE_SIZE * 2];
        put_number(command, sizeof command, after_word(rest), "{j}", i);
        return run_bulk(s, command, parse_number(s, rest), err);
    }
    if (strcmp(copy, "keep") == 0) {
        int rc = run(s, rest, i, err);
        snprintf(s->kept, sizeof s->kept, "%.*s", (int)s->out.len, s->out.data);
        return rc;
    }
    if (strcmp(copy, "sql") == 0 || strcmp(copy, "exec") == 0) {
        char *sql = after_word(rest);
        return run_sql(s, rest, sql, strcmp(copy, "exec") == 0, err);
    }
    split(s, text, i, &w, &store);
    return run_command(s, &w, err);
}

/* expect-error NAME ["text"]: command */
static void run_expecting_error(struct scenario *s, char *line)
{
    char *name = after_word(line), *text = NULL, *command = NULL;
    char *quote = strchr(name, '"'), *colon = strchr(name, ':');
    if (quote && colon && quote < colon) {
        text = quote + 1;
        char *end = strchr(text, '"');
        colon = end ? strchr(end, ':') : NULL;
        if (end) {
            *end = '\0';
        }
        quote[-1] = '\0';
    }
    if (!colon) {
        fail(s, "expect-error NAME: command");
    }
    *colon = '\0';
    command = colon + 1 + strspn(colon + 1, " ");
    struct err err = {0};
    buf_clear(&s->out);
    int rc = run(s, command, -1, &err);
    if (rc == 0) {
        fail(s, "no error");
    }
    if (strcasecmp(err_name(rc), name) != 0 || (text && !strstr(err.text, text))) {
        fail(s, "another error: %s: %s", err_name(rc), err.text);
    }
}

static bool holds(const char *got, const char *op, const char *expected)
{
    if (strcmp(op, "=") == 0 || strcmp(op, "!=") == 0) {
        return (strcmp(got, expected) == 0) == (op[0] == '=');
    }
    if (strcmp(op, "~") == 0 || strcmp(op, "!~") == 0) {
        return (strstr(got, expected) != NULL) == (op[0] == '~');
    }
    double a = atof(got), b = atof(expected);
    bool equal = op[1] == '=' && a == b;
    return *got && (equal || (op[0] == '>' ? a > b : a < b));
}

/* The last " = ", " >= " ... of a line, so that SQL may hold some of its own. */
static char *find_operator(char *line, size_t *len)
{
    static const char *const operators[] = {"=", "!=", ">=", "<=", "<", ">", "~", "!~"};
    for (char *at = line + strlen(line); at > line; at--) {
        for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
            size_t n = strlen(operators[i]);
            if (at[-1] == ' ' && strncmp(at, operators[i], n) == 0 && (at[n] == ' ' || at[n] == '\0')) {
                *len = n;
                return at;
            }
        }
    }
    return NULL;
}

static void run_line(struct scenario *s, char *line)
{
    static struct words w;
    static struct buf store;
    size_t n = 0;
    if (strncmp(line, "expect-error ", 13) == 0) {
        run_expecting_error(s, line);
        return;
    }
    char *op = find_operator(line, &n), operator[3] = "";
    struct buf expected = {0};
    bool raw = strncmp(line, "exec ", 5) == 0;
    if (op && !raw) {
        memcpy(operator, op, n);
        split(s, op + n, -1, &w, &store); /* writes x[1-3] out, joins by single blanks */
        for (int i = 0; i < w.n; i++) {
            buf_addf(&expected, "%s%s", i > 0 ? " " : "", w.word[i]);
        }
        op[-1] = '\0';
    }
    struct err err = {0};
    buf_clear(&s->out);
    if (run(s, line, -1, &err) < 0) {
        fail(s, "%s: %s", err_name(err.code), err.text);
    }
    buf_add(&s->out, "", 1);
    buf_add(&expected, "", 1);
    const char *wanted = strcmp(expected.data, "kept") == 0 ? s->kept : expected.data;
    if (operator[0] && !holds(s->out.data, operator, wanted)) {
        fail(s, "answered \"%s\", expected %s \"%s\"", s->out.data, operator, wanted);
    }
    buf_free(&expected);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: run_scenario FILE\n");
        return 2;
    }
    FILE *file = fopen(argv[1], "r");
    char folder[] = "/tmp/unseen-scenario-XXXXXX";
    if (!file || !mkdtemp(folder)) {
        perror(argv[1]);
        return 2;
    }
    static struct scenario s;
    current = &s;
    s.path = argv[1];
    vfs_fault_register();
    log_set_level(getenv("UNSEEN_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN);
    world_init(&s.world, folder, VFS_FAULT_NAME);
    signal(SIGALRM, on_alarm);
    char line[LINE_SIZE];
    while (fgets(line, sizeof line, file)) {
        s.line++;
        char *comment = line[0] == '#' ? line : strstr(line, " #");
        line[comment ? (size_t)(comment - line) : strcspn(line, "\n")] = '\0';
        for (size_t n = strlen(line); n > 0 && isspace((unsigned char)line[n - 1]); n--) {
            line[n - 1] = '\0';
        }
        if (line[0] == '\0') {
            continue;
        }
        if (!s.clock_set && strncmp(line, "clock ", 6) != 0) {
            fail(&s, "the first line sets the clock");
        }
        snprintf(s.text, sizeof s.text, "%s", line);
        alarm(HANG_SECONDS);
        run_line(&s, line);
    }
    alarm(0);
    vfs_fault_heal();
    world_stop(&s.world);
    buf_free(&s.out);
    fclose(file);
    world_remove_folder(folder);
    printf("%s: passed\n", argv[1]);
    return 0;
}
