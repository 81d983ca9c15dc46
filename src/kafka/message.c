/* Rules are made of the options once. A message is read in two steps: its format's reader finds the texts of the four
 * fields (message_impl.h), then what they say is checked here, the same for each format. */
#include "kafka/message.h"

#include <stdlib.h>

#include "base/calendar.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "dedup/dedup.h"
#include "kafka/message_impl.h"

enum {
    COLUMN_MAX = 64,
    NUMBER_MAX = (1 << 29) - 1, /* of a field in protobuf */
    ITEMS_FIRST = 4,
    SHOWN_MAX = 40, /* bytes of a bad value that an error repeats */
};

const char *const message_names[MESSAGE_FIELDS] = {"user", "item", "time", "type"};

/* --- rules --- */

static int bad_path(enum message_field field, const char *text, const char *expected, struct err *err)
{
    return err_set(err, ERR_INVALID, "kafka_%s is %s, expected %s", message_names[field], log_quote_str(text),
                   expected);
}

static bool read_number(struct slice text, uint32_t max, uint32_t *number)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || i > 9) {
            return false;
        }
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *number = (uint32_t)value;
    return value >= 1 && value <= max;
}

/* "a.b.c" */
static int split_path(struct message_path *path, enum message_field field, const char *text, const char *expected,
                      struct err *err)
{
    const char *at = text;
    for (;;) {
        size_t len = strcspn(at, ".");
        if (len == 0 || path->n == MESSAGE_PATH_MAX) {
            return bad_path(field, text, expected, err);
        }
        path->names[path->n++] = slice_of(at, len);
        if (at[len] == '\0') {
            return 0;
        }
        at += len + 1;
    }
}

static bool cut_word(char *text, const char *word)
{
    size_t len = strlen(text), tail = strlen(word);
    bool ends = len > tail && strcmp(text + len - tail, word) == 0;
    if (ends) {
        text[len - tail] = '\0';
    }
    return ends;
}

static int read_path(struct message_rules *rules, enum message_field field, const char *option, struct err *err)
{
    static const char *const expected[] = {
        [KAFKA_JSON] = "the name of a field, or names with dots between for objects within objects",
        [KAFKA_CSV] = "the number of a column, 1 to 64, with format = csv",
        [KAFKA_PROTOBUF] = "a field's number such as 3, or 3.1 within another; or 3 packed, signed or zigzag",
    };
    struct message_path *path = &rules->paths[field];
    char *text = strcpy(rules->texts[field], option);
    bool needed = field == MESSAGE_ITEM || (field == MESSAGE_USER && !rules->key_is_user);
    if (text[0] == '\0' || (field == MESSAGE_USER && rules->key_is_user)) {
        return needed ? bad_path(field, text, expected[rules->format], err) : 0;
    }
    if (rules->format == KAFKA_PROTOBUF) {
        bool item = field == MESSAGE_ITEM;
        path->packed = item && cut_word(text, " packed");
        path->is_signed = cut_word(text, " signed");
        path->zigzag = !path->is_signed && cut_word(text, " zigzag");
        path->packed = path->packed || (item && cut_word(text, " packed")); /* in any order */
    }
    int code = split_path(path, field, text, expected[rules->format], err);
    uint32_t max = rules->format == KAFKA_CSV ? COLUMN_MAX : NUMBER_MAX;
    bool good = rules->format != KAFKA_CSV || path->n == 1;
    for (size_t i = 0; code == 0 && rules->format != KAFKA_JSON && i < path->n; i++) {
        good = good && read_number(path->names[i], max, &path->numbers[i]);
    }
    return code < 0 || good ? code : bad_path(field, option, expected[rules->format], err);
}

