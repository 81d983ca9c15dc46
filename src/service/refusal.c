#include "service/refusal.h"

#include <stddef.h>
#include <stdio.h>

static const struct row {
    int code;
    enum grpc_status grpc;
    struct refusal of_question, of_write;
    const char *text; /* when the error has none */
} rows[] = {
    {ERR_INVALID, GRPC_INVALID_ARGUMENT, {"ERR", 400, "bad-request", 0}, {"ERR", 400, "bad-request", 0}, "bad request"},
    {ERR_RANGE, GRPC_OUT_OF_RANGE, {"ERR", 400, "bad-request", 0}, {"ERR", 400, "bad-request", 0}, "out of range"},
    {ERR_BUSY, GRPC_RESOURCE_EXHAUSTED, {"BUSY", 503, "busy", 5}, {"BUSY", 503, "busy", 5}, "busy"},
    {ERR_FULL,
     GRPC_RESOURCE_EXHAUSTED,
     {"ERR", 503, "disk-full", 60},
     {"MISCONF", 503, "disk-full", 60},
     "the disk is full"},
    {ERR_IO, GRPC_INTERNAL, {"ERR", 500, "failed", 0}, {"MISCONF", 500, "not-recorded", 0}, "the disk failed"},
    {ERR_READONLY,
     GRPC_INTERNAL,
     {"ERR", 500, "failed", 0},
     {"MISCONF", 500, "not-recorded", 0},
     "the folder can't be written"},
    {ERR_NOMEM,
     GRPC_RESOURCE_EXHAUSTED,
     {"OOM", 503, "out-of-memory", 5},
     {"OOM", 503, "out-of-memory", 5},
     "out of memory"},
    {ERR_LOADING,
     GRPC_UNAVAILABLE,
     {"LOADING", 503, "recovering", 1},
     {"LOADING", 503, "recovering", 1},
     "Redis is loading the dataset in memory"},
    {ERR_CLOSED, GRPC_UNAVAILABLE, {"ERR", 503, "stopping", 0}, {"ERR", 503, "stopping", 0}, "server is shutting down"},
    {ERR_ABSENT,
     GRPC_UNIMPLEMENTED,
     {"ERR", 501, "absent", 0},
     {"ERR", 501, "absent", 0},
     "the store has no such capability"},
    {ERR_LATE, GRPC_DEADLINE_EXCEEDED, {"ERR", 503, "late", 0}, {"ERR", 503, "late", 0}, "too late"},
    {ERR_NOAUTH,
     GRPC_UNAUTHENTICATED,
     {"NOAUTH", 401, "unauthorized", 0},
     {"NOAUTH", 401, "unauthorized", 0},
     "Authentication required."},
    {ERR_WRONGPASS,
     GRPC_UNAUTHENTICATED,
     {"WRONGPASS", 401, "unauthorized", 0},
     {"WRONGPASS", 401, "unauthorized", 0},
     "invalid username-password pair or user is disabled."},
    {ERR_NOPERM,
     GRPC_PERMISSION_DENIED,
     {"NOPERM", 403, "forbidden", 0},
     {"NOPERM", 403, "forbidden", 0},
     "this account may not do this"},
    {ERR_LOGINS,
     GRPC_RESOURCE_EXHAUSTED,
     {"WRONGPASS", 429, "too-many-failed-logins", 10},
     {"WRONGPASS", 429, "too-many-failed-logins", 10},
     "too many failed logins from your address, try again in 10 seconds"},
    {ERR_REPLICA,
     GRPC_FAILED_PRECONDITION,
     {"READONLY", 421, "read-only-replica", 0},
     {"READONLY", 421, "read-only-replica", 0},
     "You can't write against a read only replica."},
    {ERR_STALE,
     GRPC_UNAVAILABLE,
     {"MASTERDOWN", 503, "stale-replica", 1},
     {"MASTERDOWN", 503, "stale-replica", 1},
     "this replica has not heard of its primary for too long"},
    {ERR_ALONE,
     GRPC_UNAVAILABLE,
     {"NOREPLICAS", 503, "not-replicated", 1},
     {"NOREPLICAS", 503, "not-replicated", 1},
     "no replica has acknowledged it"},
    {ERR_SHARED,
     GRPC_FAILED_PRECONDITION,
     {"ERR", 409, "shared-key", 0},
     {"ERR", 409, "shared-key", 0},
     "two users share one key"},
    {ERR_CONFLICT,
     GRPC_FAILED_PRECONDITION,
     {"ERR", 409, "conflict", 0},
     {"ERR", 409, "conflict", 0},
     "what is there forbids it"},
    {ERR_POOL,
     GRPC_NOT_FOUND,
     {"NOPOOL", 404, "unknown-pool", 0},
     {"NOPOOL", 404, "unknown-pool", 0},
     "there is no such pool"},
    {ERR_POOL_VERSION,
     GRPC_FAILED_PRECONDITION,
     {"VERSION", 409, "pool-version", 0},
     {"VERSION", 409, "pool-version", 0},
     "the pool has another version"},
    {ERR_SEED,
     GRPC_FAILED_PRECONDITION,
     {"SEED", 409, "other-seed", 0},
     {"ERR", 409, "other-seed", 0},
     "the hashes were made with another seed"},
    {ERR_CORRUPT, GRPC_DATA_LOSS, {"ERR", 500, "damaged", 0}, {"ERR", 500, "damaged", 0}, "stored bytes are damaged"},
    {0, GRPC_INTERNAL, {"ERR", 500, "failed", 0}, {"ERR", 500, "failed", 0}, "failed"},
};

static const struct row *row_of(int code)
{
    const struct row *row = rows;
    while (row->code != code && row->code != 0) {
        row++;
    }
    return row;
}

const struct refusal *refusal_of(int code, bool write)
{
    const struct row *row = row_of(code);
    return write ? &row->of_write : &row->of_question;
}

enum grpc_status refusal_status(int code)
{
    return row_of(code)->grpc;
}

const char *refusal_text(const struct err *err, bool write, char out[REFUSAL_TEXT])
{
    bool fixed = err->text[0] == '\0' || err->code == ERR_CLOSED;
    bool disk = err->code == ERR_FULL || err->code == ERR_IO || err->code == ERR_READONLY;
    snprintf(out, REFUSAL_TEXT, "%s%s",
             !disk   ? ""
             : write ? "not recorded: "
                     : "not answered: ",
             fixed ? row_of(err->code)->text : err->text);
    return out;
}
