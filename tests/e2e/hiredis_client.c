/* Drives a running server over hiredis, as a C program would: one connection, pipelined, replies taken apart.
 * Usage: hiredis_client PORT        Prints what is wrong and exits 1, or prints "ok". */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIPELINE = 5000, ITEM_SIZE = 32 };

static redisContext *context;

__attribute__((noreturn)) static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, context->err ? context->errstr : "unexpected reply");
    exit(1);
}

static redisReply *next(const char *what, int type)
{
    void *reply = NULL;
    if (redisGetReply(context, &reply) != REDIS_OK || reply == NULL) {
        fail(what);
    }
    redisReply *r = reply;
    if (r->type != type) {
        fprintf(stderr, "%s: type %d, expected %d: %s\n", what, r->type, type, r->str ? r->str : "");
        exit(1);
    }
    return r;
}

static void expect_integer(const char *what, long long value)
{
    redisReply *r = next(what, REDIS_REPLY_INTEGER);
    if (r->integer != value) {
        fail(what);
    }
    freeReplyObject(r);
}

/* Plays of one user in single commands, all sent before the first reply is read. */
static void pipeline_plays(void)
{
    for (int i = 0; i < PIPELINE; i++) {
        redisAppendCommand(context, "PLAYED %s item:%d", "hiredis", i);
    }
    for (int i = 0; i < PIPELINE; i++) {
        expect_integer("PLAYED", 1);
    }
}

/* Twice as many candidates, every second one played. */
static void ask_bitmap(void)
{
    static char items[2 * PIPELINE][ITEM_SIZE];
    static const char *argv[2 * PIPELINE + 5] = {"FILTER", "hiredis", "REPLY", "BITMAP", "ITEMS"};
    for (int i = 0; i < 2 * PIPELINE; i++) {
        snprintf(items[i], ITEM_SIZE, i % 2 == 0 ? "item:%d" : "new:%d", i / 2);
        argv[5 + i] = items[i];
    }
    redisAppendCommandArgv(context, 2 * PIPELINE + 5, argv, NULL);
    redisReply *r = next("FILTER", REDIS_REPLY_STRING);
    if ((size_t)r->len != 2 * PIPELINE / 8) {
        fail("FILTER's length");
    }
    for (size_t i = 0; i < (size_t)r->len; i++) {
        if ((unsigned char)r->str[i] != 0x55) {
            fail("FILTER's bits");
        }
    }
    freeReplyObject(r);
}

static void ask_items(void)
{
    redisAppendCommand(context, "UNSEEN hiredis item:1 %b item:2 other", "by\0tes", (size_t)6);
    redisReply *r = next("UNSEEN", REDIS_REPLY_ARRAY);
    if (r->elements != 2 || r->element[0]->len != 6 || memcmp(r->element[0]->str, "by\0tes", 6) != 0 ||
        strcmp(r->element[1]->str, "other") != 0) {
        fail("UNSEEN's items");
    }
    freeReplyObject(r);
}

static void meet_an_error(void)
{
    redisAppendCommand(context, "PLAYED hiredis");
    redisReply *r = next("PLAYED without an item", REDIS_REPLY_ERROR);
    if (strstr(r->str, "wrong number of arguments") == NULL) {
        fail("the error's text");
    }
    freeReplyObject(r);
    redisAppendCommand(context, "FORGET hiredis");
    expect_integer("FORGET", 1);
    redisAppendCommand(context, "HISTORY hiredis");
    freeReplyObject(next("HISTORY of a forgotten user", REDIS_REPLY_NIL));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: hiredis_client PORT\n", stderr);
        return 2;
    }
    context = redisConnect("127.0.0.1", atoi(argv[1]));
    if (context == NULL || context->err) {
        fputs("can't connect\n", stderr);
        return 1;
    }
    pipeline_plays();
    ask_bitmap();
    ask_items();
    meet_an_error();
    redisFree(context);
    puts("ok");
    return 0;
}
