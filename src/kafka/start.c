#include "kafka/start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kafka/consumer.h"

enum { PROPERTIES_MAX = 128, TOPICS_MAX = CONFIG_LIST / 2 };

struct properties {
    struct client_property list[PROPERTIES_MAX];
    size_t n;
    struct arena arena;
};

static void add(struct properties *p, const char *name, const char *value)
{
    if (p->n < PROPERTIES_MAX) {
        p->list[p->n++] = (struct client_property){name, value};
    }
}

/* What may be changed by the configuration. librdkafka holds what it has fetched: 64 MiB in all, and one answer of a
 * broker may come on top, which says itself how long it is. After a limit is reached, 2.0.2 does not fetch from the
 * partition for a second, whatever is set: so the queue must hold what is taken in a second, or reading stands still in
 * between. */
static void add_defaults(struct properties *p)
{
    add(p, "client.id", "unseen");
    add(p, "queued.max.messages.kbytes", "65536");
    add(p, "queued.min.messages", "300000");
    add(p, "fetch.max.bytes", "8388608");
    add(p, "receive.message.max.bytes", "33554432"); /* 100 MB by librdkafka's own default */
    add(p, "fetch.wait.max.ms", "100");
    add(p, "auto.commit.interval.ms", "1000");
}

/* Of a file that it can't read librdkafka says neither the name nor why. */
static int check_file(const struct config_property *property, struct err *err)
{
    static const char *const files[] = {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
                                        "ssl.crl.location", "ssl.keystore.location"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(property->name, files[i]) == 0 && strcmp(property->value, "probe") != 0 &&
            access(property->value, R_OK) < 0) {
            return err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "kafka_%s: can't read %s: %s", property->name,
                           property->value, strerror(errno));
        }
    }
    return 0;
}

static int add_configured(const struct config *cfg, struct properties *p, struct err *err)
{
    const char *at = cfg->kafka_properties;
    struct config_property property;
    while (config_next_property(&at, &property)) {
        char *name = arena_copy(&p->arena, property.name, strlen(property.name) + 1);
        char *value = arena_copy(&p->arena, property.value, strlen(property.value) + 1);
        if (name == NULL || value == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        int rc = check_file(&property, err);
        if (rc < 0) {
            return rc;
        }
        add(p, name, value);
    }
    return 0;
}

/* What the promises rest on; see config/kafka.c, which refuses them in the configuration. */
static void add_fixed(const struct config *cfg, struct properties *p)
{
    add(p, "bootstrap.servers", cfg->kafka_brokers);
    add(p, "group.id", cfg->kafka_group);
    add(p, "enable.auto.commit", "false"); /* the module does, with notes */
    add(p, "enable.auto.offset.store", "false");
    add(p, "auto.offset.reset", "error");
    add(p, "enable.partition.eof", "true");
    add(p, "partition.assignment.strategy", "range");
}

static int open_client(struct kafka *k, struct client_setup *setup, struct properties *p, struct err *err)
{
    const char *topics[TOPICS_MAX];
    struct slice word;
    char text[CLIENT_TEXT];
    add_defaults(p);
    int rc = add_configured(k->cfg, p, err);
    if (rc < 0) {
        return rc;
    }
    add_fixed(k->cfg, p);
    for (const char *at = k->cfg->kafka_topics; config_next_word(&at, &word);) {
        char *topic = arena_alloc(&p->arena, word.len + 1);
        if (topic == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        snprintf(topic, word.len + 1, "%.*s", (int)word.len, word.data);
        topics[setup->n_topics++] = topic;
    }
    setup->topics = topics;
    setup->properties = p->list;
    setup->n_properties = p->n;
    if (k->ops->open(setup, &k->client, text) < 0) {
        return err_set(err, ERR_INVALID, "[kafka]: %s", text);
    }
    return 0;
}

int kafka_open_client(struct kafka *k, struct err *err)
{
    struct client_setup setup = {.hooks = *k->hooks, .owner = k};
    struct properties p = {.n = 0};
    int rc = open_client(k, &setup, &p, err);
    arena_free(&p.arena);
    return rc;
}

/* One that can't be written is told at the start, not by the first message that can't be read. */
static int make_folder(const char *path, struct err *err)
{
    if ((mkdir(path, 0750) < 0 && errno != EEXIST) || access(path, W_OK | X_OK) < 0) {
        int code = errno == EACCES || errno == EROFS ? ERR_READONLY : errno == ENOENT ? ERR_NOTFOUND : ERR_IO;
        return err_set(err, code, "kafka_dead_letters: can't write into %s: %s", log_quote_str(path), strerror(errno));
    }
    return 0;
}

static int open_parts(struct kafka *k, struct err *err)
{
    if (k->store->positions == NULL) {
        return store_lacks(k->store, "positions", err);
    }
    k->store->positions->find(k->store, slice_str(STORE_LINEAGE), &k->lineage);
    k->hashes = malloc(ITEMS_MAX * sizeof *k->hashes);
    if (k->hashes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for Kafka");
    }
    int rc = message_rules_new(k->cfg, &k->rules, err);
    bool named = k->cfg->kafka_dead_letters[0] != '\0';
    if (rc == 0 && (named || k->cfg->store == STORE_ENGINE_SQLITE)) { /* else there is no folder */
        rc = named ? make_folder(k->cfg->kafka_dead_letters, err) : 0;
        rc = rc < 0 ? rc : dead_letters_open(config_dead_letters(k->cfg), &k->letters, err);
    }
    return rc < 0 ? rc : kafka_open_client(k, err);
}

int kafka_new(const struct client_ops *ops, const struct dedup *dedup, const struct client_hooks *hooks,
              struct kafka **kafka, struct err *err)
{
    struct kafka *k = calloc(1, sizeof *k);
    *kafka = NULL;
    if (k == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for Kafka");
    }
    k->ops = ops;
    k->dedup = dedup;
    k->cfg = dedup->cfg;
    k->store = dedup->store;
    k->hooks = hooks;
    pthread_mutex_init(&k->mutex, NULL);
    pthread_cond_init(&k->answered, NULL);
    k->shown.doing = KAFKA_CONNECTING;
    k->shown.lag = k->shown.lag_ms = -1;
    snprintf(k->shown.group, sizeof k->shown.group, "%s", k->cfg->kafka_group);
    group_init(k, &k->groups[0]);
    group_init(k, &k->groups[1]);
    k->filling = &k->groups[0];
    int rc = open_parts(k, err);
    if (rc < 0) {
        kafka_free(k);
        return rc;
    }
    log_info("reading from Kafka", "librdkafka=%s brokers=%s topics=%s group=%s", ops->version(),
             log_quote_str(k->cfg->kafka_brokers), log_quote_str(k->cfg->kafka_topics),
             log_quote_str(k->cfg->kafka_group));
    *kafka = k;
    return 0;
}

/* One whose thread would not end is left behind with all that it may touch. */
void kafka_free(struct kafka *k)
{
    if (k == NULL || k->started) {
        return;
    }
    message_rules_free(k->rules);
    dead_letters_close(k->letters);
    group_free(&k->groups[0]);
    group_free(&k->groups[1]);
    arena_free(&k->arena);
    arena_free(&k->claim.arena);
    free(k->partitions);
    free(k->hashes);
    pthread_cond_destroy(&k->answered);
    pthread_mutex_destroy(&k->mutex);
    free(k);
}
