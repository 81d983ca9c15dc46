/* The commands that are a request of the service, as their rows and the table of fields say. */
#include "resp/args.h"
#include "resp/command.h"

enum outcome cmd_request(struct resp_client *s, const struct slice *args, size_t n)
{
    const struct command *row = s->last;
    struct asked asked = {.rq = {.kind = row->kind}};
    enum outcome refused;
    size_t at = arg_is(args[0], row->name) ? 1 : 2; /* behind a subcommand's name */
    if (!args_read(s, row->of, args, n, at, &asked, &refused)) {
        return refused;
    }
    fields_complete(&asked);
    return resp_client_submit(s, &asked.rq, row->write);
}
