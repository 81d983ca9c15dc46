/* The replica's half over a real store, against a primary that follows a script: whom it refuses and why, what it makes
 * of answers that can't be, and that each event is applied once, wherever the connection breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "dedup/role.h"
#include "replica/clone_mark.h"
#include "replica/cursor.h"
#include "replica/event.h"
#include "replica/follower.h"
#include "store/positions.h"
#include "tests/lib/store_calls.h"

enum { NODE = 0xa1, RUN = 0xb1, OTHER = 0xa2, TERM = 3, CURSOR = 100, PATIENCE_MS = 60 * 1000, WORDS_TEXT = 1024 };

/* What it says of itself in a hello. */
struct says {
    uint64_t node, run, seed;
    int64_t protocol, term, window, retention, delivered_max;
    const char *role, *address;
};

struct fixture {
    struct store_fixture *f;
    struct dedup dedup;
    struct replica r;
    struct follower *follower;
    struct says says;
    int listener, fd;
    char heard[WORDS_TEXT];
};

/* --- the scripted primary: the test's own thread --- */

static bool wait_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, PATIENCE_MS) == 1;
}

static int take_connection(struct fixture *x)
{
    assert_true(wait_readable(x->listener));
    int fd = accept(x->listener, NULL, NULL);
    assert_true(fd >= 0);
    return fd;
}

/* A line without its end; false: the connection has ended. */
static bool read_line(int fd, char *out, size_t size)
{
    for (size_t n = 0; n < size; n++) {
        assert_true(wait_readable(fd));
        if (read(fd, out + n, 1) != 1) {
            return false;
        }
        if (out[n] == '\n') {
            out[n - 1] = '\0';
            return true;
        }
    }
    fail_msg("a line of %zu bytes", size);
    return false;
}

/* A command, its words with spaces between them; NULL: the connection has ended. */
static const char *hear(struct fixture *x, int fd)
{
    char line[512];
    size_t at = 0;
    if (!read_line(fd, line, sizeof line)) {
        return NULL;
    }
    assert_int_equal(line[0], '*');
    for (int n = atoi(line + 1); n > 0; n--) {
        if (!read_line(fd, line, sizeof line) || !read_line(fd, line, sizeof line)) {
            return NULL;
        }
        at += (size_t)snprintf(x->heard + at, sizeof x->heard - at, "%s%s", at > 0 ? " " : "", line);
        assert_true(at < sizeof x->heard);
    }
    return x->heard;
}

static void hear_command(struct fixture *x, int fd, const char *begins)
{
    const char *heard = hear(x, fd);
    if (heard == NULL || strncmp(heard, begins, strlen(begins)) != 0) {
        fail_msg("\"%s\" was expected, \"%s\" was heard", begins, heard == NULL ? "nothing" : heard);
    }
}

static void say_bytes(int fd, struct slice bytes)
{
    for (size_t sent = 0; sent < bytes.len;) {
        ssize_t n = send(fd, bytes.data + sent, bytes.len - sent, MSG_NOSIGNAL);
        assert_true(n > 0);
        sent += (size_t)n;
    }
}

static void say(int fd, const char *text)
{
    say_bytes(fd, slice_str(text));
}

/* A new connection, up to the answer to REPLICA HELLO. */
static void greet(struct fixture *x)
{
    const struct says *s = &x->says;
    char text[1024], seed[NODE_TEXT];
    x->fd = take_connection(x);
    hear_command(x, x->fd, "HELLO 3");
    say(x->fd, "+OK\r\n");
    hear_command(x, x->fd, "REPLICA HELLO 4 ");
    snprintf(seed, sizeof seed, "%016" PRIx64, s->seed);
    snprintf(text, sizeof text,
             "%%13\r\n+protocol\r\n:%" PRId64 "\r\n+version\r\n+9.9\r\n+node\r\n+%016" PRIx64 "\r\n+run\r\n+%016" PRIx64
             "\r\n+term\r\n:%" PRId64 "\r\n+role\r\n+%s\r\n+leader\r\n$0\r\n\r\n+address\r\n$%zu\r\n%s\r\n+seed\r\n+%s"
             "\r\n+window\r\n:%" PRId64 "\r\n+retention\r\n:%" PRId64 "\r\n+delivered_max\r\n:%" PRId64
             "\r\n+last\r\n:%d\r\n",
             s->protocol, s->node, s->run, s->term, s->role, strlen(s->address), s->address, seed, s->window,
             s->retention, s->delivered_max, CURSOR);
    say(x->fd, text);
}

