/* The table of fields is what unseen.proto, openapi.json and docs/commands.md say: names, numbers, types, limits; and
 * what readers rely on in it. */
#include <ctype.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grpc/message.h"
#include "resp/command.h"

static char *text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = NULL;
    size_t size = 0;
    assert_true(getdelim(&text, &size, '\0', file) > 0);
    fclose(file);
    return text;
}

/* --- unseen.proto --- */

/* Whether "  [repeated ]TYPE NAME = NUMBER;" stands in the message. */
static bool proto_has(const char *message, const char *type, const char *name, unsigned number)
{
    char line[160];
    snprintf(line, sizeof line, "\n  %s %s = %u;", type, name, number);
    const char *found = strstr(message, line), *end = strstr(message, "\n}");
    return found != NULL && found < end;
}

static bool proto_has_one(const char *message, const struct field *f)
{
    static const char *const forms[] = {"Reply", "FilterRequest.Reply", NULL};
    static const char *const numbers[] = {"int32", "int64", "uint32", "uint64", NULL};
    static const char *const types[][5] = {
        [FIELD_ID] = {"string"},   [FIELD_IDS] = {"repeated string"},
        [FIELD_TEXT] = {"string"}, [FIELD_TEXTS] = {"repeated string"},
        [FIELD_BYTES] = {"bytes"}, [FIELD_FLAG] = {"bool"},
    };
    const char *const *type = f->type == FIELD_FORM ? forms : f->type == FIELD_NUMBER ? numbers : types[f->type];
    while (*type != NULL && !proto_has(message, *type, f->name, f->number)) {
        type++;
    }
    return *type != NULL;
}

static size_t proto_count(const char *message)
{
    size_t n = 0;
    const char *end = strstr(message, "\n}");
    for (const char *at = strstr(message, " = "); at != NULL && at < end; at = strstr(at + 1, " = ")) {
        const char *line = at;
        while (*line != '\n') {
            line--;
        }
        n += strncmp(line, "\n    ", 5) != 0; /* not of an enum within */
    }
    return n;
}

static void test_proto(void **state)
{
    (void)state;
    static const struct {
        const char *method, *message;
    } rows[] = {
        {"Filter", "Filter"},   {"FilterMany", "FilterMany"}, {"Played", "Record"},   {"Delivered", "Record"},
        {"Why", "Why"},         {"Exposure", "Exposure"},     {"History", "History"}, {"Forget", "Forget"},
        {"Block", "Block"},     {"Unblock", "Unblock"},       {"PoolSet", "Pool"},    {"PoolAdd", "Pool"},
        {"PoolRename", "Pool"}, {"PoolDrop", "Pool"},         {"PoolGet", "PoolGet"},
    };
    char *proto = text_of(SRCDIR "/proto/unseen/v1/unseen.proto");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const unsigned of = method_find(slice_str(rows[i].method))->of;
        char begin[64], binary[64];
        size_t n = 0;
        snprintf(begin, sizeof begin, "\nmessage %sRequest {", rows[i].message);
        const char *message = strstr(proto, begin);
        assert_non_null(message);
        for (const struct field *f = request_fields; f->name != NULL; f++) {
            if ((f->grpc & ~f->hidden & of) == 0) {
                continue;
            }
            if (!proto_has_one(message, f)) {
                fail_msg("%sRequest lacks %s = %u", rows[i].message, f->name, f->number);
            }
            snprintf(binary, sizeof binary, "binary_%s", f->name);
            const char *type = f->type == FIELD_IDS ? "repeated bytes" : "bytes";
            if (f->binary != 0 && !proto_has(message, type, binary, f->binary)) {
                fail_msg("%sRequest lacks %s = %u", rows[i].message, binary, f->binary);
            }
            n += 1u + (f->binary != 0);
        }
        if (n != proto_count(message)) {
            fail_msg("%sRequest has %zu fields, and %s reads %zu", rows[i].message, proto_count(message),
                     rows[i].method, n);
        }
    }
    free(proto);
}

/* --- openapi.json --- */

static json_t *resolved(json_t *document, json_t *schema)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *schemas = json_object_get(json_object_get(document, "components"), "schemas");
    return ref != NULL ? json_object_get(schemas, strrchr(ref, '/') + 1) : schema;
}

static bool has_type(json_t *schema, const char *type)
{
    const char *is = json_string_value(json_object_get(schema, "type"));
    return is != NULL && strcmp(is, type) == 0;
}

static bool has_number(json_t *schema, const char *name, int64_t value)
{
    return json_integer_value(json_object_get(schema, name)) == value;
}

