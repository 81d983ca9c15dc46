/* Whom a node has to tell of its term: the list in the folder, whatever the disk does, and how often each is tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "replica/change_impl.h"
#include "replica/follower.h"
#include "replica/peers.h"
#include "replica/replica.h"
#include "tests/lib/store_calls.h"

enum { OLD = 0xaa, THIRD = 0xbb, WRITES = 30, PATIENCE_MS = 60 * 1000 };

static int note(struct store_fixture *f, struct peers *peers, uint64_t node, const char *address, uint64_t heard)
{
    struct err err = {0};
    struct peer peer = {.node = node, .heard = heard};
    snprintf(peer.address, sizeof peer.address, "%s", address);
    return peers_note(f->store, peers, &peer, &err);
}

static struct peers load_peers(struct store_fixture *f)
{
    struct peers peers;
    struct err err = {0};
    assert_int_equal(peers_load(f->store, &peers, &err), 0);
    return peers;
}

/* As by a crash: what is not durable is gone. */
static struct peers after_a_crash(struct store_fixture *f)
{
    vfs_fault_heal();
    kill_store(f);
    open_store(f);
    return load_peers(f);
}

static const struct peer *find(const struct peers *peers, uint64_t node)
{
    const struct peer *found = NULL;
    for (int i = 0; i < peers->n; i++) {
        if (peers->list[i].node == node) {
            assert_null(found); /* once */
            found = &peers->list[i];
        }
    }
    return found;
}

/* --- the list --- */

static void noted_and_dropped(void **state)
{
    struct store_fixture *f = *state;
    struct peers peers = {.n = 0};
    struct err err = {0};
    assert_int_equal(note(f, &peers, OLD, "a:1", 0), 0);
    assert_int_equal(note(f, &peers, 0, "c:1", 0), 0);
    assert_int_equal(note(f, &peers, THIRD, "c:1", 2), 0); /* it was the one of which only the address was known */
    assert_int_equal(note(f, &peers, OLD, "b:1", 3), 0);   /* it has moved */
    peers = after_a_crash(f);
    assert_int_equal(peers.n, 2);
    assert_string_equal(find(&peers, OLD)->address, "b:1");
    assert_int_equal(find(&peers, OLD)->heard, 3);
    assert_int_equal(find(&peers, THIRD)->heard, 2);
    assert_int_equal(peers_drop(f->store, &peers, &(struct peer){.node = OLD}, &err), 0);
    assert_int_equal(peers_drop(f->store, &peers, &(struct peer){.node = OLD}, &err), 0); /* it is gone */
    assert_int_equal(peers.n, 1);
    peers = after_a_crash(f);
    assert_int_equal(peers.n, 1);
    assert_non_null(find(&peers, THIRD));
    assert_int_equal(note(f, &peers, 0, "d:1", 0), 0);
    assert_int_equal(peers_drop(f->store, &peers, &(struct peer){.address = "d:1"}, &err), 0);
    assert_int_equal(after_a_crash(f).n, 1);
}

/* One write after the other fails, and then the machine: whoever was there before is still told, by the old address or
 * by the new one, and of no term is said that it was heard where it wasn't. */
static void the_disk_fails(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    int failed = 0;
    for (uint64_t nth = 1; nth <= WRITES; nth++) {
        char address[16];
        struct peers peers = load_peers(f);
        snprintf(address, sizeof address, "a:%d", (int)nth);
        assert_int_equal(note(f, &peers, OLD, address, 0), 0);
        rule(VFS_WRITE | VFS_SYNC, "staging.db", 1 + nth % 3, true, VFS_EIO);
        int rc = nth % 2 == 0 ? note(f, &peers, OLD, "moved:1", nth) : note(f, &peers, THIRD, address, nth);
        failed += rc < 0;
        peers = after_a_crash(f);
        const struct peer *old = find(&peers, nth % 2 == 0 ? OLD : THIRD);
        assert_true(rc < 0 || old != NULL);
        assert_true(find(&peers, OLD) != NULL || (old != NULL && strcmp(old->address, address) == 0));
        advance(f, HOUR_MS); /* what was refused is tried again */
        assert_int_equal(note(f, &peers, OLD, "b:1", nth), 0);
        if (find(&peers, THIRD) != NULL) {
            assert_int_equal(peers_drop(f->store, &peers, &(struct peer){.node = THIRD}, &err), 0);
        }
    }
    assert_in_range(failed, 1, WRITES);
}

