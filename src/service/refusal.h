/* How an error is told to a client, on every edge: the word or number that programs decide on, and the text for
 * people. One table, so that edges can't drift apart. */
#ifndef UNSEEN_SERVICE_REFUSAL_H
#define UNSEEN_SERVICE_REFUSAL_H

#include <stdbool.h>

#include "base/err.h"

struct refusal {
    const char *word;    /* RESP: the error's first word. MISCONF is what Redis says when it can't persist: today's
                          * clients hand it to the caller as an error. READONLY they would take for a replica, and go
                          * looking for its master. */
    unsigned status;     /* HTTP */
    const char *problem; /* HTTP: urn:unseen:problem:... */
    int retry_s;         /* HTTP: Retry-After; 0: not said */
};

/* write: of what was to be recorded; else of a question, where a disk that fails is no write that was lost. */
const struct refusal *refusal_of(int code, bool write);

/* gRPC's statuses, which are the same for writes. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};
enum grpc_status refusal_status(int code);

/* The text: err's, or what stands for its code; "not recorded: " or "not answered: " stands before what a disk did.
 * Into out, which is returned. */
enum { REFUSAL_TEXT = sizeof(struct err) + 32 };
const char *refusal_text(const struct err *err, bool write, char out[REFUSAL_TEXT]);

#endif
