/* ROLE, and INFO replication, with the names and in the forms of Redis: Sentinels, proxies and client libraries read
 * them. A fenced node is a replica whose link is down. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "front/reader_store.h"
#include "replica/change.h"
#include "replica/feeder.h"
#include "replica/figures.h"
#include "replica/follower.h"
#include "replica/replica.h"
#include "resp/command.h"
#include "store/feed.h"

struct look {
    struct store_node node;
    const struct replica *r; /* NULL: it can have none */
    bool master;
    uint64_t offset;
    struct feeder_replica replicas[FEEDER_REPLICAS_MAX];
    int n;
    struct follower_state follower;
    char host[NODE_ADDRESS_TEXT]; /* of its primary */
    int port;
};

/* "[::1]:7979", "tls://h:1", "h:1". */
static void split(const char *address, char host[NODE_ADDRESS_TEXT], int *port)
{
    const char *scheme = strstr(address, "://");
    address = scheme != NULL ? scheme + 3 : address;
    const char *colon = strrchr(address, ':');
    size_t len = colon != NULL ? (size_t)(colon - address) : strlen(address);
    *port = colon != NULL ? atoi(colon + 1) : 0;
    if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    snprintf(host, NODE_ADDRESS_TEXT, "%.*s", (int)len, address);
}

/* A server without a folder follows what stands in the front. */
static void look_at_front(struct store *store, struct follower_state *out)
{
    struct front_store_state front;
    front_store_look(store, &front);
    out->doing = front.cause[0] == '\0' ? FOLLOWER_IN_STEP : FOLLOWER_OFF;
    out->applied = front.to;
    out->age_ms = front.age_ms;
}

bool role_is_master(const struct resp_client *s)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    return dedup == NULL || role_is_primary(dedup->role);
}

static void look(const struct resp_client *s, struct look *l)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    *l = (struct look){.node = {.role = NODE_PRIMARY}, .master = true};
    if (dedup == NULL) {
        return;
    }
    role_look(dedup->role, &l->node);
    l->r = dedup->replica;
    l->master = l->node.role == NODE_PRIMARY;
    l->offset = dedup->store->node != NULL ? dedup->store->feed->last(dedup->store) : 0;
    if (l->r != NULL && l->r->feeder != NULL && l->master) {
        struct feeder_replica all[FEEDER_REPLICAS_MAX];
        int n = feeder_look(l->r->feeder, all);
        for (int i = 0; i < n; i++) { /* as in Redis, one that is away isn't named */
            if (all[i].connected) {
                l->replicas[l->n++] = all[i];
            }
        }
    }
    l->follower = (struct follower_state){.doing = FOLLOWER_OFF, .age_ms = -1};
    if (l->r != NULL && l->r->follower != NULL) {
        follower_look(l->r->follower, &l->follower);
    }
    if (front_store_is(dedup->store)) {
        look_at_front(dedup->store, &l->follower);
    }
    split(l->node.address[0] != '\0'       ? l->node.address
          : l->follower.primary[0] != '\0' ? l->follower.primary
                                           : dedup->cfg->replica_of,
          l->host, &l->port);
}

static bool link_is_up(const struct look *l)
{
    return l->node.role == NODE_REPLICA &&
           (l->follower.doing == FOLLOWER_IN_STEP || l->follower.doing == FOLLOWER_CATCHING_UP);
}

static int64_t lag_s(const struct feeder_replica *p)
{
    int64_t ms = clock_wall_ms() - p->seen_ms;
    return ms > 0 ? ms / 1000 : 0;
}

/* Seqs count within a run of a node; the term tells two primaries apart who share the first part of it. */
static void add_replid(struct buf *out, const struct look *l)
{
    bool theirs = !l->master && l->follower.node != 0;
    buf_addf(out, "master_replid:%016" PRIx64 "%016" PRIx64 "%08" PRIx32 "\r\n",
             theirs ? l->follower.node : l->node.node, theirs ? l->follower.run : l->node.run, (uint32_t)l->node.term);
}