static void hang_up(struct fixture *x)
{
    close(x->fd);
    x->fd = -1;
}

/* The words of a fetch that the follower chose. */
struct asked {
    uint64_t node, run, after, durable, term;
};

static struct asked hear_fetch(struct fixture *x)
{
    struct asked a = {0};
    hear_command(x, x->fd, "REPLICA FETCH ");
    int n = sscanf(x->heard, "REPLICA FETCH %*s %" SCNx64 " %" SCNx64 " %" SCNu64 " %" SCNu64 " %*s %*s %*s %" SCNu64,
                   &a.node, &a.run, &a.after, &a.durable, &a.term);
    assert_int_equal(n, 5);
    return a;
}

static void expect_fetch(struct fixture *x, uint64_t run, uint64_t after, uint64_t durable)
{
    struct asked a = hear_fetch(x);
    assert_true(a.node == NODE && a.term == (uint64_t)x->says.term);
    assert_int_equal(a.run, run);
    assert_int_equal(a.after, after);
    assert_int_equal(a.durable, durable);
}

/* --- its answers --- */

struct answer {
    struct buf events;
    struct event_state state;
    uint64_t node, run, to, last;
    int n;
};

static struct answer answer_begin(void)
{
    return (struct answer){.node = NODE, .run = RUN};
}

static void put(struct answer *a, uint64_t seq, enum feed_kind kind, const char *user, const char *item)
{
    const struct feed_event event = {seq, kind, slice_str(user), slice_str(item), clock_wall_ms(), clock_wall_ms(), 0};
    assert_int_equal(event_write(&a->state, &event, &a->events), 0);
    a->n++;
    a->to = a->last = seq;
}

/* The whole reply; frees the answer. */
static struct buf write_answer(struct answer *a)
{
    struct buf out = {0};
    buf_addf(&out,
             "*9\r\n:%d\r\n+primary\r\n+%016" PRIx64 "\r\n+%016" PRIx64 "\r\n:%" PRIu64 "\r\n:%" PRId64
             "\r\n:%d\r\n:%" PRIu64 "\r\n$%zu\r\n",
             TERM, a->node, a->run, a->last, clock_wall_ms(), a->n, a->to, a->events.len);
    buf_add(&out, a->events.data, a->events.len);
    buf_add(&out, "\r\n", 2);
    assert_false(out.failed);
    buf_free(&a->events);
    return out;
}

static void say_answer(struct fixture *x, struct answer *a)
{
    struct buf out = write_answer(a);
    say_bytes(x->fd, buf_slice(&out));
    buf_free(&out);
}

static void say_play(struct fixture *x, uint64_t seq, const char *user, const char *item)
{
    struct answer a = answer_begin();
    put(&a, seq, FEED_PLAY, user, item);
    say_answer(x, &a);
}

/* --- the replica --- */

static void start(struct fixture *x)
{
    struct err err;
    assert_int_equal(follower_start(&x->r, &x->follower, &err), 0);
}

/* What it has connected and nobody has taken yet ends with it, or the next one would be heard there. */
static void stop(struct fixture *x)
{
    struct pollfd come = {.fd = x->listener, .events = POLLIN};
    follower_stop(x->follower);
    follower_free(x->follower);
    x->follower = NULL;
    while (poll(&come, 1, 0) == 1) {
        close(accept(x->listener, NULL, NULL));
    }
}

static struct follower_state look(struct fixture *x)
{
    struct follower_state state;
    follower_look(x->follower, &state);
    return state;
}

static void rest(void)
{
    poll(NULL, 0, 2);
}

static void wait_doing(struct fixture *x, enum follower_doing doing)
{
    for (int64_t until = clock_real_us() + PATIENCE_MS * 1000; look(x).doing != doing; rest()) {
        if (clock_real_us() > until) {
            fail_msg("it is %s and not %s: %s", follower_doing_name(look(x).doing), follower_doing_name(doing),
                     look(x).problem);
        }
    }
}

static void wait_refused(struct fixture *x, const char *problem)
{
    wait_doing(x, FOLLOWER_REFUSED);
    struct follower_state state = look(x);
    if (strstr(state.problem, problem) == NULL) {
        fail_msg("\"%s\" doesn't say \"%s\"", state.problem, problem);
    }
}

static void wait_applied(struct fixture *x, uint64_t seq)
{
    struct err err;
    assert_int_equal(follower_wait(x->follower, seq, PATIENCE_MS, &err), 0);
}

