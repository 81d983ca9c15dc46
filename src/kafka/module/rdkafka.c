/* The module "kafka": client.h by librdkafka. The only code that includes it. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/module.h"
#include "kafka/client.h"

enum { POLL_MS = 100, LAST_COMMIT_MS = 2000 };

/* Offsets are committed here and not by librdkafka, whose 2.0.2 keeps no notes with those that it stores. */
struct kafka_client {
    rd_kafka_t *rk;
    struct client_hooks hooks;
    void *owner;
    rd_kafka_topic_partition_list_t *offsets; /* the last of each partition; opaque: it is to be committed */
    int last;                                 /* of them that was found */
    bool stored;                              /* some are to be committed */
    int64_t interval_us;                      /* auto.commit.interval.ms */
    int64_t next_commit_us;
    int64_t end_us; /* the group is to be left by then; 0: it stays */
};

static int fail(char *text, const char *why)
{
    snprintf(text, CLIENT_TEXT, "%s", why);
    return -1;
}

static int fail_code(char *text, rd_kafka_resp_err_t code)
{
    return fail(text, rd_kafka_err2str(code));
}

static const char *version(void)
{
    return rd_kafka_version_str();
}

static void tell_uncommitted(struct kafka_client *c, rd_kafka_resp_err_t code)
{
    char text[CLIENT_TEXT];
    snprintf(text, sizeof text, "offsets are not committed: %s", rd_kafka_err2str(code));
    c->hooks.error(c->owner, text, false, false);
}

/* --- offsets --- */

static void set_note(rd_kafka_topic_partition_t *to, const char *note)
{
    if (to->metadata != NULL) {
        rd_kafka_mem_free(NULL, to->metadata);
    }
    to->metadata = NULL;
    to->metadata_size = 0;
    if (note != NULL) {
        to->metadata_size = strlen(note);
        to->metadata = rd_kafka_mem_malloc(NULL, to->metadata_size + 1); /* never NULL */
        memcpy(to->metadata, note, to->metadata_size + 1);
    }
}

/* They come in one order, so the next one is behind the last. */
static rd_kafka_topic_partition_t *find_offset(struct kafka_client *c, const char *topic, int32_t partition)
{
    for (int i = 1; i <= c->offsets->cnt; i++) {
        int at = (c->last + i) % c->offsets->cnt;
        rd_kafka_topic_partition_t *p = &c->offsets->elems[at];
        if (p->partition == partition && strcmp(p->topic, topic) == 0) {
            c->last = at;
            return p;
        }
    }
    return NULL;
}

/* What is to be committed, in a list of its own. NULL: nothing is. */
static rd_kafka_topic_partition_list_t *take_stored(struct kafka_client *c)
{
    if (!c->stored) {
        return NULL;
    }
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(c->offsets->cnt);
    for (int i = 0; i < c->offsets->cnt; i++) {
        rd_kafka_topic_partition_t *p = &c->offsets->elems[i];
        if (p->opaque != NULL) {
            rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(list, p->topic, p->partition);
            to->offset = p->offset;
            set_note(to, p->metadata);
            p->opaque = NULL;
        }
    }
    c->stored = false;
    return list;
}

/* Offsets that were refused are committed with the next ones, unless the partition was taken away. */
static void take_back(struct kafka_client *c, const rd_kafka_topic_partition_t *refused)
{
    rd_kafka_topic_partition_t *p = find_offset(c, refused->topic, refused->partition);
    if (p != NULL && p->offset == refused->offset) {
        p->opaque = c;
        c->stored = true;
    }
}

/* The answer comes to on_commit(). */
static void commit_stored(struct kafka_client *c)
{
    int64_t now_us = clock_real_us();
    rd_kafka_topic_partition_list_t *list = now_us >= c->next_commit_us ? take_stored(c) : NULL;
    if (list == NULL) {
        return;
    }
    c->next_commit_us = now_us + c->interval_us;
    rd_kafka_resp_err_t code = rd_kafka_commit(c->rk, list, true);
    for (int i = 0; code != RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++) {
        take_back(c, &list->elems[i]);
    }
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        tell_uncommitted(c, code);
    }
    rd_kafka_topic_partition_list_destroy(list);
}

