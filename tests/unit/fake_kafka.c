#include "tests/unit/fake_kafka.h"

#include <stdio.h>
#include <unistd.h>

#define LOCKED FAKE_KAFKA_LOCKED

struct kafka_client fake_kafka = {.mutex = PTHREAD_MUTEX_INITIALIZER, .committed = FAKE_KAFKA_COMMITTED};

static const char *version(void)
{
    return "a test's";
}

static int open_client(const struct client_setup *setup, struct kafka_client **out, char *text)
{
    bool refused;
    LOCKED(refused = fake_kafka.refusals > 0; fake_kafka.refusals -= refused; fake_kafka.opened += !refused);
    if (refused) {
        snprintf(text, CLIENT_TEXT, "refused by the test");
        return -1;
    }
    fake_kafka.hooks = setup->hooks;
    fake_kafka.owner = setup->owner;
    *out = &fake_kafka;
    return 0;
}

/* The offset that is given next, or -1. */
static int64_t take(struct kafka_client *c)
{
    if (c->next >= c->gap_first && c->next < c->gap_end) {
        c->next = c->gap_end;
    }
    if (c->next < 0 || c->next >= c->end || c->paused) {
        return -1;
    }
    int64_t offset = c->next++;
    if (offset == c->twice && offset != 0) {
        c->next = c->twice_from;
        c->twice = 0;
    }
    return offset;
}

static void tell(struct kafka_client *c, enum fake_kafka_tell what)
{
    if (what == FAKE_KAFKA_ASSIGN) {
        const struct client_position both[] = {{.topic = "plays", .offset = CLIENT_UNKNOWN},
                                               {.topic = "plays", .partition = 1, .offset = CLIENT_UNKNOWN}};
        c->hooks.assigned(c->owner, both, c->two ? 2 : 1);
    } else if (what == FAKE_KAFKA_REVOKE) {
        c->hooks.revoked(c->owner);
        LOCKED(c->next = -1);
    } else if (what == FAKE_KAFKA_FATAL) {
        c->hooks.error(c->owner, "fenced by the test", false, true);
    }
}

static enum client_event poll_client(struct kafka_client *c, int ms, struct client_message *out)
{
    pthread_mutex_lock(&c->mutex);
    enum fake_kafka_tell what = c->tell;
    c->tell = FAKE_KAFKA_QUIET;
    c->polls_paused += c->paused;
    bool outside = what == FAKE_KAFKA_QUIET && !c->paused && c->next >= 0 && (c->next < c->first || c->next > c->end);
    int64_t wanted = c->next;
    c->next = outside ? -1 : c->next;
    int64_t offset = what == FAKE_KAFKA_QUIET ? take(c) : -1;
    bool acknowledged = c->unacknowledged && !c->keeps_silent;
    c->unacknowledged = c->unacknowledged && !acknowledged;
    bool poison = offset >= c->poison_first && offset < c->poison_end;
    pthread_mutex_unlock(&c->mutex);
    tell(c, what);
    if (acknowledged) {
        c->hooks.committed(c->owner);
    }
    if (outside) {
        *out = (struct client_message){.topic = slice_str("plays"), .offset = wanted};
        return CLIENT_RESET;
    }
    if (offset < 0) {
        usleep((useconds_t)ms * 100);
        return CLIENT_NOTHING;
    }
    int n = snprintf(c->text, sizeof c->text, "%s{\"user\":\"u\",\"item\":\"i%d\"}", poison ? "no" : "", (int)offset);
    *out = (struct client_message){
        .topic = slice_str("plays"), .offset = offset, .at_ms = FAKE_KAFKA_MS, .value = slice_of(c->text, (size_t)n)};
    return CLIENT_MESSAGE;
}

static void done(struct kafka_client *c, struct client_message *message)
{
    (void)c;
    (void)message;
}