/* As it is in the folder; -1: none of that run. */
static int64_t durable(struct fixture *x, uint64_t run)
{
    char name[CLONE_MARK_TEXT];
    int64_t next = -1;
    x->f->store->positions->find(x->f->store, slice_str(clone_feed_name(NODE, run, name)), &next);
    return next;
}

static void put_position(struct fixture *x, const char *source, int64_t next)
{
    int done = 0;
    struct store_position position = {slice_str(source), next};
    struct store_batch batch = {.positions = &position, .n_positions = 1, .done = batch_done, .owner = &done};
    x->f->store->ops->record(x->f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
}

static void stand_at(struct fixture *x, uint64_t node, uint64_t run, int64_t seq)
{
    char name[CLONE_MARK_TEXT];
    put_position(x, clone_feed_name(node, run, name), seq);
}

static void end_with(struct fixture *x, uint64_t node)
{
    put_position(x, CLONE_FOLLOWED, (int64_t)node);
}

static void become_replica(struct fixture *x)
{
    int done = 0;
    struct err err;
    struct store_node_change change = {.call = {.done = call_done, .owner = &done}};
    x->f->store->node->get(x->f->store, &change.to);
    change.to.role = NODE_REPLICA;
    change.to.term = TERM;
    change.to.leader = NODE;
    strcpy(change.to.address, x->f->cfg.replica_of);
    x->f->store->node->set(x->f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, 0);
    assert_int_equal(role_new(&x->f->cfg, x->f->store, &x->dedup.role, &err), 0);
}

static int setup(void **state)
{
    struct fixture *x = *state = calloc(1, sizeof *x);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    x->f = store_fixture_new("follower");
    x->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    x->fd = -1;
    assert_int_equal(bind(x->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(x->listener, 8), 0);
    assert_int_equal(getsockname(x->listener, (struct sockaddr *)&address, &size), 0);
    snprintf(x->f->cfg.replica_of, sizeof x->f->cfg.replica_of, "127.0.0.1:%d", ntohs(address.sin_port));
    open_store(x->f);
    dedup_init(&x->dedup, x->f->store, &x->f->cfg);
    become_replica(x);
    stand_at(x, NODE, RUN, CURSOR);
    x->r = (struct replica){.dedup = &x->dedup, .store = x->f->store, .cfg = &x->f->cfg, .protocol = REPLICA_PROTOCOL};
    reach_init(&x->r.reach, &x->f->cfg, "", x->f->cfg.replica_of);
    x->says = (struct says){NODE,
                            RUN,
                            x->dedup.seed,
                            REPLICA_PROTOCOL,
                            TERM,
                            x->f->cfg.window,
                            x->f->cfg.retention,
                            x->f->cfg.delivered_max,
                            "primary",
                            ""};
    start(x);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    stop(x);
    if (x->fd >= 0) {
        close(x->fd);
    }
    close(x->listener);
    role_free(x->dedup.role);
    store_fixture_free(x->f);
    free(x);
    return 0;
}

/* Greeted, and its first fetch heard. */
static void begin(struct fixture *x)
{
    greet(x);
    expect_fetch(x, RUN, CURSOR, CURSOR);
}

/* --- whom it refuses --- */

static void refuses(struct fixture *x, const struct says *says, const char *problem)
{
    const struct says before = x->says;
    stop(x);
    if (x->fd >= 0) {
        hang_up(x);
    }
    start(x);
    x->says = *says;
    greet(x);
    wait_refused(x, problem);
    assert_null(hear(x, x->fd)); /* and it hangs up, without a fetch */
    x->says = before;
}

static void what_must_be_equal(void **state)
{
    struct fixture *x = *state;
    struct says says;
    greet(x);
    says = x->says, says.seed++;
    refuses(x, &says, "has another hash_seed than this folder");
    says = x->says, says.window++;
    refuses(x, &says, "window is ");
    says = x->says, says.retention++;
    refuses(x, &says, "retention is ");
    says = x->says, says.delivered_max++;
    refuses(x, &says, "delivered_max is ");
    says = x->says, says.protocol = REPLICA_PROTOCOL + 1;
    refuses(x, &says, "is unseen 9.9, which speaks protocol 5 to replicas");
    says = x->says, says.protocol = REPLICA_PROTOCOL_MIN - 1;
    refuses(x, &says, "versions one apart work together");
    assert_int_equal(durable(x, RUN), CURSOR);
}

/* --- another primary than before --- */

/* It says how far it has followed whom. */
static void hear_enlist(struct fixture *x)
{
    char begins[96];
    struct store_node now;
    role_look(x->dedup.role, &now);
    snprintf(begins, sizeof begins, "REPLICA ENLIST %016" PRIx64 " %016x %d", now.node, NODE, CURSOR);
    hear_command(x, x->fd, begins);
}

static void meet_another(struct fixture *x)
{
    x->says.node = OTHER;
    x->says.run = RUN + 1;
    greet(x);
    hear_enlist(x);
}

static void it_goes_on_where_the_new_one_says(void **state)
{
    struct fixture *x = *state;
    meet_another(x);
    say(x->fd, "%3\r\n+node\r\n+00000000000000a2\r\n+run\r\n+00000000000000b2\r\n+seq\r\n:7\r\n");
    struct asked asked = hear_fetch(x);
    assert_true(asked.node == OTHER && asked.run == RUN + 1 && asked.after == 7 && asked.durable == 7);
    struct feed_cursor cursor; /* durable before it asks for more */
    struct err err;
    assert_int_equal(cursor_find(x->f->store, x->f->reader, OTHER, &cursor, &err), 1);
    assert_true(cursor.run == RUN + 1 && cursor.seq == 7);
}

static void it_is_lost_where_the_new_one_can_not_tell(void **state)
{
    struct fixture *x = *state;
    meet_another(x);
    say(x->fd, "-LOST nothing was kept here for this replica\r\n");
    wait_doing(x, FOLLOWER_LOST);
    assert_non_null(strstr(look(x).problem, "is no copy of the node 00000000000000a2"));
}

static void it_is_refused_where_it_has_more(void **state)
{
    struct fixture *x = *state;
    meet_another(x);
    say(x->fd, "-ERR this replica has 5 events that this node never got\r\n");
    wait_refused(x, "5 events");
    assert_int_equal(durable(x, RUN), CURSOR);
}

/* It has followed that node before, and another since. */
static void a_place_of_an_earlier_reign_does_not_count(void **state)
{
    struct fixture *x = *state;
    stop(x);
    stand_at(x, OTHER, RUN, 7);
    end_with(x, NODE);
    start(x);
    meet_another(x);
    say(x->fd, "-LOST what this replica has last was too long ago\r\n");
    wait_doing(x, FOLLOWER_LOST);
    assert_int_equal(cursor_last(x->f->store), NODE);
}

/* A folder of a version that noted no last one: what can be placed further counts, and what is beyond is refused. */
static void without_a_last_one_all_are_asked(void **state)
{
    struct fixture *x = *state;
    stop(x);
    stand_at(x, OTHER, RUN, 7);
    start(x);
    meet_another(x);
    say(x->fd, "%3\r\n+node\r\n+00000000000000a2\r\n+run\r\n+00000000000000b2\r\n+seq\r\n:9\r\n");
    assert_int_equal(hear_fetch(x).after, 9);
    assert_int_equal(cursor_last(x->f->store), OTHER);
}

static void a_reply_that_is_no_place_is_refused(void **state)
{
    struct fixture *x = *state;
    meet_another(x);
    say(x->fd, "%2\r\n+node\r\n+00000000000000a2\r\n+seq\r\n:-7\r\n");
    wait_refused(x, "answers REPLICA ENLIST with something else");
}

static void the_older_protocol_is_understood(void **state)
{
    struct fixture *x = *state;
    x->says.protocol = REPLICA_PROTOCOL_MIN;
    begin(x);
}

static void no_hello_at_all(void **state)
{
    struct fixture *x = *state;
    x->fd = take_connection(x);
    hear_command(x, x->fd, "HELLO 3");
    say(x->fd, "+OK\r\n");
    hear_command(x, x->fd, "REPLICA HELLO 4 ");
    say(x->fd, "*2\r\n+role\r\n+primary\r\n");
    wait_refused(x, "answers REPLICA HELLO with something else");
}

static void one_that_loads_is_asked_again(void **state)
{
    struct fixture *x = *state;
    x->fd = take_connection(x);
    hear_command(x, x->fd, "HELLO 3");
    say(x->fd, "+OK\r\n");
    hear_command(x, x->fd, "REPLICA HELLO 4 ");
    say(x->fd, "-LOADING recovery has not ended\r\n");
    assert_null(hear(x, x->fd));
    hang_up(x);
    begin(x); /* soon: it isn't refused */
}

static void lost(void **state)
{
    struct fixture *x = *state;
    begin(x);
    say(x->fd, "-LOST events up to 120 are gone\r\n");
    wait_doing(x, FOLLOWER_LOST);
    assert_non_null(strstr(look(x).problem, "events up to 120 are gone"));
    assert_null(hear(x, x->fd));
    assert_int_equal(durable(x, RUN), CURSOR);
}

/* --- terms --- */

static void a_higher_term_is_followed_and_kept(void **state)
{
    struct fixture *x = *state;
    struct store_node now;
    x->fd = take_connection(x);
    stop(x);
    hang_up(x);
    stand_at(x, OTHER, RUN, 7);
    end_with(x, OTHER);
    x->says.node = OTHER;
    x->says.term = TERM + 2;
    start(x);
    greet(x);
    struct asked asked = hear_fetch(x);
    assert_true(asked.node == OTHER && asked.after == 7 && asked.term == TERM + 2);
    x->f->store->node->get(x->f->store, &now); /* durable before anything is fetched */
    assert_true(now.term == TERM + 2 && now.leader == OTHER && now.role == NODE_REPLICA);
}

static void a_lower_term_is_told_of_the_higher(void **state)
{
    struct fixture *x = *state;
    x->says.node = OTHER;
    x->says.term = TERM - 1;
    greet(x);
    hear_command(x, x->fd, "REPLICA MEET 3 00000000000000a1 127.0.0.1:");
    say(x->fd, "*3\r\n:3\r\n+00000000000000a1\r\n$0\r\n\r\n");
    wait_refused(x, "it was replaced");
    assert_null(hear(x, x->fd));
}

static void a_term_that_begins_meanwhile(void **state)
{
    struct fixture *x = *state;
    struct err err;
    begin(x);
    assert_int_equal(role_meet(x->dedup.role, TERM + 1, OTHER, "127.0.0.1:1", &err), 1);
    say_play(x, CURSOR + 1, "ann", "one"); /* what waited is applied: it was recorded before */
    assert_null(hear(x, x->fd));           /* but nothing is confirmed to that primary any more */
}

static void one_that_is_no_primary_any_more(void **state)
{
    struct fixture *x = *state;
    x->says.role = "replica";
    x->says.address = x->f->cfg.replica_of;
    greet(x);
    assert_null(hear(x, x->fd));
    hang_up(x);
    x->says.role = "primary";
    begin(x); /* where the other sent it */
}

/* --- answers that can't be --- */

static void says_instead(struct fixture *x, struct answer *a, const char *problem)
{
    begin(x);
    say_answer(x, a);
    wait_refused(x, problem);
    assert_null(hear(x, x->fd));
    assert_int_equal(durable(x, RUN), CURSOR);
    assert_int_equal(look(x).applied, CURSOR);
}

static void an_unknown_kind_stops_it(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    size_t before = a.events.len;
    put(&a, CURSOR + 2, FEED_PLAY, "ann", "two");
    a.events.data[before] = 77;
    says_instead(x, &a, "kind 77 is of a newer version than " UNSEEN_VERSION);
    assert_false(seen(x->f, "ann", "two"));
}

static void an_event_that_is_cut_off(void **state)
{
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    a.events.len--;
    says_instead(*state, &a, "it is cut off");
}

static void an_event_of_wrong_length(void **state)
{
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    a.events.data[1]--; /* its length */
    says_instead(*state, &a, "its length is wrong");
}

static void a_seq_that_does_not_rise(void **state)
{
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "two");
    says_instead(*state, &a, "its seq does not rise");
}

static void fewer_events_than_it_says(void **state)
{
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    a.n = 2;
    a.to = a.last = CURSOR + 2;
    says_instead(*state, &a, "has sent 1 events, and says that there are 2");
}

static void an_event_behind_its_end(void **state)
{
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    put(&a, CURSOR + 9, FEED_PLAY, "ann", "two");
    a.to = a.last = CURSOR + 4;
    says_instead(*state, &a, "event 109 is behind the end");
}

static void another_node(void **state)
{
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    a.node = OTHER;
    says_instead(*state, &a, "answers REPLICA FETCH with something else");
}

static void something_else(void **state)
{
    struct fixture *x = *state;
    begin(x);
    say(x->fd, "+PONG\r\n");
    wait_refused(x, "answers REPLICA FETCH with something else");
    assert_null(hear(x, x->fd));
}

/* --- where it is --- */

static void seqs_may_have_gaps(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    begin(x);
    put(&a, CURSOR + 5, FEED_PLAY, "ann", "one"); /* what lies between was nobody's */
    put(&a, CURSOR + 50, FEED_DELIVERY, "ann", "two");
    a.to = a.last = CURSOR + 60; /* nor was what lies behind */
    say_answer(x, &a);
    expect_fetch(x, RUN, CURSOR + 60, CURSOR + 60);
    assert_int_equal(durable(x, RUN), CURSOR + 60);
    assert_true(seen(x->f, "ann", "one") && seen(x->f, "ann", "two"));
    wait_doing(x, FOLLOWER_IN_STEP);
}

static void it_never_goes_back(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    begin(x);
    put(&a, CURSOR - 2, FEED_PLAY, "ann", "had");
    put(&a, CURSOR, FEED_FORGET, "ann", "");
    a.last = CURSOR;
    say_answer(x, &a);
    expect_fetch(x, RUN, CURSOR, CURSOR);
    assert_int_equal(durable(x, RUN), CURSOR);
    assert_int_equal(look(x).events, 0);
    assert_false(seen(x->f, "ann", "had"));
    struct answer b = answer_begin(); /* nothing, and further back */
    b.to = CURSOR - 50;
    b.last = CURSOR;
    say_answer(x, &b);
    expect_fetch(x, RUN, CURSOR, CURSOR);
    assert_int_equal(durable(x, RUN), CURSOR);
}

static void a_primary_in_another_run(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    x->says.run = RUN + 1; /* it was started anew: what is known is of the run before */
    begin(x);
    a.run = RUN + 1;
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    say_answer(x, &a);
    expect_fetch(x, RUN + 1, CURSOR + 1, CURSOR + 1);
    assert_int_equal(durable(x, RUN + 1), CURSOR + 1);
    hang_up(x);
    greet(x);
    expect_fetch(x, RUN + 1, CURSOR + 1, CURSOR + 1);
}

static void a_forget_moves_nothing_by_itself(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    begin(x);
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    put(&a, CURSOR + 2, FEED_FORGET, "ann", "");
    put(&a, CURSOR + 3, FEED_PLAY, "ann", "two");
    put(&a, CURSOR + 4, FEED_UNSEE, "ann", "two");
    put(&a, CURSOR + 5, FEED_PLAY, "ann", "three");
    say_answer(x, &a);
    expect_fetch(x, RUN, CURSOR + 5, CURSOR + 5);
    assert_false(seen(x->f, "ann", "one") || seen(x->f, "ann", "two"));
    assert_true(seen(x->f, "ann", "three"));
}

/* The old primary's forget, which the new one has carried out: the disk fails behind it. */
static void what_a_forget_spares_comes_with_it(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    begin(x);
    play(x->f, "ann", "two");
    rule(VFS_SYNC, "staging.db-wal", 2, true, VFS_EIO);
    put(&a, CURSOR + 1, FEED_FORGET, "ann", "");
    put(&a, CURSOR + 2, FEED_PLAY, "ann", "two");
    put(&a, CURSOR + 3, FEED_DELIVERY, "ann", "three");
    put(&a, CURSOR + 4, FEED_PLAY, "bob", "four");
    say_answer(x, &a);
    while (look(x).problem[0] == '\0') {
        rest();
    }
    assert_true(seen(x->f, "ann", "two") && seen(x->f, "ann", "three"));
    assert_false(seen(x->f, "bob", "four"));
    assert_int_equal(look(x).applied, CURSOR);
    vfs_fault_heal();
    expect_fetch(x, RUN, CURSOR + 4, CURSOR + 4);
    assert_true(seen(x->f, "ann", "two") && seen(x->f, "ann", "three") && seen(x->f, "bob", "four"));
    assert_int_equal(look(x).events, 3);
}

static void an_item_by_its_hash(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    uint64_t hash = htole64(hash_id(x->says.seed, slice_str("one")));
    struct feed_event event = {CURSOR + 3,
                               FEED_UNSEE_HASH,
                               slice_str("ann"),
                               slice_of((const char *)&hash, sizeof hash),
                               clock_wall_ms(),
                               clock_wall_ms(),
                               0};
    begin(x);
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    put(&a, CURSOR + 2, FEED_PLAY, "ann", "two");
    assert_int_equal(event_write(&a.state, &event, &a.events), 0);
    a.n++;
    a.to = a.last = event.seq;
    say_answer(x, &a);
    expect_fetch(x, RUN, CURSOR + 3, CURSOR + 3);
    assert_false(seen(x->f, "ann", "one"));
    assert_true(seen(x->f, "ann", "two"));
}

static void offsets_of_sources_come_too(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    int64_t next;
    begin(x);
    put(&a, CURSOR + 1, FEED_OFFSET, "kafka:plays:0", "");
    say_answer(x, &a);
    expect_fetch(x, RUN, CURSOR + 1, CURSOR + 1);
    assert_int_equal(x->f->store->positions->find(x->f->store, slice_str("kafka:plays:0"), &next), 1);
}

/* --- the connection breaks --- */

static void in_the_middle_of_a_batch(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    begin(x);
    for (int i = 1; i <= 100; i++) {
        char item[8];
        snprintf(item, sizeof item, "i%d", i);
        put(&a, CURSOR + (uint64_t)i, FEED_DELIVERY, "ann", item);
    }
    struct buf whole = write_answer(&a);
    say_bytes(x->fd, slice_of((const char *)whole.data, whole.len / 2));
    hang_up(x);
    begin(x); /* from where it was: no half of it counts */
    assert_int_equal(durable(x, RUN), CURSOR);
    say_bytes(x->fd, buf_slice(&whole));
    buf_free(&whole);
    expect_fetch(x, RUN, CURSOR + 100, CURSOR + 100);
    assert_int_equal(look(x).events, 100);
    assert_true(seen(x->f, "ann", "i1") && seen(x->f, "ann", "i100"));
}

/* While it applies one reply the next is on its way: that one alone is asked for again. */
static void with_a_fetch_on_its_way(void **state)
{
    struct fixture *x = *state;
    begin(x);
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_DELIVERY, "ann", "one");
    a.last = CURSOR + 2;
    say_answer(x, &a);
    struct asked ahead = hear_fetch(x);
    assert_true(ahead.after == CURSOR + 1 && ahead.durable == CURSOR);
    wait_applied(x, CURSOR + 1);
    hang_up(x);
    greet(x);
    expect_fetch(x, RUN, CURSOR + 1, CURSOR + 1);
    struct answer b = answer_begin();
    put(&b, CURSOR + 2, FEED_DELIVERY, "ann", "two");
    say_answer(x, &b);
    expect_fetch(x, RUN, CURSOR + 2, CURSOR + 2);
    assert_int_equal(look(x).events, 2);
}