/* Before the partitions are taken away, so it waits for the answer; what is refused is read again by who has them. */
static void commit_last(struct kafka_client *c)
{
    rd_kafka_topic_partition_list_t *list = take_stored(c);
    rd_kafka_topic_partition_list_destroy(c->offsets);
    c->offsets = rd_kafka_topic_partition_list_new(0);
    if (list == NULL) {
        return;
    }
    int64_t left_ms = c->end_us == 0 ? LAST_COMMIT_MS : (c->end_us - clock_real_us()) / 2000;
    rd_kafka_queue_t *queue = rd_kafka_queue_new(c->rk);
    if (left_ms > 0 && rd_kafka_commit_queue(c->rk, list, queue, NULL, NULL) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_event_t *event =
            rd_kafka_queue_poll(queue, (int)(left_ms < LAST_COMMIT_MS ? left_ms : LAST_COMMIT_MS));
        rd_kafka_resp_err_t code = event == NULL ? RD_KAFKA_RESP_ERR__TIMED_OUT : rd_kafka_event_error(event);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
            tell_uncommitted(c, code);
        }
        if (event != NULL) {
            rd_kafka_event_destroy(event);
        }
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_partition_list_destroy(list);
}

/* --- callbacks --- */

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct kafka_client *c = opaque;
    if (code != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        c->hooks.revoked(c->owner);
        commit_last(c);
        rd_kafka_assign(rk, NULL);
        return;
    }
    size_t n = (size_t)list->cnt;
    struct client_position *positions = calloc(n + 1, sizeof *positions);
    if (positions == NULL) {
        c->hooks.error(c->owner, "out of memory for an assignment", false, true);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        positions[i] = (struct client_position){
            .topic = list->elems[i].topic, .partition = list->elems[i].partition, .offset = CLIENT_UNKNOWN};
    }
    c->hooks.assigned(c->owner, positions, n);
    free(positions);
}

static void on_error(rd_kafka_t *rk, int code, const char *reason, void *opaque)
{
    struct kafka_client *c = opaque;
    char text[CLIENT_TEXT];
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        code = rd_kafka_fatal_error(rk, text, sizeof text);
        c->hooks.error(c->owner, text, false, true);
    } else {
        c->hooks.error(c->owner, reason, code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, false);
    }
}

static void on_commit(rd_kafka_t *rk, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t *offsets, void *opaque)
{
    (void)rk;
    struct kafka_client *c = opaque;
    rd_kafka_resp_err_t why = code;
    for (int i = 0; offsets != NULL && i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *told = &offsets->elems[i];
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR && told->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            continue;
        }
        why = why != RD_KAFKA_RESP_ERR_NO_ERROR ? why : told->err;
        take_back(c, told);
    }
    if (why != RD_KAFKA_RESP_ERR_NO_ERROR) {
        tell_uncommitted(c, why);
    } else {
        c->hooks.committed(c->owner);
    }
}

static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    (void)facility;
    struct kafka_client *c = rk != NULL ? rd_kafka_opaque(rk) : NULL;
    if (c != NULL) {
        c->hooks.log(c->owner, level, text);
    }
}

/* --- from the first to the last --- */

static int configure(rd_kafka_conf_t *conf, const struct client_setup *setup, char *text)
{
    char why[CLIENT_TEXT];
    for (size_t i = 0; i < setup->n_properties; i++) {
        const struct client_property *p = &setup->properties[i];
        if (rd_kafka_conf_set(conf, p->name, p->value, why, sizeof why) != RD_KAFKA_CONF_OK) {
            return fail(text, why);
        }
    }
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_offset_commit_cb(conf, on_commit);
    rd_kafka_conf_set_log_cb(conf, on_log);
    return 0;
}

static int subscribe(rd_kafka_t *rk, const struct client_setup *setup, char *text)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)setup->n_topics);
    for (size_t i = 0; i < setup->n_topics; i++) {
        rd_kafka_topic_partition_list_add(list, setup->topics[i], RD_KAFKA_PARTITION_UA);
    }
    rd_kafka_resp_err_t code = rd_kafka_subscribe(rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : fail_code(text, code);
}