static void add_master(struct buf *out, const struct look *l)
{
    buf_addf(out, "role:master\r\nconnected_slaves:%d\r\n", l->n);
    for (int i = 0; i < l->n; i++) {
        const struct feeder_replica *p = &l->replicas[i];
        char host[NODE_ADDRESS_TEXT];
        int port;
        split(p->address, host, &port);
        buf_addf(out, "slave%d:ip=%s,port=%d,state=online,offset=%" PRIu64 ",lag=%" PRId64 "\r\n", i, host, port,
                 p->durable, lag_s(p));
    }
}

static void add_slave(struct buf *out, const struct look *l)
{
    bool up = link_is_up(l);
    const struct follower_state *f = &l->follower;
    buf_addf(out, "role:slave\r\n");
    info_add_text(out, "master_host", l->host);
    buf_addf(out, "master_port:%d\r\nmaster_link_status:%s\r\n", l->port, up ? "up" : "down");
    buf_addf(out, "master_last_io_seconds_ago:%" PRId64 "\r\nmaster_sync_in_progress:0\r\n",
             f->age_ms < 0 ? -1 : f->age_ms / 1000);
    buf_addf(out, "slave_read_repl_offset:%" PRIu64 "\r\nslave_repl_offset:%" PRIu64 "\r\n", f->applied, f->applied);
    if (!up) {
        buf_addf(out, "master_link_down_since_seconds:%" PRId64 "\r\n", f->age_ms < 0 ? -1 : f->age_ms / 1000);
    }
    buf_addf(out, "slave_priority:100\r\nslave_read_only:1\r\nreplica_announced:1\r\nconnected_slaves:0\r\n");
}

static void add_own(struct buf *out, const struct look *l)
{
    struct ack_state ack = {.mode = ACK_LOCAL};
    if (l->r->ack != NULL) {
        ack_look(l->r->ack, &ack);
    }
    buf_addf(out, "unseen_role:%s\r\nunseen_term:%" PRIu64 "\r\nunseen_node:%016" PRIx64 "\r\n",
             node_role_name(l->node.role), l->node.term, l->node.node);
    buf_addf(out, "unseen_in_step:%d\r\n", ack.in_step);
    if (l->node.role == NODE_REPLICA) {
        buf_addf(out, "unseen_follower:%s\r\nunseen_follower_age_ms:%" PRId64 "\r\n",
                 follower_doing_name(l->follower.doing), l->follower.age_ms);
        info_add_text(out, "unseen_follower_problem", l->follower.problem);
    }
}

static void add_figure(void *arg, const struct figure *figure, uint64_t value)
{
    buf_addf(arg, "%s:%" PRIu64 "\r\n", figure->info, value);
}

void role_add_info(struct buf *out, const struct resp_client *s)
{
    struct look l;
    look(s, &l);
    l.master ? add_master(out, &l) : add_slave(out, &l);
    if (l.node.node != 0) {
        add_replid(out, &l);
        buf_addf(out, "master_repl_offset:%" PRIu64 "\r\n", l.master ? l.offset : l.follower.applied);
    }
    if (l.r != NULL) {
        add_own(out, &l);
        replica_figures_each(service_dedup(&s->conn), add_figure, out);
    }
}

static void write_number_text(struct writer *w, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    write_str(w, text);
}

enum outcome cmd_role(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct look l;
    struct writer *w = &s->writer;
    look(s, &l);
    if (l.master) {
        write_array(w, 3);
        write_str(w, "master");
        write_int(w, (int64_t)l.offset);
        write_array(w, (size_t)l.n);
        for (int i = 0; i < l.n; i++) {
            char host[NODE_ADDRESS_TEXT];
            int port;
            split(l.replicas[i].address, host, &port);
            write_array(w, 3);
            write_str(w, host);
            write_number_text(w, port);
            write_number_text(w, (int64_t)l.replicas[i].durable);
        }
    } else {
        write_array(w, 5);
        write_str(w, "slave");
        write_str(w, l.host);
        write_int(w, l.port);
        write_str(w, link_is_up(&l) ? "connected" : l.node.role == NODE_FENCED ? "none" : "connect");
        write_int(w, (int64_t)l.follower.applied);
    }
    return OUTCOME_ANSWERED;
}