/* As it is killed: what was applied is where it goes on, not what it had read. */
static void it_starts_anew_in_the_middle(void **state)
{
    struct fixture *x = *state;
    begin(x);
    struct answer a = answer_begin();
    put(&a, CURSOR + 1, FEED_PLAY, "ann", "one");
    a.last = CURSOR + 9;
    say_answer(x, &a);
    hear_fetch(x);
    wait_applied(x, CURSOR + 1);
    stop(x);
    hang_up(x);
    start(x);
    greet(x);
    expect_fetch(x, RUN, CURSOR + 1, CURSOR + 1);
}

/* A user whom it fetches whole, and the connection for that breaks: the events before them are done, and it begins
 * again with the user. */
static void while_it_takes_a_user_whole(void **state)
{
    struct fixture *x = *state;
    struct answer a = answer_begin();
    begin(x);
    put(&a, CURSOR + 1, FEED_DELIVERY, "bob", "one");
    put(&a, CURSOR + 2, FEED_USER, "ann", "");
    put(&a, CURSOR + 3, FEED_DELIVERY, "bob", "two");
    say_answer(x, &a);
    int users = take_connection(x);
    hear_command(x, users, "HELLO 3");
    say(users, "+OK\r\n");
    hear_command(x, users, "REPLICA USER ann");
    assert_int_equal(durable(x, RUN), CURSOR + 1);
    close(users);
    assert_null(hear(x, x->fd));
    hang_up(x);
    greet(x);
    expect_fetch(x, RUN, CURSOR + 1, CURSOR + 1);
    struct answer b = answer_begin();
    put(&b, CURSOR + 2, FEED_USER, "ann", "");
    put(&b, CURSOR + 3, FEED_DELIVERY, "bob", "two");
    say_answer(x, &b);
    users = take_connection(x);
    hear_command(x, users, "HELLO 3");
    say(users, "+OK\r\n");
    hear_command(x, users, "REPLICA USER ann");
    say(users, "$-1\r\n"); /* forgotten since: that comes, too */
    expect_fetch(x, RUN, CURSOR + 3, CURSOR + 3);
    close(users);
    assert_int_equal(look(x).users, 1);
    assert_int_equal(look(x).events, 2);
}