static int open_client(const struct client_setup *setup, struct kafka_client **client, char *text)
{
    struct kafka_client *c = calloc(1, sizeof *c);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (c == NULL || conf == NULL) {
        free(c);
        return fail(text, "out of memory");
    }
    c->hooks = setup->hooks;
    c->owner = setup->owner;
    rd_kafka_conf_set_opaque(conf, c);
    char why[CLIENT_TEXT];
    size_t size = sizeof why;
    if (configure(conf, setup, text) < 0) {
        rd_kafka_conf_destroy(conf);
        free(c);
        return -1;
    }
    if (rd_kafka_conf_get(conf, "auto.commit.interval.ms", why, &size) == RD_KAFKA_CONF_OK) {
        c->interval_us = strtoll(why, NULL, 10) * 1000;
    }
    c->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (c->rk == NULL) {
        rd_kafka_conf_destroy(conf);
        free(c);
        return fail(text, why);
    }
    c->offsets = rd_kafka_topic_partition_list_new(0);
    rd_kafka_poll_set_consumer(c->rk);
    if (subscribe(c->rk, setup, text) < 0) {
        rd_kafka_destroy(c->rk);
        rd_kafka_topic_partition_list_destroy(c->offsets);
        free(c);
        return -1;
    }
    *client = c;
    return 0;
}

/* rd_kafka_consumer_close() waits for brokers as long as it takes, so it is done in steps here. */
static void close_client(struct kafka_client *c, int ms)
{
    int64_t end_us = c->end_us = clock_real_us() + ms * INT64_C(1000);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(c->rk);
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(c->rk, queue);
    bool closing = error == NULL;
    if (error != NULL) {
        rd_kafka_error_destroy(error);
    }
    while (closing && !rd_kafka_consumer_closed(c->rk) && clock_real_us() < end_us) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(c->rk, POLL_MS);
        if (m != NULL) {
            rd_kafka_message_destroy(m);
        }
    }
    rd_kafka_queue_destroy(queue);
    if (closing && !rd_kafka_consumer_closed(c->rk)) {
        return; /* rd_kafka_destroy() would wait for the rest: it is left behind, and says nothing but to the log */
    }
    rd_kafka_destroy_flags(c->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    rd_kafka_topic_partition_list_destroy(c->offsets);
    free(c);
}

/* --- reading --- */

static void point(struct client_message *out, const rd_kafka_message_t *m)
{
    out->topic = m->rkt != NULL ? slice_str(rd_kafka_topic_name(m->rkt)) : slice_of("", 0);
    out->partition = m->partition;
    out->offset = m->offset;
}

static enum client_event trouble(rd_kafka_message_t *m, struct client_message *out)
{
    rd_kafka_resp_err_t code = m->err;
    point(out, m);
    snprintf(out->text, sizeof out->text, "%s", rd_kafka_message_errstr(m));
    out->own = m; /* the name of its topic lives with it */
    return code == RD_KAFKA_RESP_ERR__PARTITION_EOF       ? CLIENT_END
           : code == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ? CLIENT_RESET
                                                          : CLIENT_ERROR;
}

static enum client_event poll_client(struct kafka_client *c, int ms, struct client_message *out)
{
    rd_kafka_message_t *m = rd_kafka_consumer_poll(c->rk, ms);
    commit_stored(c);
    if (m == NULL) {
        return CLIENT_NOTHING;
    }
    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return trouble(m, out);
    }
    rd_kafka_timestamp_type_t type;
    int64_t at = rd_kafka_message_timestamp(m, &type);
    point(out, m);
    out->at_ms = type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE || at < 0 ? 0 : at;
    out->key = slice_of(m->key, m->key_len);
    out->value = slice_of(m->payload, m->len);
    out->own = m;
    return CLIENT_MESSAGE;
}

static void done(struct kafka_client *c, struct client_message *message)
{
    (void)c;
    rd_kafka_message_destroy(message->own);
    message->own = NULL;
}

static rd_kafka_topic_partition_list_t *list_of(const struct client_position *positions, size_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    for (size_t i = 0; i < n; i++) {
        rd_kafka_topic_partition_list_add(list, positions[i].topic, positions[i].partition)->offset =
            positions[i].offset;
    }
    return list;
}

