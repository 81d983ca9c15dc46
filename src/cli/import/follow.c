#include "cli/import/follow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "cli/import/follow_file.h"
#include "cli/import/import_input.h"

enum {
    STEP_MS = 100, /* a file is looked at so often, and a signal noticed */
    FIRST_DELAY_MS = 100,
    LAST_DELAY_MS = 5000,
};

struct follow {
    struct import *im;
    const char *name;        /* of the input */
    struct import_input *in; /* a pipe, or NULL: */
    struct follow_file file;
    char *bytes; /* read, and not acknowledged */
    size_t n, size;
    size_t fresh;                /* the last ones of them, which no group has seen yet */
    int64_t since_us;            /* when the first of those came */
    struct import_reader before; /* the reader as it was before these bytes */
    struct import_tally counted; /* the tally, likewise */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static void take_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void sleep_ms(int64_t ms)
{
    for (int64_t until = clock_real_us() + ms * 1000; !stopped && clock_real_us() < until;) {
        poll(NULL, 0, ms < STEP_MS ? (int)ms : STEP_MS);
    }
}

/* --- the server --- */

int follow_connect(struct import *im, int64_t *retention, struct err *err)
{
    const struct import_remote_how how = {.address = im->to, .password = im->password, .once = true};
    int64_t delay_ms = 0;
    bool told = false;
    take_signals();
    for (;;) {
        import_remote_close(im->remote);
        im->remote = NULL;
        int rc = import_remote_open(&how, &im->remote, retention, err);
        if (rc == 0 && told) {
            fprintf(stderr, "import: the server at %s is back\n", im->to);
        }
        if (rc == 0 || rc == ERR_INVALID || rc == ERR_NOMEM) {
            return rc;
        }
        if (!told) {
            fprintf(stderr, "import: %s; trying again\n", err->text);
        }
        told = true;
        delay_ms = backoff_next(delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
        sleep_ms(delay_ms);
        if (stopped) {
            return err_set(err, ERR_CLOSED, "ended while the server at %s was away", im->to);
        }
    }
}

/* Puts the bytes through the reader into the server, once. *taken: whole records; the rest is a part of one. */
static int send_once(struct follow *f, bool ended, size_t *taken, struct err *err)
{
    struct import_reader *r = &f->im->reader;
    char *own = r->bytes;
    size_t room;
    *r = f->before;
    r->bytes = own;
    r->begin = r->end = r->scanned = 0;
    memcpy(import_reader_room(r, &room), f->bytes, f->n);
    int rc = 0;
    if (f->n > 0) {
        import_reader_filled(r, f->n);
        rc = import_drain(f->im, f->name, false, err);
    }
    if (rc == 0 && ended) {
        import_reader_room(r, &room);
        import_reader_filled(r, 0);
        rc = import_drain(f->im, f->name, false, err);
    }
    *taken = f->n - (r->end - r->begin);
    return rc < 0 ? rc : import_remote_end(f->im->remote, &f->im->tally, err);
}

/* Sends the bytes until they are acknowledged, and keeps those that are no whole record. ended: no more will come. */
static int send_group(struct follow *f, bool ended, struct err *err)
{
    struct import *im = f->im;
    uint64_t events = im->tally.events;
    int64_t retention;
    size_t taken = 0;
    int rc = import_tally_until(&im->tally, clock_wall_ms(), err);
    rc = rc < 0 ? rc : import_tally_copy(&f->counted, &im->tally, err);
    if (rc < 0) {
        return rc;
    }
    while ((rc = send_once(f, ended, &taken, err)) < 0) {
        if (rc == ERR_NOMEM || rc == ERR_INVALID) {
            return rc;
        }
        if (im->rejects != NULL) {
            import_rejects_drop(im->rejects); /* they come again */
        }
        fprintf(stderr, "import: %s\n", err->text);
        sleep_ms(FIRST_DELAY_MS); /* a server that is there, and refuses */
        rc = follow_connect(im, &retention, err);
        rc = rc < 0 ? rc : import_tally_copy(&im->tally, &f->counted, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (im->rejects != NULL && (rc = import_rejects_sync(im->rejects, err)) < 0) {
        return rc;
    }
    f->before = im->reader;
    f->n -= taken;
    memmove(f->bytes, f->bytes + taken, f->n);
    f->fresh = 0;
    if (im->tally.events != events) {
        import_tell_durable(im, f->name);
    }
    if (f->in == NULL && taken > 0) {
        rc = follow_file_save(&f->file, f->file.offset - f->n, f->before.next_line, err);
    }
    return rc;
}

/* --- the input --- */

/* What comes next begins a new input. */
static void begin_anew(struct follow *f, uint64_t line)
{
    import_reader_restart(&f->im->reader);
    f->before = f->im->reader;
    f->before.next_line = line;
    f->before.past_first = f->before.started = line > 1;
    f->n = f->fresh = 0;
}

/* Reads what is there. *ended: there will never be more. */
static int read_more(struct follow *f, bool *ended, struct err *err)
{
    size_t n = 0;
    enum follow_news news = FOLLOW_BYTES;
    int rc = 0;
    *ended = false;
    if (f->in == NULL) {
        rc = follow_file_read(&f->file, f->bytes + f->n, f->size - f->n, &n, &news, err);
    } else if (import_input_wait(f->in, STEP_MS)) {
        rc = import_input_read(f->in, f->bytes + f->n, f->size - f->n, &n, err);
        *ended = rc == 0 && n == 0;
    }
    if (rc < 0) {
        return rc;
    }
    if (*ended && import_input_again(f->in)) {
        *ended = false; /* the last writer has gone; a next one begins a new input */
        rc = f->n > 0 ? send_group(f, true, err) : 0;
        begin_anew(f, 1);
        sleep_ms(STEP_MS);
        return rc;
    }
    if (news == FOLLOW_ENDED) {
        rc = send_group(f, true, err);
        follow_file_next(&f->file);
    }
    if (news != FOLLOW_BYTES) {
        begin_anew(f, 1);
        return rc;
    }
    if (n > 0 && f->fresh == 0) {
        f->since_us = clock_real_us();
    }
    f->n += n;
    f->fresh += n;
    if (n == 0 && f->in == NULL) {
        sleep_ms(STEP_MS);
    }
    return 0;
}

static bool is_due(const struct follow *f)
{
    return f->fresh > 0 &&
           (f->n == f->size || clock_real_us() - f->since_us >= (IMPORT_SUBMIT_MS - STEP_MS) * INT64_C(1000));
}

static int run(struct follow *f, struct err *err)
{
    bool ended = false;
    int rc = 0;
    while (rc == 0 && !ended && !stopped) {
        rc = read_more(f, &ended, err);
        if (rc == 0 && !ended && is_due(f)) {
            rc = send_group(f, false, err);
        }
    }
    /* Half a line that a signal cut off is no line, also when its writer ended with us. */
    return rc < 0 ? rc : send_group(f, ended && !stopped, err);
}

int follow(struct import *im, const char *path, struct err *err)
{
    struct follow f = {.im = im};
    uint64_t line = 1;
    int rc;
    import_reader_room(&im->reader, &f.size);
    f.bytes = malloc(f.size);
    if (f.bytes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    if (import_is_pipe(path)) {
        rc = import_input_follow(path, &f.in, err);
        f.name = rc == 0 ? import_input_name(f.in) : path;
    } else {
        rc = follow_file_open(&f.file, path, im->state, &line, err);
        f.name = path;
    }
    if (rc == 0) {
        im->tally.endless = true;
        begin_anew(&f, line);
        progress_begin(&im->progress, "import", im->quiet);
        rc = run(&f, err);
        progress_end(&im->progress);
    }
    if (f.in != NULL) {
        import_input_close(f.in);
    } else {
        follow_file_close(&f.file);
    }
    import_tally_free(&f.counted);
    free(f.bytes);
    return rc;
}