static int assign(struct kafka_client *c, const struct client_position *positions, size_t n, char *text)
{
    (void)text;
    LOCKED(c->assigned_at = n > 0 ? positions[0].offset : -1; c->next = c->assigned_at);
    return 0;
}

static int pause_client(struct kafka_client *c, bool paused, char *text)
{
    (void)text;
    LOCKED(c->paused = paused; c->has_paused = c->has_paused || paused);
    return 0;
}

static int store_offsets(struct kafka_client *c, const struct client_position *positions, size_t n, char *text)
{
    (void)text;
    LOCKED(c->nowhere = false; c->unacknowledged = true; c->stored = c->committed = positions[n - 1].offset;
           snprintf(c->note, sizeof c->note, "%s", positions[n - 1].note));
    return 0;
}

static int committed(struct kafka_client *c, const struct client_position *positions, size_t n,
                     struct client_committed *out, int ms, char *text)
{
    (void)positions;
    (void)ms;
    bool refused;
    LOCKED(refused = c->silences > 0; c->silences -= refused; c->asked++);
    if (refused) {
        snprintf(text, CLIENT_TEXT, "silent, by the test");
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        LOCKED(out[i].offset = c->nowhere ? CLIENT_UNKNOWN : c->committed;
               snprintf(out[i].note, sizeof out[i].note, "%s", c->note));
    }
    return 0;
}

static int range(struct kafka_client *c, const char *topic, int32_t partition, int ms, int64_t *first, int64_t *end,
                 char *text)
{
    (void)topic;
    (void)partition;
    (void)ms;
    (void)text;
    LOCKED(*first = c->first; *end = c->end);
    return 0;
}

static int at_time(struct kafka_client *c, const char *topic, int32_t partition, int64_t unix_ms, int ms,
                   int64_t *offset, char *text)
{
    (void)topic;
    (void)partition;
    (void)ms;
    (void)text;
    LOCKED(c->asked_ms = unix_ms; *offset = c->at_time);
    return 0;
}

static bool cluster(struct kafka_client *c, char *out, size_t size)
{
    (void)c;
    snprintf(out, size, "test");
    return true;
}

static int reach(struct kafka_client *c, int ms, char *text)
{
    (void)c;
    (void)ms;
    (void)text;
    return 0;
}

static void close_client(struct kafka_client *c, int ms)
{
    (void)ms;
    c->hooks.revoked(c->owner);
    LOCKED(c->closed = true; c->next = -1; c->paused = false);
}

const struct client_ops fake_kafka_ops = {
    .version = version,
    .open = open_client,
    .poll = poll_client,
    .done = done,
    .assign = assign,
    .pause = pause_client,
    .store = store_offsets,
    .committed = committed,
    .range = range,
    .at_time = at_time,
    .cluster = cluster,
    .reach = reach,
    .close = close_client,
};

void fake_kafka_begin(int64_t end)
{
    LOCKED(fake_kafka.tell = FAKE_KAFKA_ASSIGN; fake_kafka.end = end;
           fake_kafka.next = fake_kafka.assigned_at = fake_kafka.stored = -1;
           fake_kafka.paused = fake_kafka.has_paused = fake_kafka.closed = false);
}

void fake_kafka_reset(void)
{
    LOCKED(fake_kafka.committed = FAKE_KAFKA_COMMITTED; fake_kafka.note[0] = '\0';
           fake_kafka.silences = fake_kafka.asked = 0; fake_kafka.unacknowledged = fake_kafka.keeps_silent = false);
    LOCKED(fake_kafka.first = fake_kafka.poison_first = fake_kafka.poison_end = fake_kafka.gap_first = 0;
           fake_kafka.gap_end = fake_kafka.twice = fake_kafka.at_time = fake_kafka.asked_ms = 0;
           fake_kafka.opened = fake_kafka.refusals = fake_kafka.polls_paused = 0;
           fake_kafka.nowhere = fake_kafka.two = false);
}