static int assign(struct kafka_client *c, const struct client_position *positions, size_t n, char *text)
{
    rd_kafka_topic_partition_list_t *list = list_of(positions, n);
    rd_kafka_resp_err_t code = rd_kafka_assign(c->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : fail_code(text, code);
}

static int pause_client(struct kafka_client *c, bool paused, char *text)
{
    rd_kafka_topic_partition_list_t *list;
    rd_kafka_resp_err_t code = rd_kafka_assignment(c->rk, &list);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        code = paused ? rd_kafka_pause_partitions(c->rk, list) : rd_kafka_resume_partitions(c->rk, list);
        rd_kafka_topic_partition_list_destroy(list);
    }
    return code == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : fail_code(text, code);
}

static int store(struct kafka_client *c, const struct client_position *positions, size_t n, char *text)
{
    (void)text;
    for (size_t i = 0; i < n; i++) {
        rd_kafka_topic_partition_t *p = find_offset(c, positions[i].topic, positions[i].partition);
        if (p == NULL) {
            p = rd_kafka_topic_partition_list_add(c->offsets, positions[i].topic, positions[i].partition);
        }
        p->offset = positions[i].offset;
        set_note(p, positions[i].note);
        p->opaque = c;
        c->stored = true;
    }
    return 0;
}

/* --- what a broker says --- */

static int range(struct kafka_client *c, const char *topic, int32_t partition, int ms, int64_t *first, int64_t *end,
                 char *text)
{
    rd_kafka_resp_err_t code = ms == 0 ? rd_kafka_get_watermark_offsets(c->rk, topic, partition, first, end)
                                       : rd_kafka_query_watermark_offsets(c->rk, topic, partition, first, end, ms);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && *end < 0) {
        return fail(text, "not known yet");
    }
    return code == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : fail_code(text, code);
}

static int committed(struct kafka_client *c, const struct client_position *positions, size_t n,
                     struct client_committed *out, int ms, char *text)
{
    rd_kafka_topic_partition_list_t *list = list_of(positions, n);
    rd_kafka_resp_err_t code = rd_kafka_committed(c->rk, list, ms);
    for (size_t i = 0; code == RD_KAFKA_RESP_ERR_NO_ERROR && i < n; i++) {
        const rd_kafka_topic_partition_t *p =
            rd_kafka_topic_partition_list_find(list, positions[i].topic, positions[i].partition);
        code = p != NULL ? p->err : RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
        out[i] = (struct client_committed){.offset = p != NULL && p->offset >= 0 ? p->offset : CLIENT_UNKNOWN};
        if (p != NULL && p->metadata_size < sizeof out[i].note) {
            memcpy(out[i].note, p->metadata != NULL ? p->metadata : "", p->metadata_size);
        }
    }
    rd_kafka_topic_partition_list_destroy(list);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : fail_code(text, code);
}

static int at_time(struct kafka_client *c, const char *topic, int32_t partition, int64_t unix_ms, int ms,
                   int64_t *offset, char *text)
{
    struct client_position asked = {.topic = topic, .partition = partition, .offset = unix_ms};
    rd_kafka_topic_partition_list_t *list = list_of(&asked, 1);
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(c->rk, list, ms);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        code = list->elems[0].err;
        *offset = list->elems[0].offset;
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return fail_code(text, code);
    }
    int64_t first;
    return *offset >= 0 ? 0 : range(c, topic, partition, ms, &first, offset, text);
}

static bool cluster(struct kafka_client *c, char *out, size_t size)
{
    char *id = rd_kafka_clusterid(c->rk, 0);
    if (id == NULL) {
        return false;
    }
    snprintf(out, size, "%s", id);
    rd_kafka_mem_free(c->rk, id);
    return true;
}

static int reach(struct kafka_client *c, int ms, char *text)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t code = rd_kafka_metadata(c->rk, 0, NULL, &metadata, ms);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return fail_code(text, code);
    }
    rd_kafka_metadata_destroy(metadata);
    return 0;
}

static const struct client_ops ops = {
    .version = version,
    .open = open_client,
    .poll = poll_client,
    .done = done,
    .assign = assign,
    .pause = pause_client,
    .store = store,
    .committed = committed,
    .range = range,
    .at_time = at_time,
    .cluster = cluster,
    .reach = reach,
    .close = close_client,
};

__attribute__((visibility("default"))) extern const struct module unseen_module;
const struct module unseen_module = {UNSEEN_VERSION, &ops};