/* Two fields can't be at one place, and none lies within another that is a text. */
static int check_apart(const struct message_rules *rules, unsigned a, unsigned b, struct err *err)
{
    const struct message_path *x = &rules->paths[a], *y = &rules->paths[b];
    size_t n = x->n < y->n ? x->n : y->n;
    for (size_t i = 0; i < n; i++) {
        if (rules->format == KAFKA_JSON ? !slice_eq(x->names[i], y->names[i]) : x->numbers[i] != y->numbers[i]) {
            return 0;
        }
    }
    return n == 0
               ? 0
               : err_set(err, ERR_INVALID, "kafka_%s is %s and kafka_%s is %s, expected two places", message_names[a],
                         log_quote_str(rules->texts[a]), message_names[b], log_quote_str(rules->texts[b]));
}

static bool is_in(const char *list, struct slice text)
{
    struct slice word;
    while (config_next_word(&list, &word)) {
        if (slice_eq(word, text)) {
            return true;
        }
    }
    return false;
}

static int check_words(const struct message_rules *rules, struct err *err)
{
    struct slice word;
    const char *at = rules->play;
    if (rules->paths[MESSAGE_TYPE].n > 0 && !config_next_word(&at, &word)) {
        return err_set(err, ERR_INVALID, "kafka_play is empty, expected what type says of a play");
    }
    for (at = rules->play; config_next_word(&at, &word);) {
        if (is_in(rules->delivery, word)) {
            return err_set(err, ERR_INVALID, "kafka_play and kafka_delivery both have %s", log_quote(word));
        }
    }
    return 0;
}

int message_rules_new(const struct config *cfg, struct message_rules **rules, struct err *err)
{
    struct message_rules *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    const char *const options[MESSAGE_FIELDS] = {cfg->kafka_user, cfg->kafka_item, cfg->kafka_time, cfg->kafka_type};
    r->format = (enum config_kafka_format)cfg->kafka_format;
    r->unit = (enum config_kafka_time)cfg->kafka_time_unit;
    r->confluent = cfg->kafka_prefix == KAFKA_PREFIX_CONFLUENT;
    r->key_is_user = cfg->kafka_key == KAFKA_KEY_USER;
    strcpy(r->play, cfg->kafka_play);
    strcpy(r->delivery, cfg->kafka_delivery);
    int code = 0;
    for (unsigned f = 0; code == 0 && f < MESSAGE_FIELDS; f++) {
        code = read_path(r, (enum message_field)f, options[f], err);
        for (unsigned other = 0; code == 0 && other < f; other++) {
            code = check_apart(r, other, f, err);
        }
    }
    code = code == 0 ? check_words(r, err) : code;
    if (code < 0) {
        free(r);
        return code;
    }
    *rules = r;
    return 0;
}

void message_rules_free(struct message_rules *rules)
{
    free(rules);
}

/* --- a message --- */

