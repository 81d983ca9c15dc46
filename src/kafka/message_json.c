/* One descent over the object. `wanted` is the set of fields whose path has led here, as bits: a name is looked at only
 * for those, so a message is read once, however many paths there are. */
#include "base/json_scan.h"
#include "kafka/message_impl.h"

struct reading {
    struct json_scan scan;
    const struct message_rules *rules;
    struct message_draft *draft;
};

/* An id must be whole, since 7 and 7.0 would be two ids; a time need not be. */
static int text_of(struct json_scan *j, enum message_field field, struct slice *text)
{
    bool whole = false;
    if (json_scan_next_is(j, '"')) {
        return json_scan_string(j, text);
    }
    if (json_scan_next_is(j, '-') || (j->at < j->end && *j->at >= '0' && *j->at <= '9')) {
        int code = json_scan_number(j, text, &whole);
        if (code < 0 || whole || field == MESSAGE_TIME) {
            return code;
        }
    }
    return err_set(j->err, ERR_INVALID, "%s is neither a string nor a %snumber", message_names[field],
                   field == MESSAGE_TIME ? "" : "whole ");
}

static int add_item(struct reading *r)
{
    struct slice item;
    int code = text_of(&r->scan, MESSAGE_ITEM, &item);
    return code < 0 ? code : message_add_item(r->draft, item, r->scan.err);
}

/* at is on the bracket. */
static int item_list(struct reading *r)
{
    struct json_scan *j = &r->scan;
    j->at++;
    json_scan_skip_space(j);
    if (json_scan_next_is(j, ']')) {
        j->at++;
        return 0;
    }
    for (;;) {
        json_scan_skip_space(j);
        int code = add_item(r);
        if (code < 0) {
            return code;
        }
        json_scan_skip_space(j);
        if (json_scan_next_is(j, ']')) {
            j->at++;
            return 0;
        }
        if (!json_scan_next_is(j, ',')) {
            return json_scan_bad(j, "expected \",\" or \"]\"");
        }
        j->at++;
    }
}

static int wanted_value(struct reading *r, enum message_field field)
{
    struct message_draft *draft = r->draft;
    bool item = field == MESSAGE_ITEM;
    if (item ? draft->has_items : draft->texts[field].data != NULL) {
        return err_set(r->scan.err, ERR_INVALID, "%s is given twice", message_names[field]);
    }
    if (json_scan_next_is(&r->scan, 'n') && json_scan_word(&r->scan, "null")) {
        return 0; /* as if it were not there */
    }
    draft->has_items |= item;
    if (item) {
        return json_scan_next_is(&r->scan, '[') ? item_list(r) : add_item(r);
    }
    return text_of(&r->scan, field, &draft->texts[field]);
}

static int object(struct reading *r, size_t depth, unsigned wanted);

static int member(struct reading *r, size_t depth, unsigned wanted)
{
    struct slice name;
    unsigned below = 0;
    int code = json_scan_key(&r->scan, &name);
    if (code < 0) {
        return code;
    }
    for (unsigned f = 0; f < MESSAGE_FIELDS; f++) {
        const struct message_path *path = &r->rules->paths[f];
        if ((wanted & 1u << f) == 0 || !slice_eq(path->names[depth], name)) {
            continue;
        }
        if (path->n == depth + 1) {
            return wanted_value(r, (enum message_field)f);
        }
        below |= 1u << f;
    }
    return below != 0 && json_scan_next_is(&r->scan, '{') ? object(r, depth + 1, below)
                                                          : json_scan_ignore(&r->scan, (int)depth);
}

/* at is on the brace. */
static int object(struct reading *r, size_t depth, unsigned wanted)
{
    struct json_scan *j = &r->scan;
    j->at++;
    json_scan_skip_space(j);
    if (json_scan_next_is(j, '}')) {
        j->at++;
        return 0;
    }
    for (;;) {
        int code = member(r, depth, wanted);
        if (code < 0) {
            return code;
        }
        json_scan_skip_space(j);
        if (json_scan_next_is(j, '}')) {
            j->at++;
            return 0;
        }
        if (!json_scan_next_is(j, ',')) {
            return json_scan_bad(j, "expected \",\" or \"}\"");
        }
        j->at++;
        json_scan_skip_space(j);
    }
}

int message_read_json(const struct message_rules *rules, struct slice value, struct message_draft *draft,
                      struct err *err)
{
    struct reading r = {
        {.begin = value.data, .at = value.data, .end = value.data + value.len, .arena = draft->arena, .err = err},
        rules,
        draft};
    unsigned wanted = 0;
    for (unsigned f = 0; f < MESSAGE_FIELDS; f++) {
        wanted |= rules->paths[f].n > 0 ? 1u << f : 0;
    }
    if (!slice_is_utf8(value)) {
        return err_set(err, ERR_INVALID, "it is not UTF-8, expected JSON");
    }
    json_scan_skip_space(&r.scan);
    if (!json_scan_next_is(&r.scan, '{')) {
        return json_scan_bad(&r.scan, "expected \"{\"");
    }
    int code = object(&r, 0, wanted);
    json_scan_skip_space(&r.scan);
    return code == 0 && r.scan.at != r.scan.end ? json_scan_bad(&r.scan, "text after the object") : code;
}