/* --- what it takes --- */

static void a_full_disk_is_waited_for(void **state)
{
    struct fixture *x = *state;
    begin(x);
    rule(VFS_WRITE, "staging", 1, true, VFS_FULL);
    say_play(x, CURSOR + 1, "ann", "one");
    while (strstr(look(x).problem, "full") == NULL) {
        rest();
    }
    assert_int_equal(look(x).applied, CURSOR);
    vfs_fault_heal();
    expect_fetch(x, RUN, CURSOR + 1, CURSOR + 1);
    assert_true(seen(x->f, "ann", "one"));
}

/* However much there is, it asks for one more reply, and for no other before that is read; and holds one. */
static void its_memory_is_bounded(void **state)
{
    enum { REPLIES = 40, REPLY_EVENTS = 600 };
    struct fixture *x = *state;
    struct pollfd more;
    uint64_t seq = CURSOR;
    char item[200];
    begin(x);
    rule(VFS_SYNC, "staging", 1, false, VFS_HOLD);
    for (int i = 0; i < REPLIES; i++) {
        struct answer a = answer_begin();
        for (int k = 0; k < REPLY_EVENTS; k++) {
            snprintf(item, sizeof item, "%0100" PRIu64, ++seq);
            put(&a, seq, FEED_PLAY, "ann", item);
        }
        a.last = CURSOR + REPLIES * REPLY_EVENTS;
        say_answer(x, &a);
        if (i == 0) {
            atomic_store(&largest_malloc, 0);
        }
        if (i == 1) { /* the first is held by the disk: the second waits in the socket */
            vfs_fault_wait_held();
            more = (struct pollfd){.fd = x->fd, .events = POLLIN};
            assert_int_equal(poll(&more, 1, 0), 0);
            vfs_fault_release();
        }
        struct asked asked = hear_fetch(x);
        assert_int_equal(asked.after, seq);
        assert_true(asked.durable + 2 * REPLY_EVENTS >= seq);
    }
    wait_applied(x, seq);
    assert_int_equal(look(x).events, REPLIES * REPLY_EVENTS);
    assert_true(atomic_load(&largest_malloc) < 1024 * 1024);
}

