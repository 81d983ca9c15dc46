#include "config/kafka.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

#define HANDED_THROUGH "rdkafka."

/* What the service decides itself: another value would break what it promises of plays. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"bootstrap.servers", "brokers says that"},
    {"metadata.broker.list", "brokers says that"},
    {"group.id", "group says that"},
    {"auto.offset.reset", "start says that"},
    {"enable.auto.offset.store", "an offset is stored when its plays are durable, not before"},
    {"enable.auto.commit", "offsets are committed when their plays are durable, and by the service"},
    {"auto.commit.enable", "offsets are committed when their plays are durable, and by the service"},
    {"offset.store.method", "offsets are kept in the data folder, beside their plays"},
    {"offset.store.path", "offsets are kept in the data folder, beside their plays"},
    {"partition.assignment.strategy", "partitions are handed over whole, by range"},
    {"group.protocol", "partitions are handed over whole, by range"},
    {"enable.partition.eof", "the service needs to know where a log ends"},
    {"plugin.library.paths", "it would load code into the service"},
};

static const char *const secrets[] = {"password", "secret", "ssl.key.pem", "sasl.oauthbearer.config", NULL};

static const char *plain_name(const char *name)
{
    size_t len = strlen(HANDED_THROUGH);
    return strncmp(name, HANDED_THROUGH, len) == 0 ? name + len : name;
}

bool config_is_property(const char *name)
{
    static const char *const starts[] = {HANDED_THROUGH, "security.", "sasl.", "ssl.", NULL};
    for (size_t i = 0; starts[i] != NULL; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool config_is_secret_property(const char *name)
{
    for (size_t i = 0; secrets[i] != NULL; i++) {
        if (strcasestr(name, secrets[i]) != NULL) {
            return true;
        }
    }
    return false;
}

bool config_next_property(const char **at, struct config_property *out)
{
    size_t line = strcspn(*at, "\n"), name = strcspn(*at, "=");
    if (line == 0) {
        return false;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)name, *at);
    snprintf(out->value, sizeof out->value, "%.*s", (int)(line - name - 1), *at + name + 1);
    out->secret = config_is_secret_property(out->name);
    *at += line + 1;
    return true;
}

bool config_has_property(const struct config *cfg, const char *name)
{
    struct config_property p;
    const char *at = cfg->kafka_properties;
    bool found = false;
    while (!found && config_next_property(&at, &p)) {
        found = strcmp(p.name, plain_name(name)) == 0;
    }
    explicit_bzero(&p, sizeof p);
    return found;
}

static int check_name(const char *name, struct err *err)
{
    const char *plain = plain_name(name);
    if (!config_is_property(name)) {
        return err_set(err, ERR_NOTFOUND,
                       "there is no option %s in [kafka]; a property of librdkafka is written as " HANDED_THROUGH
                       "NAME, or begins with security., sasl. or ssl.",
                       log_quote_str(name));
    }
    if (plain[0] == '\0' || strlen(plain) >= CONFIG_PROPERTY_NAME ||
        plain[strspn(plain, "abcdefghijklmnopqrstuvwxyz0123456789._-")] != '\0') {
        return err_set(err, ERR_INVALID,
                       CONFIG_KAFKA_PREFIX "%s: expected a name of at most %d small letters, digits, . and _",
                       log_quote_str(name), CONFIG_PROPERTY_NAME - 1);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (strcmp(plain, refused[i].name) == 0) {
            return err_set(err, ERR_INVALID, CONFIG_KAFKA_PREFIX "%s can't be set: %s", name, refused[i].why);
        }
    }
    return 0;
}

static int check_value(const char *name, const char *value, struct err *err)
{
    for (size_t i = 0; value[i] != '\0'; i++) {
        if (iscntrl((unsigned char)value[i])) {
            return err_set(err, ERR_INVALID, CONFIG_KAFKA_PREFIX "%s holds a control character (byte %zu)", name,
                           i + 1);
        }
    }
    if (strcmp(value, CONFIG_MASK) == 0 && config_is_secret_property(name)) {
        return err_set(err, ERR_INVALID,
                       CONFIG_KAFKA_PREFIX "%s is what stands for a hidden one, expected the real one", name);
    }
    if (strlen(value) > CONFIG_TEXT_MAX) {
        return err_set(err, ERR_RANGE, CONFIG_KAFKA_PREFIX "%s is %zu bytes long, expected at most %d", name,
                       strlen(value), CONFIG_TEXT_MAX);
    }
    return 0;
}

/* Where the line of that property begins, or the end. */
static char *line_of(char *properties, const char *plain)
{
    size_t len = strlen(plain);
    char *at = properties;
    while (*at != '\0' && !(strncmp(at, plain, len) == 0 && at[len] == '=')) {
        at += strcspn(at, "\n") + 1;
    }
    return at;
}

