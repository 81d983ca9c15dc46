/* The insides of kafka.h. One thread does it all, and everything here is its own unless it says otherwise:
 *
 *   poll -> take (intake.c) -> the group that is being filled -> hand in (group.c) -> durable -> offsets for the broker
 *
 * One group at a time is with the store while the next one is filled. There are not more, since a group that fails is
 * handed in again, and one behind it would have moved the position beyond what is not there. The stager commits one
 * transaction at a time anyway.
 *
 * Each partition has `read`, the next offset to be taken. Whatever goes wrong, reading begins again from there: the
 * partitions are assigned once more (`assign`). So nothing that the client delivered meanwhile has to be kept.
 *
 * While something is in the way (the store takes nothing, dead letters can't be written), all partitions are paused and
 * polled on, so that the group keeps its member; tried again after delays that grow to two seconds.
 */
#ifndef UNSEEN_KAFKA_CONSUMER_H
#define UNSEEN_KAFKA_CONSUMER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "kafka/client.h"
#include "kafka/dead_letters.h"
#include "kafka/kafka.h"
#include "kafka/message.h"
#include "store/positions.h"

enum {
    GROUP_BYTES = 1024 * 1024, /* a full one; there are two, and the largest message may come on top */
    GROUP_GOOD = 256 * 1024,   /* is handed in when the store is free, though there is more to read */
    STAGING_SHARE = 16,        /* of staging_memory a group is a part, at most */
    CLUSTER_MAX = 100,         /* bytes of a cluster's id */
};

struct partition {
    char topic[KAFKA_TOPIC_MAX + 1];
    int32_t number;
    char source[STORE_SOURCE_MAX]; /* "": not named yet */
    char origin[STORE_SOURCE_MAX]; /* the source whose position is `begin` */
    int64_t read;                  /* the next offset to be taken; CLIENT_UNKNOWN: not known yet */
    int64_t begin;                 /* where this folder, or the one that it comes from, began to read */
    bool begin_durable;
    int64_t at_ms;     /* of the last message that was taken; 0: it has no time */
    int64_t handed_in; /* read, of the last group that the store has: where a group that can't be begins */
    bool touched;      /* read moved, and no group has it yet */
    bool found;        /* what the store has of it is known */
    bool lost;         /* where to read on must be found first: see partitions_resolve() */
    bool told;         /* the broker was, since it was assigned */
    bool unasked;      /* `lost` until the group was asked for what it has committed */
    bool added;        /* later than others of its topic, so all of it is wanted */
    bool forgotten;    /* it has nothing of what it had: `lost`, and read again from the log's first */

    /* Shown. */
    int64_t durable, durable_at_ms;
    uint64_t taken, dead, messages, messages_before;
    uint64_t taken_handed_in, dead_handed_in;
    char error[KAFKA_TEXT];
    struct kafka_partition shown; /* under the mutex */
};

struct group_position {
    struct partition *partition; /* of the generation */
    int64_t at_ms;
    int64_t begin;           /* is in the group, too; -1: it is not */
    uint64_t messages, dead; /* of that partition */
};

struct counts {
    uint64_t messages, plays, deliveries, nulls, too_old, dead;
};

enum group_doing { GROUP_FILLING, GROUP_HANDED_IN, GROUP_DONE, GROUP_FAILED };

struct group {
    struct store_batch batch;
    struct arena arena;               /* what the names of positions and offsets are in */
    struct store_position *positions; /* of the partitions, then where some of these began */
    struct client_position *offsets;
    struct group_position *of;
    size_t n, cap; /* partitions */
    bool group;    /* that the broker has our offsets is in it, too */
    struct counts counts;
    bool letters;        /* has some that are not synced */
    uint64_t generation; /* the assignment that it was read in */
    int64_t begun_us;    /* of the first message; 0: none */
    _Atomic enum group_doing doing;
    struct kafka *kafka;
};

/* What the store is asked before partitions are read (claim.c). */
enum claim_doing { CLAIM_NONE, CLAIM_UNDER_WAY, CLAIM_DONE };

