/* How long one question takes, as a client sees it: the same FILTER ... REPLY BITMAP again and again over one
 * connection, each sent when the one before is answered.
 *
 * Usage: bench/ask ADDRESS USER ROUNDS < candidates (one a line)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/client.h"

enum { HEAD_WORDS = 5, ITEMS_LIMIT = 65536, ROUNDS_LIMIT = 1000000, WARM_UP = 3 };

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The candidates, as slices into *text. Returns how many, or 0. */
static size_t read_candidates(char **text, struct slice *items)
{
    size_t size = 0, n = 0, at = 0;
    ssize_t len = getdelim(text, &size, '\0', stdin);
    while (len > 0 && at < (size_t)len && n < ITEMS_LIMIT) {
        size_t line = strcspn(*text + at, "\n");
        if (line > 0) {
            items[n++] = slice_of(*text + at, line);
        }
        at += line + 1;
    }
    return n;
}

/* Returns how many bits of the reply are set, or -1. */
static long ask(struct client *client, const struct slice *words, size_t n, struct err *err)
{
    const struct reply *reply;
    if (client_call(client, words, n, &reply, err) < 0) {
        return -1;
    }
    if (reply->kind != REPLY_TEXT) {
        return err_set(err, ERR_INVALID, "a bitmap was expected");
    }
    long unseen = 0;
    for (size_t i = 0; i < reply->text.len; i++) {
        unseen += __builtin_popcount((unsigned char)reply->text.data[i]);
    }
    return unseen;
}

static int run(const char *address, const char *user, size_t rounds, struct err *err)
{
    static struct slice words[HEAD_WORDS + ITEMS_LIMIT];
    char *text = NULL;
    struct client *client = NULL;
    int64_t *times = calloc(rounds, sizeof *times);
    size_t n = read_candidates(&text, words + HEAD_WORDS);
    long unseen = -1;
    words[0] = slice_str("FILTER");
    words[1] = slice_str(user);
    words[2] = slice_str("REPLY");
    words[3] = slice_str("BITMAP");
    words[4] = slice_str("ITEMS");
    if (times == NULL) {
        err_set(err, ERR_NOMEM, "out of memory");
    } else if (n == 0) {
        err_set(err, ERR_INVALID, "no candidates on standard input");
    } else if (client_connect(address, getenv("UNSEEN_PASSWORD"), &client, err) == 0) {
        unseen = 0;
        for (size_t i = 0; i < WARM_UP && unseen >= 0; i++) {
            unseen = ask(client, words, HEAD_WORDS + n, err);
        }
        for (size_t i = 0; i < rounds && unseen >= 0; i++) {
            int64_t began = clock_stopwatch_us();
            unseen = ask(client, words, HEAD_WORDS + n, err);
            times[i] = clock_stopwatch_us() - began;
        }
    }
    if (unseen >= 0) {
        qsort(times, rounds, sizeof *times, compare_times);
        printf("%zu candidates, %ld unseen; %zu questions over one connection: median %.2f ms, 99 %% within %.2f ms\n",
               n, unseen, rounds, (double)times[rounds / 2] / 1000, (double)times[rounds * 99 / 100] / 1000);
    }
    client_close(client);
    free(times);
    free(text);
    return unseen < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    char *end = NULL;
    unsigned long rounds = argc == 4 ? strtoul(argv[3], &end, 10) : 0;
    if (argc != 4 || *end != '\0' || rounds < 1 || rounds > ROUNDS_LIMIT) {
        fputs("usage: ask ADDRESS USER ROUNDS < candidates\n", stderr);
        return 2;
    }
    if (run(argv[1], argv[2], rounds, &err) < 0) {
        fprintf(stderr, "ask: %s\n", err.text);
        return 1;
    }
    return 0;
}