static bool has_forms(json_t *schema, size_t least)
{
    json_t *forms = json_object_get(schema, "enum");
    for (size_t i = 0; i < json_array_size(forms); i++) {
        enum question_form form;
        if (!fields_form(slice_str(json_string_value(json_array_get(forms, i))), false, &form)) {
            return false;
        }
    }
    return json_array_size(forms) >= least;
}

static bool is_described(json_t *document, json_t *schema, const struct field *f, unsigned of)
{
    switch (f->type) {
    case FIELD_IDS:
    case FIELD_TEXTS:
        return has_type(schema, "array") && has_number(schema, "minItems", 1) &&
               has_number(schema, "maxItems",
                          f->type == FIELD_TEXTS ? POOLS_OF_A_QUESTION
                          : of == OF_EXPOSURE    ? EXPOSURE_MAX
                          : f->most > 0          ? (int64_t)f->most
                                                 : ITEMS_MAX) &&
               has_type(resolved(document, json_object_get(schema, "items")), "string");
    case FIELD_NUMBER:
        return has_type(schema, "integer") && has_number(schema, "minimum", f->least);
    case FIELD_FLAG:
        return has_type(schema, "boolean");
    case FIELD_FORM:
        return has_type(schema, "string") && has_forms(schema, of == OF_HASHES ? 2 : QUESTION_FORMS);
    default:
        return has_type(schema, "string");
    }
}

static bool contains(json_t *list, const char *name)
{
    size_t i = 0;
    while (i < json_array_size(list) && strcmp(json_string_value(json_array_get(list, i)), name) != 0) {
        i++;
    }
    return i < json_array_size(list);
}

static void test_openapi(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        unsigned of;
    } rows[] = {
        {"post", "/v1/unseen", OF_FILTER},
        {"post", "/v1/unseen:batch", OF_FILTER_MANY},
        {"post", "/v1/why", OF_WHY},
        {"post", "/v1/exposure", OF_EXPOSURE},
        {"post", "/v1/played", OF_PLAYED},
        {"post", "/v1/delivered", OF_DELIVERED},
        {"post", "/v1/block", OF_BLOCK},
        {"post", "/v1/unblock", OF_UNBLOCK},
        {"put", "/v1/pools/{pool}", OF_POOL_SET},
        {"post", "/v1/pools/{pool}", OF_POOL_POST},
        {"post", "/v1/unseen/{user}", OF_HASHES},
        {"get", "/v1/pools/{pool}", OF_POOL_GET},
    };
    json_t *document = json_load_file(SRCDIR "/etc/openapi.json", 0, NULL);
    assert_non_null(document);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *path = json_object_get(json_object_get(document, "paths"), rows[i].path);
        json_t *said = json_object_get(path, rows[i].method), *parameters = json_object_get(said, "parameters");
        json_t *body =
            json_object_get(json_object_get(json_object_get(said, "requestBody"), "content"), "application/json");
        json_t *schema = resolved(document, json_object_get(body, "schema"));
        json_t *fields = json_object_get(schema, "properties");
        size_t n = 0;
        for (const struct field *f = request_fields; f->name != NULL; f++) {
            if ((f->http & ~f->hidden & rows[i].of) == 0) {
                continue;
            }
            json_t *one = json_object_get(fields, f->name);
            for (size_t k = 0; k < json_array_size(parameters); k++) {
                json_t *parameter = json_array_get(parameters, k);
                bool is_it = strcmp(json_string_value(json_object_get(parameter, "name")), f->name) == 0;
                one = is_it ? json_object_get(parameter, "schema") : one;
            }
            if (one == NULL || !is_described(document, resolved(document, one), f, rows[i].of)) {
                fail_msg("%s of %s is not as the table has it", f->name, rows[i].path);
            }
            if (schema != NULL &&
                contains(json_object_get(schema, "required"), f->name) != ((f->needed & rows[i].of) != 0)) {
                fail_msg("%s of %s is required, or it is not", f->name, rows[i].path);
            }
            n++;
        }
        assert_int_equal(n, json_object_size(fields) + json_array_size(parameters));
    }
    json_decref(document);
}

/* --- docs/commands.md --- */

static void expect_said(const char *text, const char *what)
{
    if (strstr(text, what) == NULL) {
        fail_msg("docs/commands.md says nowhere: %s", what);
    }
}

static void check_rows(const char *text, const char *parent, const struct command *rows)
{
    char syntax[FIELDS_SYNTAX], name[COMMAND_NAME], said[FIELDS_SYNTAX + 64];
    for (const struct command *row = rows; row->name != NULL; row++) {
        if (row->subs != NULL) {
            check_rows(text, row->name, row->subs);
        }
        if (row->of == 0 || row->of == OF_FILTER || row->of == OF_FORGET) { /* which are told form by form */
            continue;
        }
        snprintf(name, sizeof name, "%s%s%s", parent, parent[0] != '\0' ? " " : "", row->name);
        for (char *c = name; *c != '\0'; c++) {
            *c = (char)toupper((unsigned char)*c);
        }
        snprintf(said, sizeof said, "`%s %s`", name, command_syntax(row, syntax));
        expect_said(text, said);
    }
}

