/* A recursive descent over one line. The happy path: "{", then keys and values until "}", each wanted value left in the
 * line as a slice.
 */
#include "cli/import/import_json.h"

#include <stdbool.h>

#include "base/json_scan.h"

/* A value that is wanted: a string or a number. An id must be whole, since 7 and 7.0 would be two ids. */
static int wanted_value(struct json_scan *j, const char *name, bool is_time, struct slice *text)
{
    if (text->data != NULL) {
        return err_set(j->err, ERR_INVALID, "%s is given twice", name);
    }
    if (json_scan_next_is(j, '"')) {
        return json_scan_string(j, text);
    }
    bool whole = false;
    if (json_scan_next_is(j, '-') || (j->at < j->end && *j->at >= '0' && *j->at <= '9')) {
        int rc = json_scan_number(j, text, &whole);
        if (rc != 0 || whole || is_time) {
            return rc;
        }
    }
    return err_set(j->err, ERR_INVALID, "%s is neither a string nor a whole number", name);
}

static int member(struct json_scan *j, const char *const names[3], struct slice fields[3])
{
    struct slice name;
    int rc = json_scan_key(j, &name);
    if (rc != 0) {
        return rc;
    }
    for (int i = 0; i < 3; i++) {
        if (slice_eq(name, slice_str(names[i]))) {
            return wanted_value(j, names[i], i == 0, &fields[i]);
        }
    }
    return json_scan_ignore(j, 0);
}

int import_json_parse(char *line, size_t len, const char *time, struct slice fields[3], struct err *err)
{
    const char *const names[3] = {time, "user", "item"};
    struct json_scan j = {.begin = line, .at = line, .end = line + len, .err = err};
    memset(fields, 0, 3 * sizeof(*fields));
    json_scan_skip_space(&j);
    if (!json_scan_next_is(&j, '{')) {
        return json_scan_bad(&j, "expected \"{\"");
    }
    j.at++;
    json_scan_skip_space(&j);
    while (!json_scan_next_is(&j, '}')) {
        int rc = member(&j, names, fields);
        if (rc != 0) {
            return rc;
        }
        json_scan_skip_space(&j);
        if (json_scan_next_is(&j, ',')) {
            j.at++;
            json_scan_skip_space(&j);
            if (json_scan_next_is(&j, '}')) {
                return json_scan_bad(&j, "expected a key");
            }
        } else if (!json_scan_next_is(&j, '}')) {
            return json_scan_bad(&j, "expected \",\" or \"}\"");
        }
    }
    j.at++;
    json_scan_skip_space(&j);
    if (j.at != j.end) {
        return json_scan_bad(&j, "text after the object");
    }
    for (int i = 0; i < 3; i++) {
        if (fields[i].data == NULL) {
            return err_set(err, ERR_INVALID, "%s is missing", names[i]);
        }
    }
    return 0;
}