static void less_and_less_often(void **state)
{
    (void)state;
    struct peers peers = {.list = {{.node = OLD, .address = "a:1"}, {.node = THIRD, .address = "b:1"}}, .n = 2};
    int64_t now = 0;
    int tries = 0, rare = 0;
    for (; now < INT64_C(3600) * 1000 * 1000; now += 1000 * 1000) {
        if (now >= peers.list[0].due_us) {
            rare += peers_tried(&peers, &peers.list[0], false, now);
            tries++;
        }
    }
    assert_int_equal(rare, 1);
    assert_in_range(tries, 700, 730); /* in an hour */
    assert_int_equal(peers.list[1].due_us, 0);
    assert_in_range(peers.list[0].due_us, now - 1000 * 1000, now + PEERS_LAST_US);
    assert_false(peers_tried(&peers, &peers.list[0], true, now));
    assert_int_equal(peers.list[0].due_us, 0);
    peers_tried(&peers, &peers.list[1], false, now);
    assert_int_equal(peers.list[1].due_us, now + PEERS_FIRST_US);
    peers_try_all(&peers);
    assert_int_equal(peers.list[1].due_us, 0);
}

/* --- a promotion --- */

struct node {
    struct store_fixture *f;
    struct dedup dedup;
    struct replica r;
};

static void become_replica(struct store_fixture *f, const char *address)
{
    int done = 0;
    struct store_node_change change = {.call = {.done = call_done, .owner = &done}};
    f->store->node->get(f->store, &change.to);
    change.to.role = NODE_REPLICA;
    change.to.leader = OLD;
    change.to.promoted = false;
    snprintf(change.to.address, sizeof change.to.address, "%s", address);
    f->store->node->set(f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, 0);
}

/* All but its thread. */
static void prepare(struct node *x)
{
    struct err err = {0};
    dedup_init(&x->dedup, x->f->store, &x->f->cfg);
    assert_int_equal(role_new(&x->f->cfg, x->f->store, &x->dedup.role, &err), 0);
    x->r = (struct replica){.dedup = &x->dedup, .store = x->f->store, .cfg = &x->f->cfg};
    reach_init(&x->r.reach, &x->f->cfg, "", "");
    assert_int_equal(changer_new(&x->r, &x->r.changer, &err), 0);
}

static void start(struct node *x)
{
    struct err err = {0};
    prepare(x);
    assert_int_equal(changer_start(x->r.changer, &err), 0);
}

static void stop(struct node *x)
{
    changer_stop(x->r.changer);
    changer_free(x->r.changer);
    role_free(x->dedup.role);
}

static void on_change(struct change *change)
{
    change_tell(change->owner);
}

static char why[320]; /* of the last one */

static int carry_out_above(struct node *x, enum change_kind kind, uint64_t node, uint64_t above)
{
    struct change_wait w = CHANGE_WAIT_INIT;
    struct change change = {.kind = kind, .node = node, .above = above, .force = true, .done = on_change, .owner = &w};
    changer_put(x->r.changer, &change);
    change_wait(&w);
    snprintf(why, sizeof why, "%s", change.err.text);
    return change.err.code;
}

static int carry_out(struct node *x, enum change_kind kind, uint64_t node)
{
    return carry_out_above(x, kind, node, 0);
}

/* The address of the old primary came just before. Two writes of the promotion fail, whichever: this node is no primary
 * after the next start, or that one is told. */
static void promoted_it_tells_after_any_start(void **state)
{
    struct node x = {.f = *state};
    struct err err = {0};
    int promoted = 0;
    for (uint64_t nth = 0; nth < WRITES; nth++) {
        struct store_node now;
        struct peers peers = load_peers(x.f);
        assert_int_equal(peers_drop(x.f->store, &peers, &(struct peer){.node = OLD}, &err), 0);
        become_replica(x.f, "127.0.0.1:1");
        start(&x);
        role_look(x.dedup.role, &now);
        assert_int_equal(role_meet(x.dedup.role, now.term, OLD, "127.0.0.1:2", &err), 0);
        rule(VFS_WRITE | VFS_SYNC, "staging.db", 1 + nth / 6, false, VFS_EIO);
        rule(VFS_WRITE | VFS_SYNC, "staging.db", 2 + nth / 6 + nth % 6, false, VFS_EIO);
        carry_out(&x, CHANGE_PROMOTE, 0);
        stop(&x);
        peers = after_a_crash(x.f);
        x.f->store->node->get(x.f->store, &now);
        const struct peer *old = find(&peers, OLD);
        if (now.role == NODE_PRIMARY) {
            promoted++;
            assert_true(old != NULL && strcmp(old->address, "127.0.0.1:2") == 0 && old->heard < now.term);
        }
        advance(x.f, HOUR_MS);
    }
    assert_in_range(promoted, 1, WRITES);
}