int main(int argc, char **argv)
{
#define FOLLOWS(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        FOLLOWS(what_must_be_equal),
        FOLLOWS(it_goes_on_where_the_new_one_says),
        FOLLOWS(it_is_lost_where_the_new_one_can_not_tell),
        FOLLOWS(it_is_refused_where_it_has_more),
        FOLLOWS(a_place_of_an_earlier_reign_does_not_count),
        FOLLOWS(without_a_last_one_all_are_asked),
        FOLLOWS(a_reply_that_is_no_place_is_refused),
        FOLLOWS(the_older_protocol_is_understood),
        FOLLOWS(no_hello_at_all),
        FOLLOWS(one_that_loads_is_asked_again),
        FOLLOWS(lost),
        FOLLOWS(a_higher_term_is_followed_and_kept),
        FOLLOWS(a_lower_term_is_told_of_the_higher),
        FOLLOWS(a_term_that_begins_meanwhile),
        FOLLOWS(one_that_is_no_primary_any_more),
        FOLLOWS(an_unknown_kind_stops_it),
        FOLLOWS(an_event_that_is_cut_off),
        FOLLOWS(an_event_of_wrong_length),
        FOLLOWS(a_seq_that_does_not_rise),
        FOLLOWS(fewer_events_than_it_says),
        FOLLOWS(an_event_behind_its_end),
        FOLLOWS(another_node),
        FOLLOWS(something_else),
        FOLLOWS(seqs_may_have_gaps),
        FOLLOWS(it_never_goes_back),
        FOLLOWS(a_primary_in_another_run),
        FOLLOWS(a_forget_moves_nothing_by_itself),
        FOLLOWS(what_a_forget_spares_comes_with_it),
        FOLLOWS(an_item_by_its_hash),
        FOLLOWS(offsets_of_sources_come_too),
        FOLLOWS(in_the_middle_of_a_batch),
        FOLLOWS(with_a_fetch_on_its_way),
        FOLLOWS(it_starts_anew_in_the_middle),
        FOLLOWS(while_it_takes_a_user_whole),
        FOLLOWS(a_full_disk_is_waited_for),
        FOLLOWS(its_memory_is_bounded),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
