/* PLAYED, PLAYEDAT, DELIVERED, FORGET, and a scroll session's BLOCK and UNBLOCK: ids in, a count out. */
#include "resp/args.h"
#include "resp/command.h"

enum outcome cmd_played(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_PLAY, .user = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, NULL);
}

enum outcome cmd_playedat(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_PLAY, .user = args[1], .items = args + 3, .n = n - 3, .has_at = true};
    if (!arg_int(args[2], &rq.at_ms)) {
        return resp_client_refuse(s, "ERR unix_ms must be a whole number of milliseconds since 1970, got '%.*s'",
                                  arg_shown(args[2]), args[2].data);
    }
    return resp_client_submit(s, &rq, NULL);
}

enum outcome cmd_delivered(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_DELIVERY, .user = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, NULL);
}

enum outcome cmd_forget(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_FORGET, .user = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, NULL);
}

enum outcome cmd_block(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_BLOCK, .session = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, NULL);
}

enum outcome cmd_unblock(struct resp_client *s, const struct slice *args, size_t n)
{
    struct request rq = {.kind = REQUEST_UNBLOCK, .session = args[1], .items = args + 2, .n = n - 2};
    return resp_client_submit(s, &rq, NULL);
}