int config_set_property(struct config *cfg, const char *name, const char *value, struct err *err)
{
    const char *plain = plain_name(name);
    int code = check_name(name, err);
    code = code < 0 ? code : check_value(name, value, err);
    if (code < 0) {
        return code;
    }
    char *line = line_of(cfg->kafka_properties, plain);
    size_t old = *line != '\0' ? strcspn(line, "\n") + 1 : 0, all = strlen(cfg->kafka_properties);
    size_t more = value[0] != '\0' ? strlen(plain) + strlen(value) + 2 : 0;
    if (all - old + more >= CONFIG_PROPERTIES_TEXT) {
        return err_set(err, ERR_RANGE, CONFIG_KAFKA_PREFIX "%s: all properties together are longer than %d bytes", name,
                       CONFIG_PROPERTIES_TEXT - 1);
    }
    memmove(line, line + old, strlen(line + old) + 1);
    if (more > 0) {
        snprintf(cfg->kafka_properties + (all - old), CONFIG_PROPERTIES_TEXT - (all - old), "%s=%s\n", plain, value);
    }
    return 0;
}

/* Without the blanks around it; ends the text there. */
static char *trimmed(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1])) {
        len--;
    }
    text[len] = '\0';
    return text;
}

static int set_each(struct config *cfg, char *text, struct err *err)
{
    int code = 0;
    for (char *next = NULL, *at = strtok_r(text, ";\n", &next); code == 0 && at != NULL;
         at = strtok_r(NULL, ";\n", &next)) {
        char *equals = strchr(at, '=');
        if (trimmed(at)[0] == '\0') {
            continue;
        }
        if (equals == NULL) { /* not shown: it may be the rest of a password */
            return err_set(err, ERR_INVALID,
                           CONFIG_PROPERTIES_OPTION " has a part without =, expected name=value; "
                                                    "name=value");
        }
        *equals = '\0';
        code = config_set_property(cfg, trimmed(at), trimmed(equals + 1), err);
    }
    return code;
}

int config_set_properties(struct config *cfg, const char *text, struct err *err)
{
    char copy[CONFIG_PROPERTIES_TEXT], before[CONFIG_PROPERTIES_TEXT];
    if (strlen(text) >= sizeof copy) {
        return err_set(err, ERR_RANGE, CONFIG_PROPERTIES_OPTION " is %zu bytes long, expected at most %d", strlen(text),
                       CONFIG_PROPERTIES_TEXT - 1);
    }
    strcpy(copy, text);
    memcpy(before, cfg->kafka_properties, sizeof before);
    int code = set_each(cfg, copy, err);
    if (code < 0) {
        memcpy(cfg->kafka_properties, before, sizeof before);
    }
    explicit_bzero(copy, sizeof copy);
    explicit_bzero(before, sizeof before);
    return code;
}

