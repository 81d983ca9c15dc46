#include "cli/archive/archive_depot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "archive/moment.h"
#include "base/calendar.h"
#include "cli/lib/output.h"

int archive_depot_open(const struct config *cfg, const char *from, struct depot **d, struct catalog *c, struct err *err)
{
    const char *url = from != NULL ? from : cfg->archive_url;
    *d = NULL;
    if (url[0] == '\0') {
        return err_set(err, ERR_INVALID, "no archive is named: set url in the section [archive], or give --from URL");
    }
    static struct cipher_keys keys; /* one archive is read by a process */
    int rc = cipher_keys_read(cfg, &keys, err);
    const struct depot_order order = {.url = url, .cfg = cfg, .keys = &keys};
    rc = rc < 0 ? rc : depot_open(&order, d, err);
    return rc < 0 ? rc : catalog_read(*d, 0, c, err);
}

bool archive_node_read(const char *text, uint64_t *node)
{
    int end = 0;
    return strlen(text) == 16 && sscanf(text, "%16" SCNx64 "%n", node, &end) == 1 && end == 16;
}

/* --- the list --- */

struct listing {
    struct table *table; /* NULL: JSON */
    struct json *json;
    uint64_t stretches;
};

static int print_stretch(void *arg, const struct moment_stretch *s)
{
    struct listing *l = arg;
    char node[24], first[TIME_TEXT], last[TIME_TEXT], size[OUTPUT_TEXT];
    snprintf(node, sizeof node, "%016" PRIx64, s->node);
    l->stretches++;
    if (l->json != NULL) {
        json_open(l->json, NULL, '{');
        json_text(l->json, "node", node);
        json_number(l->json, "round", s->round);
        json_number(l->json, "first", s->first_ms);
        json_number(l->json, "last", s->last_ms);
        json_number(l->json, "first_event", (int64_t)s->first);
        json_number(l->json, "last_event", (int64_t)s->last);
        json_number(l->json, "segments", (int64_t)s->segments);
        json_number(l->json, "bytes", (int64_t)s->bytes);
        json_bool(l->json, "lacks_users", s->lacks);
        json_close(l->json, '}');
        return 0;
    }
    table_cell(l->table, "%s", node);
    table_cell(l->table, "%" PRIu32, s->round);
    table_cell(l->table, "%s", time_text(s->first_ms, first));
    table_cell(l->table, "%s", time_text(s->last_ms, last));
    table_cell(l->table, "%" PRIu64, s->last);
    table_cell(l->table, "%" PRIu64, s->segments);
    table_cell(l->table, "%s", size_text(s->bytes, size));
    return 0;
}

int archive_list(const struct config *cfg, const char *from, bool json, struct err *err)
{
    struct depot *d = NULL;
    struct catalog c = {0};
    struct json j = {.out = stdout};
    struct table t;
    struct listing l = {json ? NULL : &t, json ? &j : NULL, 0};
    int rc = archive_depot_open(cfg, from, &d, &c, err);
    if (rc == 0 && json) {
        json_open(&j, NULL, '[');
    } else if (rc == 0) {
        table_begin(&t, "node|round>|moments from|to|event>|segments>|bytes>");
    }
    if (rc == 0) {
        rc = moment_stretches(d, &c, print_stretch, &l, err);
        json ? json_close(&j, ']') : table_end(&t, stdout);
        if (rc == ERR_KEY && l.stretches > 0) {
            fprintf(stderr, "unseen: rounds of another key are not listed: %s\n", err->text);
            rc = 0;
        }
    }
    catalog_free(&c);
    depot_close(d);
    return rc;
}
