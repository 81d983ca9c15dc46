/* The functions behind which librdkafka stands: src/kafka/module/rdkafka.c fills in the table, as a module
 * (base/module.h), and tests have a table of their own. All functions of one client are called on one thread, and so
 * are its hooks, but for `log`. Texts are of librdkafka, cut to fit.
 */
#ifndef UNSEEN_KAFKA_CLIENT_H
#define UNSEEN_KAFKA_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct kafka_client;

enum {
    CLIENT_TEXT = 256,
    CLIENT_NOTE = 160, /* with its end */
};

enum { CLIENT_UNKNOWN = -1001 }; /* in the place of an offset, in librdkafka's value */

struct client_position {
    const char *topic;
    int32_t partition;
    int64_t offset;   /* the next to be read */
    const char *note; /* store(): what the broker keeps beside it for the group; NULL: nothing */
};

struct client_committed {
    int64_t offset; /* CLIENT_UNKNOWN: the group has none */
    char note[CLIENT_NOTE];
};

struct client_message {
    struct slice topic; /* "": an event of no partition */
    int32_t partition;
    int64_t offset;
    int64_t at_ms;           /* unix; 0: it has none */
    struct slice key, value; /* data NULL: none */
    char text[CLIENT_TEXT];  /* CLIENT_ERROR, CLIENT_RESET */
    void *own;               /* the client's */
};

enum client_event {
    CLIENT_NOTHING,
    CLIENT_MESSAGE, /* it is given back by done(), as are all that follow */
    CLIENT_END,     /* the partition was read to its end: offset is the next one there will be */
    CLIENT_RESET,   /* the partition can't be read from where it was told, which is outside of the log. It stands
                     * still until the next assign() */
    CLIENT_ERROR,
};

struct client_hooks {
    /* From within poll() and close(). The whole assignment, without offsets; the owner calls assign() for it, now or
     * later. */
    void (*assigned)(void *owner, const struct client_position *partitions, size_t n);
    /* All of it is taken away. When this returns, offsets that were stored are committed and nothing is assigned. */
    void (*revoked)(void *owner);
    void (*committed)(void *owner); /* the broker has what was stored, or some of it */
    void (*error)(void *owner, const char *text, bool all_down, bool fatal);
    void (*log)(void *owner, int level, const char *text); /* any thread; levels of syslog */
};

struct client_property {
    const char *name, *value;
};

struct client_setup {
    const struct client_property *properties;
    size_t n_properties;
    const char *const *topics;
    size_t n_topics;
    struct client_hooks hooks;
    void *owner;
};

/* Those that return an int: 0, or -1 with the text filled in, of CLIENT_TEXT bytes. */
struct client_ops {
    const char *(*version)(void);

    /* Joins the group in the background, however long no broker answers. */
    int (*open)(const struct client_setup *setup, struct kafka_client **client, char *text);

    /* Waits at most ms for one message. */
    enum client_event (*poll)(struct kafka_client *c, int ms, struct client_message *out);
    void (*done)(struct kafka_client *c, struct client_message *message);

    /* Reads on from these positions, which are all that are read. What was fetched is forgotten. */
    int (*assign)(struct kafka_client *c, const struct client_position *positions, size_t n, char *text);
    int (*pause)(struct kafka_client *c, bool paused, char *text); /* all that are assigned */

    /* What the group is to commit soon, and when it is left. Of partitions that are assigned. */
    int (*store)(struct kafka_client *c, const struct client_position *positions, size_t n, char *text);
    /* What it has committed of each of these, in out. Asks a broker, at most ms. */
    int (*committed)(struct kafka_client *c, const struct client_position *positions, size_t n,
                     struct client_committed *out, int ms, char *text);

    /* The log's first offset, and that behind its last. Asks a broker, at most ms; 0: what is known from reading. */
    int (*range)(struct kafka_client *c, const char *topic, int32_t partition, int ms, int64_t *first, int64_t *end,
                 char *text);
    /* The first offset of that time or later; the log's end when there is none. Asks a broker, at most ms. */
    int (*at_time)(struct kafka_client *c, const char *topic, int32_t partition, int64_t unix_ms, int ms,
                   int64_t *offset, char *text);

    bool (*cluster)(struct kafka_client *c, char *out, size_t size); /* its id; false: not known yet */
    int (*reach)(struct kafka_client *c, int ms, char *text);        /* whether any broker answers */

    /* Leaves the group, in at most ms; then the client is no more. */
    void (*close)(struct kafka_client *c, int ms);
};

#endif
