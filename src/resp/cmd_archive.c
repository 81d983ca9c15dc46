/* ARCHIVE STATUS, ARCHIVE FORGETNOW. */
#include "archive/archive.h"
#include "resp/command.h"

static const char none[] = "ERR there is no archive: set url in the section [archive]";

/* NULL: the command was refused. */
static struct archive *archive_of(struct resp_client *s, enum outcome *refused)
{
    const struct dedup *d = service_dedup(&s->conn);
    *refused = OUTCOME_ANSWERED;
    if (d->archive == NULL) {
        *refused = d->store->feed == NULL ? resp_client_lacks(s, "archive") : resp_client_refuse(s, "%s", none);
    }
    return d->archive;
}

enum outcome cmd_archive(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    enum outcome refused;
    struct archive_status a;
    if (archive_of(s, &refused) == NULL) {
        return refused;
    }
    archive_look(service_dedup(&s->conn), &a);
    const struct writer_number numbers[] = {
        {"restorable", a.restorable},
        {"since", a.since_ms},
        {"archived_at", a.archived_ms},
        {"to", (int64_t)a.to},
        {"waiting", (int64_t)a.queue.events},
        {"waiting_bytes", (int64_t)a.queue.bytes},
        {"limit", (int64_t)a.queue.limit},
        {"behind_ms", a.queue.behind_ms},
        {"lost_since", a.queue.lost_ms},
        {"left_out", (int64_t)a.queue.left_out},
        {"round", a.round},
        {"round_permille", (int64_t)(a.part * 1000)},
        {"rounded_at", a.rounded_ms},
        {"rounds", (int64_t)a.rounds},
        {"segments", (int64_t)a.segments},
        {"segment_bytes", (int64_t)a.segment_bytes},
        {"events", (int64_t)a.events},
        {"users", (int64_t)a.users},
        {"parts", (int64_t)a.shards},
        {"part_bytes", (int64_t)a.shard_bytes},
        {"errors", (int64_t)a.errors},
        {"removed", (int64_t)a.removed},
    };
    write_map(&s->writer, 4 + sizeof numbers / sizeof *numbers);
    write_pair_str(&s->writer, "state", archive_doing_name(a.doing));
    write_pair_str(&s->writer, "cause", a.cause);
    write_pair_str(&s->writer, "url", a.url);
    write_pair_hex(&s->writer, "node", a.node);
    write_pair_ints(&s->writer, numbers, sizeof numbers / sizeof *numbers);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_archive_forget_now(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct err err;
    enum outcome refused;
    struct archive *a = archive_of(s, &refused);
    if (a == NULL) {
        return refused;
    }
    if (archive_forget_now(a, &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}