static int listen_here(char address[NODE_ADDRESS_TEXT])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(address, NODE_ADDRESS_TEXT, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

/* Another one than all that have come. */
static void await_connection(int listener)
{
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        close(fd);
    }
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

/* What a node that connects asks for behind HELLO, up to `end`, on the connection *fd. */
static void hear(int listener, const char *end, char *heard, size_t size, int *fd)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    size_t n = 0;
    bool greeted = false;
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    *fd = p.fd = accept(listener, NULL, NULL);
    assert_true(*fd >= 0);
    do {
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        ssize_t got = read(*fd, heard + n, size - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
        heard[n] = '\0';
        if (!greeted && strstr(heard, "HELLO") != NULL) {
            greeted = true;
            assert_int_equal(write(*fd, "+OK\r\n", 5), 5);
        }
    } while (strstr(heard, end) == NULL);
}

static void put_role(struct store_fixture *f, enum node_role role, uint64_t term)
{
    int done = 0;
    struct store_node_change change = {.call = {.done = call_done, .owner = &done}};
    f->store->node->get(f->store, &change.to);
    change.to =
        (struct store_node){.node = change.to.node, .run = change.to.run, .role = role, .term = term, .leader = THIRD};
    snprintf(change.to.address, sizeof change.to.address, "127.0.0.1:3");
    f->store->node->set(f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, 0);
}

/* One that was replaced before it could tell an old primary of its term tells that of the one that has replaced it, who
 * may never have met the other; and so does one that follows by then. The primary itself is told nothing. */
static void replaced_it_tells_of_its_primary(void **state)
{
    struct node x = {.f = *state};
    struct peers peers = {.n = 0};
    char address[NODE_ADDRESS_TEXT], heard[4096];
    const char *answer = "*3\r\n:7\r\n$16\r\n00000000000000bb\r\n+fenced\r\n";
    int listener = listen_here(address), fd;
    assert_int_equal(note(x.f, &peers, THIRD, "127.0.0.1:3", 0), 0);
    assert_int_equal(note(x.f, &peers, OLD, address, 2), 0);
    for (int i = 0; i < 2; i++) {
        uint64_t term = 7 + (uint64_t)i;
        put_role(x.f, i == 0 ? NODE_FENCED : NODE_REPLICA, term);
        start(&x);
        hear(listener, "127.0.0.1:3", heard, sizeof heard, &fd);
        assert_non_null(strstr(heard, i == 0 ? "MEET\r\n$1\r\n7\r\n$16\r\n00000000000000bb"
                                             : "MEET\r\n$1\r\n8\r\n$16\r\n00000000000000bb"));
        assert_int_equal(write(fd, answer, strlen(answer)), (ssize_t)strlen(answer));
        for (const struct peer *old = NULL; old == NULL || old->heard < term; usleep(1000)) {
            peers = load_peers(x.f);
            old = find(&peers, OLD);
        }
        assert_int_equal(find(&peers, THIRD)->heard, 0);
        stop(&x);
        close(fd);
    }
    close(listener);
}

static _Atomic int no_readers; /* so many are not opened */
static const struct store_ops *real;

static int open_reader(struct store *store, struct store_reader **reader, struct err *err)
{
    if (atomic_load(&no_readers) > 0) {
        atomic_fetch_sub(&no_readers, 1);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    return real->reader_open(store, reader, err);
}

/* A promotion writes before it asks the old primary to step down: what fails then has changed nothing. It ends the
 * following before it can fail again; then that goes on, and if it can't, is tried again. */
static void not_promoted_it_follows(void **state)
{
    struct node x = {.f = *state};
    struct err err = {0};
    char address[NODE_ADDRESS_TEXT];
    struct peers peers = {.n = 0};
    int listener = listen_here(address);
    assert_int_equal(note(x.f, &peers, OLD, address, 0), 0); /* so that the promotion is all that writes */
    real = x.f->store->ops;
    struct store_ops ops = *real;
    ops.reader_open = open_reader;
    become_replica(x.f, address);
    x.f->store->ops = &ops;
    prepare(&x);
    assert_int_equal(follower_start(&x.r, &x.r.follower, &err), 0);
    assert_int_equal(changer_start(x.r.changer, &err), 0);
    await_connection(listener);
    rule(VFS_SYNC, "staging.db", 1, true, VFS_EIO);
    assert_int_equal(carry_out(&x, CHANGE_PROMOTE, 0), ERR_IO);
    vfs_fault_heal();
    assert_non_null(strstr(why, "nothing was changed"));
    advance(x.f, HOUR_MS);
    for (int readers = 0; readers < 3; readers++) {
        struct store_node now;
        role_look(x.dedup.role, &now);
        assert_int_equal(role_meet(x.dedup.role, now.term + 1, OLD, address, &err), 1);
        rule(VFS_SYNC, "staging.db", 2, true, VFS_EIO);
        atomic_store(&no_readers, readers);
        assert_int_equal(carry_out(&x, CHANGE_PROMOTE, 0), ERR_IO);
        vfs_fault_heal();
        assert_null(strstr(why, "nothing was changed"));
        assert_false(role_is_primary(x.dedup.role));
        await_connection(listener);
        assert_int_equal(atomic_load(&no_readers), 0);
        advance(x.f, HOUR_MS);
    }
    changer_stop(x.r.changer);
    follower_stop(x.r.follower);
    follower_free(x.r.follower);
    x.f->store->ops = real;
    stop(&x);
    close(listener);
}

/* Consul's lock may have had it become that of a higher term than an operator knew of. */
static void a_primary_takes_a_higher_term(void **state)
{
    struct node x = {.f = *state};
    struct store_node now;
    start(&x);
    role_look(x.dedup.role, &now);
    assert_int_equal(carry_out_above(&x, CHANGE_PROMOTE, 0, now.term - 1), ERR_INVALID);
    assert_int_equal(carry_out_above(&x, CHANGE_PROMOTE, 0, now.term + 7), 0);
    stop(&x);
    after_a_crash(x.f);
    const uint64_t before = now.term;
    x.f->store->node->get(x.f->store, &now);
    assert_int_equal(now.role, NODE_PRIMARY);
    assert_int_equal(now.term, before + 8);
}

/* One that is gone for good is no longer asked, after any start; and is the last one gone, nobody can know more. */
static void dismissed(void **state)
{
    struct node x = {.f = *state};
    struct peers peers = {.n = 0};
    x.f->cfg.replica_start = START_WHEN_HEARD;
    assert_int_equal(note(x.f, &peers, OLD, "127.0.0.1:1", 0), 0);
    assert_int_equal(note(x.f, &peers, THIRD, "127.0.0.1:2", 0), 0);
    start(&x);
    struct err err = {0};
    assert_true(changer_is_unheard(x.r.changer));
    assert_int_equal(role_may_write(x.dedup.role, &err), ERR_REPLICA);
    rule(VFS_WRITE, "staging.db", 1, true, VFS_EIO);
    assert_int_equal(carry_out(&x, CHANGE_DISMISS, OLD), ERR_IO);
    vfs_fault_heal();
    advance(x.f, HOUR_MS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(carry_out(&x, CHANGE_DISMISS, OLD), 0);
        assert_true(changer_is_unheard(x.r.changer));
    }
    assert_int_equal(carry_out(&x, CHANGE_DISMISS, THIRD), 0);
    assert_false(changer_is_unheard(x.r.changer));
    assert_int_equal(role_may_write(x.dedup.role, &err), 0);
    stop(&x);
    assert_int_equal(after_a_crash(x.f).n, 0);
    start(&x);
    assert_false(changer_is_unheard(x.r.changer));
    stop(&x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(noted_and_dropped),
        TEST(the_disk_fails),
        cmocka_unit_test(less_and_less_often),
        TEST(promoted_it_tells_after_any_start),
        TEST(replaced_it_tells_of_its_primary),
        TEST(not_promoted_it_follows),
        TEST(a_primary_takes_a_higher_term),
        TEST(dismissed),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