int message_add_item(struct message_draft *draft, struct slice item, struct err *err)
{
    if (draft->n == ITEMS_MAX) {
        return err_set(err, ERR_INVALID, "it has more than %d items", ITEMS_MAX);
    }
    if (draft->n == draft->room) {
        size_t room = draft->room == 0 ? ITEMS_FIRST : 2 * draft->room;
        struct slice *items = arena_alloc(draft->arena, room * sizeof *items);
        if (items == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        if (draft->n > 0) {
            memcpy(items, draft->items, draft->n * sizeof *items);
        }
        draft->items = items;
        draft->room = room;
    }
    draft->items[draft->n++] = item;
    return 0;
}

static const char *shown(struct slice text)
{
    return log_quote(slice_of(text.data, text.len < SHOWN_MAX ? text.len : SHOWN_MAX));
}

static int read_time(const struct message_rules *rules, struct slice text, int64_t *at_ms, struct err *err)
{
    static const char *const expected[] = {
        [KAFKA_TIME_MS] = "unix time in milliseconds",
        [KAFKA_TIME_S] = "unix time in seconds",
        [KAFKA_TIME_ISO] = "a time such as 2026-11-22T20:40:00Z",
    };
    int64_t whole = 0;
    int thousandths = 0;
    bool good = rules->unit == KAFKA_TIME_ISO ? time_parse(text, at_ms) : unix_time_decimal(text, &whole, &thousandths);
    if (!good) {
        return err_set(err, ERR_INVALID, "time is %s, expected %s", shown(text), expected[rules->unit]);
    }
    if (rules->unit == KAFKA_TIME_ISO) {
        return 0;
    }
    enum unix_unit unit = rules->unit == KAFKA_TIME_S ? UNIX_S : UNIX_MS;
    const char *other = unix_time_looks_like(whole, unit);
    if (other != NULL) {
        return err_set(err, ERR_INVALID, "time is %s, which looks like %s, expected %s", shown(text), other,
                       unix_unit_name(unit));
    }
    *at_ms = unix_time_ms(whole, unit, thousandths);
    return 0;
}

static int read_type(const struct message_rules *rules, struct slice text, enum store_kind *kind, struct err *err)
{
    *kind = is_in(rules->play, text) ? STORE_PLAY : STORE_DELIVERY;
    return *kind == STORE_PLAY || is_in(rules->delivery, text)
               ? 0
               : err_set(err, ERR_INVALID, "type is %s, expected %s or %s", shown(text), rules->play, rules->delivery);
}

static int finish(const struct message_rules *rules, const struct message_draft *draft, struct message_event *out,
                  struct err *err)
{
    struct slice time = draft->texts[MESSAGE_TIME], type = draft->texts[MESSAGE_TYPE];
    out->user = draft->texts[MESSAGE_USER];
    out->items = draft->items;
    out->n = draft->n;
    out->has_at = time.len > 0;
    out->kind = STORE_PLAY;
    if (out->user.data == NULL) {
        return err_set(err, ERR_INVALID,
                       rules->key_is_user ? "the message has no key, which is to be the user" : "user is missing");
    }
    int code = dedup_check_id("user", 0, out->user, err);
    if (code == 0 && !draft->has_items) {
        code = err_set(err, ERR_INVALID, "item is missing");
    }
    if (code == 0 && out->n == 0) {
        code = err_set(err, ERR_INVALID, "item is an empty list");
    }
    code = code == 0 ? dedup_check_items(out->items, out->n, err) : code;
    code = code == 0 && out->has_at ? read_time(rules, time, &out->at_ms, err) : code;
    return code == 0 && type.len > 0 ? read_type(rules, type, &out->kind, err) : code;
}

static int skip_prefix(const struct message_rules *rules, struct slice *value, struct err *err)
{
    if (!rules->confluent) {
        return 0;
    }
    if (value->len < 5 || value->data[0] != '\0') {
        return err_set(err, ERR_INVALID, "it does not begin with Confluent's prefix, a zero byte and four more");
    }
    *value = slice_of(value->data + 5, value->len - 5);
    return rules->format == KAFKA_PROTOBUF ? message_skip_indexes(value, err) : 0;
}

int kafka_message_read(struct message_rules *rules, const struct message *message, struct arena *arena,
                       struct message_event *out, struct err *err)
{
    typedef int read_fn(const struct message_rules *, struct slice, struct message_draft *, struct err *);
    static read_fn *const readers[] = {
        [KAFKA_JSON] = message_read_json,
        [KAFKA_CSV] = message_read_csv,
        [KAFKA_PROTOBUF] = message_read_protobuf,
    };
    struct message_draft draft = {.arena = arena};
    struct slice value = message->value;
    struct err unread;
    err = err != NULL ? err : &unread;
    *out = (struct message_event){.kind = STORE_PLAY};
    if (value.data == NULL) {
        return 0;
    }
    int code = skip_prefix(rules, &value, err);
    code = code < 0 ? code : readers[rules->format](rules, value, &draft, err);
    if (rules->key_is_user) {
        draft.texts[MESSAGE_USER] = message->key;
    }
    code = code < 0 ? code : finish(rules, &draft, out, err);
    return code < 0 ? code : 1;
}