void config_properties_text(const struct config *cfg, char *out, size_t out_size)
{
    struct config_property p;
    const char *at = cfg->kafka_properties;
    size_t len = 0;
    out[0] = '\0';
    while (len < out_size && config_next_property(&at, &p)) {
        /* As it can be read again: by these names all of them can. */
        len += (size_t)snprintf(out + len, out_size - len, "%s%s%s=%s", len > 0 ? "; " : "",
                                config_is_property(p.name) ? "" : HANDED_THROUGH, p.name,
                                p.secret ? CONFIG_MASK : p.value);
    }
    explicit_bzero(&p, sizeof p);
}

bool config_next_word(const char **at, struct slice *word)
{
    static const char between[] = ", \t";
    const char *start = *at + strspn(*at, between);
    *word = slice_of(start, strcspn(start, between));
    *at = start + word->len;
    return word->len > 0;
}

static bool read_start(const char *text, int64_t *start)
{
    bool number = text[0] != '\0' && strlen(text) <= 15 && text[strspn(text, "0123456789")] == '\0';
    *start = strcmp(text, "earliest") == 0 ? CONFIG_START_EARLIEST
             : strcmp(text, "latest") == 0 ? CONFIG_START_LATEST
             : number                      ? strtoll(text, NULL, 10)
                                           : INT64_MIN;
    return *start != INT64_MIN;
}

int64_t config_kafka_start(const struct config *cfg)
{
    int64_t start;
    return read_start(cfg->kafka_start, &start) ? start : CONFIG_START_EARLIEST;
}

/* host:port, where the port may be missing. */
static bool is_broker(struct slice word)
{
    const char *end = word.data + word.len, *colon = memrchr(word.data, ':', word.len);
    bool v6 = word.data[0] == '[' && end[-1] == ']';
    const char *port = colon != NULL && !v6 ? colon + 1 : end;
    size_t host = (size_t)((colon != NULL && !v6 ? colon : end) - word.data);
    int number = 0;
    for (; port < end && number <= 65535; port++) {
        if (!isdigit((unsigned char)*port)) {
            return false;
        }
        number = number * 10 + (*port - '0');
    }
    bool plain =
        memchr(word.data, '/', word.len) == NULL && (word.data[0] == '[' || memchr(word.data, ':', host) == NULL);
    return host > 0 && plain && number <= 65535 && (colon == NULL || v6 || number > 0);
}

static bool is_topic(struct slice word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    bool good = word.len <= 249;
    for (size_t i = 0; i < word.len; i++) {
        good &= strchr(letters, word.data[i]) != NULL;
    }
    return good;
}

static int validate_list(const char *option, const char *list, bool (*is_good)(struct slice), const char *wanted,
                         struct err *err)
{
    struct slice word;
    const char *at = list;
    int n = 0;
    for (; config_next_word(&at, &word); n++) {
        if (!is_good(word)) {
            return err_set(err, ERR_INVALID, "%s has %s, expected %s", option, log_quote(word), wanted);
        }
    }
    return n > 0 ? 0 : err_set(err, ERR_INVALID, "%s is empty, expected %s", option, wanted);
}

const char *config_dead_letters(const struct config *cfg)
{
    return cfg->kafka_dead_letters[0] != '\0' ? cfg->kafka_dead_letters : cfg->data;
}

int config_validate_kafka(const struct config *cfg, struct err *err)
{
    int64_t start;
    if (!read_start(cfg->kafka_start, &start)) {
        return err_set(err, ERR_INVALID, "kafka_start is %s, expected earliest, latest or unix time in milliseconds",
                       log_quote_str(cfg->kafka_start));
    }
    if (cfg->kafka_brokers[0] == '\0') {
        return 0;
    }
    int code =
        validate_list("kafka_brokers", cfg->kafka_brokers, is_broker, "host:port, more of them split by commas", err);
    return code < 0 ? code
                    : validate_list("kafka_topics", cfg->kafka_topics, is_topic,
                                    "names of topics (letters, digits, . _ and -), split by commas", err);
}
