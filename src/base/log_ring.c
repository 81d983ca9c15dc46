/* Who logs takes a short lock, so that lines stand one after the other; the thread that writes takes none, and looks
 * only at how far the ring is filled. So it goes on also when a thread dies while it holds the lock. */
#include "base/log_ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    AGAIN_MS = 250, /* after a write that failed */
    STEP_MS = 1,    /* of a wait for the thread */
};

static char ring[LOG_RING_BYTES];
static _Atomic uint64_t put_bytes, written_bytes; /* ever; what lies between them is in the ring */
static _Atomic uint64_t lost_lines;               /* ever */
static atomic_bool begun, failing;
static sem_t wake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of putting */
static uint64_t told_lines;                              /* of the lost ones */
static log_ring_note *make_note;

static void nap(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* --- putting, under the lock --- */

static size_t filled(void)
{
    return (size_t)(atomic_load_explicit(&put_bytes, memory_order_relaxed) -
                    atomic_load_explicit(&written_bytes, memory_order_acquire));
}

static void append(const char *line, size_t len)
{
    uint64_t at = atomic_load_explicit(&put_bytes, memory_order_relaxed);
    size_t from = (size_t)(at % LOG_RING_BYTES);
    size_t first = len < LOG_RING_BYTES - from ? len : LOG_RING_BYTES - from;
    memcpy(ring + from, line, first);
    memcpy(ring, line + first, len - first);
    atomic_store_explicit(&put_bytes, at + len, memory_order_release);
    sem_post(&wake);
}

/* In the place of the lost lines. Not before half of the ring is free: else a slow reader would get little more than
 * such notes. Returns whether none is missing any more. */
static bool tell_lost(void)
{
    uint64_t lost = atomic_load(&lost_lines) - told_lines;
    if (lost > 0 && filled() <= LOG_RING_BYTES / 2) {
        char note[LOG_RING_LINE];
        append(note, make_note(note, lost));
        told_lines += lost;
        lost = 0;
    }
    return lost == 0;
}

bool log_ring_put(const char *line, size_t len)
{
    if (!atomic_load_explicit(&begun, memory_order_acquire)) {
        return false;
    }
    pthread_mutex_lock(&lock);
    if (tell_lost() && len <= LOG_RING_BYTES - filled()) {
        append(line, len);
    } else {
        atomic_fetch_add(&lost_lines, 1);
    }
    pthread_mutex_unlock(&lock);
    return true;
}

/* --- the thread --- */

/* Whole lines, as many as one write takes. */
static size_t take(char out[LOG_RING_LINE])
{
    uint64_t at = atomic_load_explicit(&written_bytes, memory_order_relaxed);
    size_t n = (size_t)(atomic_load_explicit(&put_bytes, memory_order_acquire) - at);
    n = n < LOG_RING_LINE ? n : LOG_RING_LINE;
    size_t from = (size_t)(at % LOG_RING_BYTES);
    size_t first = n < LOG_RING_BYTES - from ? n : LOG_RING_BYTES - from;
    memcpy(out, ring + from, first);
    memcpy(out + first, ring, n - first);
    const char *last = memrchr(out, '\n', n);
    return last == NULL ? 0 : (size_t)(last + 1 - out);
}

/* Standard error is shared with other processes, so how it blocks is left as it is. */
static void write_out(const char *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(STDERR_FILENO, data + done, len - done);
        if (n > 0) {
            done += (size_t)n;
            atomic_store(&failing, false);
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&p, 1, AGAIN_MS);
        } else if (n == 0 || errno != EINTR) {
            atomic_store(&failing, true);
            nap(AGAIN_MS);
        }
    }
    atomic_fetch_add_explicit(&written_bytes, len, memory_order_release);
}

/* Also when nothing is logged any more. */
static void tell_lost_alone(void)
{
    if (atomic_load(&lost_lines) > 0 && pthread_mutex_trylock(&lock) == 0) {
        tell_lost();
        pthread_mutex_unlock(&lock);
    }
}

static void *writer_main(void *arg)
{
    char chunk[LOG_RING_LINE];
    pthread_setname_np(pthread_self(), "log");
    for (;;) {
        size_t n = take(chunk);
        if (n > 0) {
            write_out(chunk, n);
            continue;
        }
        tell_lost_alone();
        while (sem_wait(&wake) < 0 && errno == EINTR) {
        }
    }
    return arg;
}

/* --- the end --- */

void log_ring_flush(void)
{
    for (int ms = 0;
         ms < LOG_RING_FLUSH_MS && !atomic_load(&failing) && atomic_load(&written_bytes) != atomic_load(&put_bytes);
         ms += STEP_MS) {
        nap(STEP_MS);
    }
}

static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGABRT};
enum { FATAL = sizeof fatal / sizeof *fatal };
static struct sigaction before[FATAL];

/* A fault comes again at once, with the action that there was before; a signal that was sent has to be sent again. */
static void on_fatal(int number, siginfo_t *info, void *context)
{
    (void)context;
    log_ring_flush();
    for (int i = 0; i < FATAL; i++) {
        if (fatal[i] == number) {
            sigaction(number, &before[i], NULL);
        }
    }
    if (info->si_code <= 0) {
        raise(number);
    }
}

int log_ring_begin(log_ring_note *note, struct err *err)
{
    pthread_t thread;
    make_note = note;
    sem_init(&wake, 0, 0);
    int code = pthread_create(&thread, NULL, writer_main, NULL);
    if (code != 0) {
        return err_set(err, ERR_SYSTEM, "can't start the thread of the log: %s", strerror(code));
    }
    pthread_detach(thread);
    atomic_store_explicit(&begun, true, memory_order_release);
    atexit(log_ring_flush);
    struct sigaction action = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < FATAL; i++) {
        sigaction(fatal[i], &action, &before[i]);
    }
    return 0;
}

void log_ring_look(struct log_ring_state *out)
{
    out->lost = atomic_load(&lost_lines);
    uint64_t written = atomic_load(&written_bytes); /* first: it never passes the other */
    out->waiting = atomic_load(&put_bytes) - written;
}
