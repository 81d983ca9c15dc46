/* The order in which a question about a user who is still to be migrated looks at things (legacy/read_through.h): a
 * worker of the real server, and a store in which he is migrated at the moment that the test names. Whenever that is,
 * what he has played is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "fake_store.h"
#include "legacy/read_through.h"
#include "store/migration.h"
#include "tests/lib/server_fixture.h"

#ifdef WITH_HIREDIS

#define WHY_HERE "$7\r\n2026-11\r\n"
#define WHY_THERE "$6\r\nlegacy\r\n"
#define UNSEEN_X "*1\r\n$1\r\nx\r\n"

enum moment {
    AFTER_THE_NOTE, /* was looked at */
    AFTER_HERE,     /* the store was asked: between its answer and that of the old Redis */
    BEFORE_THERE,   /* the old Redis has the question */
    NEVER,
};

/* --- a store in which a user is migrated --- */

static const struct store_ops *below; /* the fake store's */
static struct store *store;
static _Atomic enum moment moment;
static _Atomic bool done;
static void (*told)(struct store_load *question);

/* As the migration does: his note ends when what was read is there. */
static void migrate(void)
{
    fake_store_add_month(store, "u", month_of_ms(FIXTURE_NOW), "p");
    atomic_store(&done, true);
}

static void pass(enum moment now)
{
    if (!atomic_load(&done) && atomic_load(&moment) == now) {
        migrate();
    }
}

static enum store_note migration_state(struct store *s, int64_t key)
{
    (void)s;
    assert_true(key == hash_user_key(FAKE_SEED, slice_str("u")));
    enum store_note note = atomic_load(&done) ? MIGRATION_DONE : MIGRATION_WAITING;
    pass(AFTER_THE_NOTE);
    return note;
}

static void on_late(struct store_load *question)
{
    if (question->err.code == 0) {
        pass(AFTER_HERE);
    }
    told(question);
}

static int load(struct store_reader *reader, struct store_load *question)
{
    told = question->done;
    question->done = on_late;
    int rc = below->load(reader, question);
    if (rc == 0) {
        pass(AFTER_HERE);
    }
    return rc;
}

static int scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *how, struct store_view *view, struct err *err)
{
    int rc = below->scan(reader, key, user, first_month, how, view, err);
    pass(AFTER_HERE);
    return rc;
}

/* --- the old Redis: whoever has connected --- */

static int listen_as_redis(const struct fixture *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/redis", f->folder);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Reads to what ends so. False: the client got its answer instead. */
static bool redis_is_asked(int redis, int client, const char *end)
{
    char got[4096];
    size_t len = 0, n_end = strlen(end);
    while (len < n_end || memcmp(got + len - n_end, end, n_end) != 0) {
        struct pollfd fds[] = {{.fd = redis, .events = POLLIN}, {.fd = client, .events = POLLIN}};
        assert_true(poll(fds, 2, -1) > 0);
        if (fds[0].revents == 0) {
            return false;
        }
        ssize_t n = recv(redis, got + len, sizeof got - len, 0);
        assert_true(n > 0);
        len += (size_t)n;
    }
    return true;
}

/* --- the question --- */

struct way {
    const char *question, *end; /* of what the old Redis is asked then */
    const char *reply, *answer;
};

static void ask_so(bool later, bool large, enum moment when, const struct way *way)
{
    struct fixture f;
    struct err err;
    fixture_init(&f);
    f.cfg.workers = 1;
    f.cfg.legacy_read_through = 1;
    f.cfg.legacy_timeout_ms = 60 * 1000;
    f.cfg.legacy_delivered_key[0] = '\0';
    snprintf(f.cfg.legacy_redis, sizeof f.cfg.legacy_redis, "%s/redis", f.folder);
    assert_int_equal(config_validate(&f.cfg, &err), 0);
    int listener = listen_as_redis(&f);

    store = f.store;
    below = store->ops;
    struct store_ops ops = *below;
    ops.load = load;
    ops.scan = scan;
    store->ops = &ops;
    struct store_migration_ops migration = *store->migration;
    migration.of = migration_state;
    store->migration = &migration;
    moment = when;
    done = false;
    if (large) {
        fake_store_enlarge(store, "u");
    }
    fixture_start(&f);
    fixture_attach(&f);
    int redis = accept(listener, NULL, NULL);
    assert_true(redis >= 0);
    assert_true(redis_is_asked(redis, -1, "$1\r\n?\r\n"));
    client_say(redis, "+OK\r\n*1\r\n$-1\r\n");

    int client = client_open(&f);
    if (later) {
        fake_store_hold_loads(store);
        client_say(client, way->question);
        fake_store_wait_loads(store, 1);
        fake_store_release_loads(store);
    } else {
        client_say(client, way->question);
    }
    if (redis_is_asked(redis, client, way->end)) {
        pass(BEFORE_THERE);
        client_say(redis, way->reply);
    }
    client_expect(client, way->answer);
    assert_int_equal(done, when != NEVER);
    close(client);
    fixture_stop(&f);
    close(redis);
    close(listener);
    unlink(f.cfg.legacy_redis);
    fixture_end(&f);
}

static void ask(bool large, enum moment when, const struct way *way)
{
    ask_so(false, large, when, way);
    ask_so(true, large, when, way);
}

static void test_which_are_unseen(void **state)
{
    (void)state;
    static const struct way rest = {"UNSEEN u p x\r\n", "played:u\r\n$1\r\nx\r\n", "*1\r\n$-1\r\n", UNSEEN_X};
    static const struct way both = {"UNSEEN u p x\r\n", "played:u\r\n$1\r\np\r\n$1\r\nx\r\n",
                                    "*2\r\n$13\r\n1795262300000\r\n$-1\r\n", UNSEEN_X};
    for (int large = 0; large <= 1; large++) {
        ask(large, AFTER_HERE, &both);
        ask(large, AFTER_THE_NOTE, &rest);
        ask(large, BEFORE_THERE, &both);
        ask(large, NEVER, &both);
    }
}

static void test_why(void **state)
{
    (void)state;
    static const struct way both = {"WHY u p\r\n", "$1\r\np\r\n", "*1\r\n$13\r\n1795262300000\r\n",
                                    "*2\r\n" WHY_HERE WHY_THERE};
    static const struct way there = {"WHY u p\r\n", "$1\r\np\r\n", "*1\r\n$13\r\n1795262300000\r\n",
                                     "*1\r\n" WHY_THERE};
    for (int large = 0; large <= 1; large++) {
        ask(large, AFTER_HERE, &there);
        ask(large, AFTER_THE_NOTE, &both);
        ask(large, BEFORE_THERE, &there);
        ask(large, NEVER, &there);
    }
}

#endif

int main(void)
{
#ifdef WITH_HIREDIS
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_are_unseen),
        cmocka_unit_test(test_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    return 77; /* skipped */
#endif
}