struct claim {
    struct store_claim ask;
    struct arena arena;  /* of its names */
    uint64_t generation; /* the assignment that it is for */
    uint64_t held;       /* the one whose partitions are claimed; 0: none is */
    int64_t next_us;     /* not before */
    _Atomic enum claim_doing doing;
};

struct kafka {
    const struct dedup *dedup;
    const struct config *cfg;
    struct store *store;
    const struct client_ops *ops;
    struct kafka_client *client;
    const struct client_hooks *hooks;
    struct message_rules *rules;
    struct dead_letters *letters;
    struct arena arena;
    uint64_t *hashes; /* room for ITEMS_MAX */
    struct heartbeat heartbeat;
    pthread_t thread;
    bool started;
    _Atomic bool stop;

    char cluster[CLUSTER_MAX + 1];       /* "": not known yet */
    int64_t lineage;                     /* of the folder; 0: it has none */
    char group_source[STORE_SOURCE_MAX]; /* its position is group_hash once the broker had our offsets for the group */
    int64_t group_hash;
    bool group_known, group_durable; /* the broker had; and the folder says so */
    struct partition *partitions;    /* by topic and number; changed under the mutex */
    size_t n_partitions;
    size_t last; /* that was found */
    uint64_t generation;
    bool assign;              /* is to be done, from `read` of each */
    bool connected;           /* a broker has answered, and not all are down since */
    bool fatal;               /* the client is of no more use */
    uint64_t messages_before; /* of the last look at the rate */
    int64_t next_look_us, next_reach_us, next_resolve_us, next_assign_us;

    struct claim claim;
    struct group groups[2], *filling, *with_store;
    bool touched; /* some partition is */

    bool paused;          /* something is in the way */
    int64_t try_again_us; /* 0: when the store has answered */
    int64_t delay_ms;     /* 0: all is well */
    char cause[KAFKA_TEXT];
    struct log_limit limit;

    pthread_mutex_t mutex;   /* guards: */
    pthread_cond_t answered; /* by the store, or the thread has ended */
    bool ended;
    struct kafka_state shown;
};

/* --- kafka.c --- */

void kafka_note_error(struct kafka *k, const char *text);

/* --- partitions.c --- */

int partitions_set(struct kafka *k, const struct client_position *list, size_t n);
void partitions_clear(struct kafka *k);
struct partition *partition_find(struct kafka *k, struct slice topic, int32_t number); /* NULL: not assigned */
void partitions_assign(struct kafka *k);
void partition_reset(struct kafka *k, struct partition *p);
void partitions_resolve(struct kafka *k); /* asks brokers where to read on, those that are lost */
void partition_moved(struct kafka *k, struct partition *p, int64_t next);
/* What the broker is to keep beside the partition's offset: whose it is, and where they began. */
void partition_note(const struct kafka *k, const struct partition *p, char out[CLIENT_NOTE]);

/* As when it was assigned: where it is to be read is asked again. */
void partition_begin_anew(struct partition *p);

/* --- claim.c --- */

/* Whether the store knows that this node reads its partitions, which have their names; where it needn't know, too. Else
 * it is asked: look again later. */
bool claim_partitions(struct kafka *k);
/* Another node has claimed some: all that was read since the last group is read again, from what a new claim finds. */
void claim_lost(struct kafka *k);

/* --- group.c --- */

void group_init(struct kafka *k, struct group *g);
void group_free(struct group *g);
bool group_is_full(const struct group *g);
void group_hand_in(struct kafka *k);          /* what is filled, when the store is free and nothing is in the way */
void group_look(struct kafka *k);             /* whether the store has answered; tries again what is due */
void group_wait(struct kafka *k, int64_t ms); /* for the store, also for a claim */
void group_take_back(struct kafka *k); /* what is filled: it is read again, since its dead letters are not kept */
void group_drop(struct kafka *k);      /* what is filled, and what has failed */

/* Something is in the way. */
void kafka_pause(struct kafka *k, const char *cause);
void kafka_resume(struct kafka *k);

/* --- intake.c --- */

/* False: it could not be taken now, and is to be read again later. */
bool intake(struct kafka *k, struct partition *p, const struct client_message *m);

#endif
