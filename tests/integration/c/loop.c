#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

static redisContext *connect_to(int port, struct timeval timeout)
{
    redisContext *c = redisConnectWithTimeout("127.0.0.1", port, timeout);
    if (c == NULL || c->err || redisSetTimeout(c, timeout) != REDIS_OK) {
        fprintf(stderr, "can't connect: %s\n", c != NULL ? c->errstr : "out of memory");
        exit(1);
    }
    return c;
}

static redisReply *run(redisContext *c, int n, const char **args)
{
    redisReply *r = redisCommandArgv(c, n, args, NULL);
    if (r == NULL || r->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "%s: %s\n", args[0], r != NULL ? r->str : c->errstr);
        exit(1);
    }
    return r;
}

int main(void)
{
    const char *text = getenv("PORT");
    int port = text != NULL ? atoi(text) : 7979;
    redisContext *writing = connect_to(port, (struct timeval){5, 0});
    redisContext *asking = connect_to(port, (struct timeval){0, 200000});

    const char *played[] = {"PLAYED", "c:u1", "a"};
    freeReplyObject(run(writing, 3, played));

    /* Recalled: from the sixth on. */
    const char *filter[] = {"FILTER", "c:u1", "REPLY", "INDEXES", "ITEMS", "a", "b", "c"};
    redisReply *unseen = run(asking, 8, filter);

    const char *as_bits[] = {"FILTER", "c:u1", "REPLY", "BITMAP", "ITEMS", "a", "b", "c"};
    redisReply *bitmap = run(asking, 8, as_bits);
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        count += (unsigned char)bitmap->str[i / 8] >> (7 - i % 8) & 1; /* 1: candidate i is unseen */
    }
    if (count != unseen->elements) {
        fprintf(stderr, "%zu are not %zu\n", count, unseen->elements);
        exit(1);
    }
    freeReplyObject(bitmap);

    if (unseen->elements > 0) {
        const char *best = filter[5 + unseen->element[0]->integer]; /* your ranking */
        const char *delivered[] = {"DELIVERED", "c:u1", best};
        freeReplyObject(run(writing, 3, delivered));
        printf("%s\n", best);
    }
    freeReplyObject(unseen);
    redisFree(writing);
    redisFree(asking);
    return 0;
}