static void test_commands(void **state)
{
    (void)state;
    char *text = text_of(SRCDIR "/docs/commands.md"), *filter = strstr(text, "\n## FILTER\n"), said[80];
    check_rows(text, "", command_table);
    assert_non_null(filter);
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->option & OF_FILTER) != 0) {
            expect_said(filter, f->syntax + (f->syntax[0] == '|'));
        }
        if (f->since != NULL) {
            snprintf(said, sizeof said, "since %s", f->since);
            expect_said(filter, said);
        }
    }
    free(text);
}

/* --- what readers rely on --- */

static void test_rows(void **state)
{
    (void)state;
    char words[FIELDS_TEXT], syntax[FIELDS_SYNTAX];
    const struct field *f = request_fields;
    for (; f->name != NULL; f++) {
        bool is_list = f->type == FIELD_IDS || f->type == FIELD_TEXTS;
        assert_true(!is_list ||
                    (f->given != 0 && f->number <= 31 && f->binary <= 31)); /* of two bytes: read one by one */
        assert_true(f->type != FIELD_NUMBER || f->most > 0 || f->http == 0 || f->given != 0);
        assert_true((f->grpc == 0) == (f->number == 0));
        assert_true(f->place == 0 || f->type == FIELD_IDS || f->word != NULL);
        assert_true(f->option == 0 || (f->word != NULL && f->syntax != NULL));
        assert_true(f->expected != NULL || f->word == NULL || (f->type != FIELD_NUMBER && f->type != FIELD_FORM));
        assert_true(!is_list || f->room + (f->most > 0 ? f->most : ITEMS_MAX) <= FIELDS_SLICES);
    }
    assert_true(f - request_fields <= FIELDS_MAX);
    for (unsigned bit = 0; bit < 21; bit++) {
        assert_true(strlen(fields_expected(1u << bit, words)) < FIELDS_TEXT - 1);
        assert_true(strlen(fields_words(1u << bit, words)) < FIELDS_TEXT - 1);
        assert_true(strlen(fields_syntax(1u << bit, syntax)) < FIELDS_SYNTAX - 1);
    }
}

static void test_texts(void **state)
{
    (void)state;
    struct request rq = {0};
    size_t n = 0;
    for (struct slice *text; (text = fields_text(&rq, n)) != NULL; n++) {
        *text = slice_of("x", n + 1);
    }
    assert_true(n <= FIELDS_TEXTS);
    assert_int_equal(n, 6); /* each once */
    assert_true(rq.user.len * rq.into.len * rq.session.len * rq.version.len * rq.seed.len * rq.policy_name.len == 720);
}

static void test_words(void **state)
{
    (void)state;
    char words[FIELDS_TEXT], syntax[FIELDS_SYNTAX];
    assert_string_equal(fields_expected(OF_PLAYED, words), "user, items and at");
    assert_string_equal(fields_expected(OF_POOL_SET, words), "items");
    assert_string_equal(fields_words(OF_WHY, words), "SESSION or POLICY");
    assert_string_equal(fields_syntax(OF_WHY, syntax), "user item [SESSION id] [POLICY name]");
    assert_string_equal(fields_syntax(OF_PLAYEDAT, syntax), "user unix_ms item [item ...]");
    assert_string_equal(fields_syntax(OF_UNBLOCK, syntax), "session [id ...]");
    assert_string_equal(fields_syntax(OF_POOL_LIST, syntax), "");
}

static void test_rules(void **state)
{
    (void)state;
    struct err err = {0};
    struct request rq = {.kind = REQUEST_QUESTION, .limit = 0};
    assert_int_equal(fields_check(&rq, &err), 0);
    rq.has_limit = true;
    assert_int_equal(fields_check(&rq, &err), ERR_INVALID);
    assert_string_equal(err.text, "LIMIT must be a whole number of at least 1, got '0'");
    assert_null(fields_hidden(OF_FILTER_MANY, &rq));
    rq.deliver = true;
    assert_string_equal(fields_hidden(OF_FILTER_MANY, &rq), "DELIVER");
    assert_null(fields_hidden(OF_FILTER, &rq));
    rq.session = slice_str("");
    assert_string_equal(fields_hidden(OF_FILTER_MANY, &rq), "SESSION");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proto), cmocka_unit_test(test_openapi), cmocka_unit_test(test_commands),
        cmocka_unit_test(test_rows),  cmocka_unit_test(test_texts),   cmocka_unit_test(test_words),
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
