/* Any bytes as an answer of Consul's agent, of etcd or of Kubernetes. The first byte is what was asked, the second
 * whom, and what HTTP said of it. What can't be understood says nothing but why; what can be is sound, and whatever it
 * says can be taken and asked on from.
 */
#include <string.h>

#include "fuzz.h"
#include "registry/lock.h"

static const struct lock_kind *const kinds[] = {&lock_consul, &lock_etcd, &lock_kubernetes};
static const long statuses[] = {200, 404, 409, 500, 0};

static const struct lock_group group = {.name = "plays", .space = "films"};

static void check_id(const char *id)
{
    CHECK(strnlen(id, LEASE_SESSION) < LEASE_SESSION);
    CHECK(strspn(id, "0123456789abcdefABCDEF-") == strlen(id)); /* it becomes part of a path */
}

static void check_answer(const struct lease_answer *a)
{
    check_id(a->session);
    CHECK(strnlen(a->mark, LEASE_SESSION) < LEASE_SESSION);
    CHECK((int64_t)a->index >= 0);
    CHECK(strnlen(a->value.address, LEASE_ADDRESS) < LEASE_ADDRESS);
    CHECK(!a->readable || (int64_t)a->value.term >= 1);
    CHECK(a->n >= 0 && a->n <= LEASE_RIVALS_MAX);
    for (int i = 0; i < a->n; i++) {
        CHECK((int64_t)a->rivals[i].seq >= 0 && (int64_t)a->rivals[i].vacancy >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct lease_answer answer;
    struct lease_state s;
    struct err err = {0};
    const struct lease_self self = {.node = 1, .term = 1, .leader = 2, .seq = 3, .address = "a:1"};
    if (size < 2) {
        return 0;
    }
    const struct lock_kind *kind = kinds[(data[1] >> 4) % 3];
    lease_state_begin(&s, FAILOVER_LOSSY, &kind->promises, "0");
    lease_next(&s, &self, 0);
    s.asked = (enum lease_ask)(LEASE_NEW_SESSION + data[0] % (LEASE_PROMOTE - LEASE_NEW_SESSION));
    s.session = s.asked == LEASE_NEW_ENTRY || s.asked == LEASE_PUBLISH ? &s.entry : &s.lock;
    long status = statuses[data[1] % (sizeof statuses / sizeof *statuses)];
    lock_reply(kind, &s, status, slice_of((const char *)data + 2, size - 2), &answer, &err);
    check_answer(&answer);
    CHECK((answer.said == LEASE_LOST) == (err.code == ERR_INVALID));
    CHECK(err.code == 0 || err.text[0] != '\0');
    lease_answered(&s, &self, &answer, 0);
    enum lease_ask next = lease_next(&s, &self, 1);
    if (next != LEASE_REST && next != LEASE_PROMOTE) {
        struct lock_request request;
        CHECK(lock_request(kind, &s, &self, &group, &request, &err) == 0);
        CHECK(strnlen(request.path, LOCK_PATH) < LOCK_PATH);
        free(request.body);
    }
    return 0;
}
