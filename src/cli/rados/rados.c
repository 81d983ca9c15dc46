/* `unseen rados init`: makes a pool of Ceph ready for plays, once, and says what of it costs more than it should. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/rados/pool_facts.h"
#include "store/rados/meta.h"
#include "store/rados/rados_store.h"

static const char help[] =
    "Makes a pool of Ceph ready for plays, once, and names what of it costs more than it should.\n\n"
    "Usage: unseen rados init [--pool POOL] [--check] [--json] [OPTION ...]\n\n"
    "Writes the object `meta`, on which all nodes agree: the seed of all hashes and error_rate. Where there is one\n"
    "already, it is left as it is and compared with the configuration. A pool that has users and no `meta` is "
    "refused.\n\n"
    "Before that it looks at the pool: how many replicas there are, how many of them a play waits for, whether they "
    "are\n"
    "on different hosts, whether there is room, and how long an operation may take. Each warning says what that "
    "costs,\n"
    "and what repairs it. They don't keep a server from starting.\n\n"
    "Options:\n"
    "      --pool POOL        the pool (default: rados_pool of the configuration)\n"
    "      --check            look only; make nothing\n"
    "      --json             print JSON\n\n"
    "Exit code: 0 it is ready; 1 it can't be used, or it failed; 2 wrong usage. With --check, also 1 when there are\n"
    "warnings, or no `meta`.\n\n"
    "Examples:\n"
    "  unseen rados init --pool unseen\n"
    "  unseen rados init --check\n"
    "  unseen rados init --pool unseen --hash-seed 0f1e2d3c4b5a6978 --error-rate 0.0005\n";

enum { ADVICE_MAX = 16 };

struct preparation {
    const struct config *cfg;
    const struct cluster_ops *ops;
    struct cluster *cluster;
    struct pool_facts facts;
    char advice[ADVICE_MAX][POOL_ADVICE];
    int n_advice;
    const char *meta; /* "made", "there", "missing" */
};

static void keep(void *arg, const char *advice)
{
    struct preparation *p = arg;
    if (p->n_advice < ADVICE_MAX) {
        snprintf(p->advice[p->n_advice++], POOL_ADVICE, "%s", advice);
    }
}

/* --- what the monitors say --- */

static int ask(struct preparation *p, const char *command, char **text, size_t *len, struct err *err)
{
    char json[128];
    snprintf(json, sizeof json, "{\"prefix\": \"%s\", \"format\": \"json\"}", command);
    int rc = p->ops->command(p->cluster, json, text, len, err);
    return rc < 0 ? err_prefix(err, "the pool can't be looked at (\"%s\"): ", command) : rc;
}

static int look_at_pool(struct preparation *p, struct err *err)
{
    char *dump = NULL, *crush = NULL;
    size_t dump_len = 0, crush_len = 0;
    int rc = ask(p, "osd dump", &dump, &dump_len, err);
    if (rc == 0) {
        rc = ask(p, "osd crush dump", &crush, &crush_len, err);
    }
    if (rc == 0) {
        rc = pool_facts_read(p->cfg->rados_pool, (struct slice){dump, dump_len}, (struct slice){crush, crush_len},
                             &p->facts, err);
    }
    free(dump);
    free(crush);
    return rc < 0 ? rc : pool_advise(p->cfg->rados_pool, &p->facts, keep, p, err);
}

/* How long a frozen OSD goes unnoticed, as far as the monitors' own configuration says it. */
static void look_at_grace(struct preparation *p)
{
    static const char command[] = "{\"prefix\": \"config get\", \"who\": \"osd\", \"key\": \"osd_heartbeat_grace\"}";
    char *text = NULL, advice[POOL_ADVICE];
    size_t len = 0;
    struct err ignored;
    if (p->ops->command(p->cluster, command, &text, &len, &ignored) == 0) {
        double grace = strtod(text, NULL), limit = (double)p->cfg->rados_timeout_ms / 1000;
        if (grace >= limit) {
            snprintf(advice, sizeof advice,
                     "osd_heartbeat_grace is %g s, unless the OSDs' files say otherwise, and rados_timeout %g s: while "
                     "it is not noticed that an OSD is frozen, plays and questions of its users fail: ceph config set "
                     "global osd_heartbeat_grace 6",
                     grace, limit);
            keep(p, advice);
        }
    }
    free(text);
}

/* So that `ceph health` doesn't complain. Needs more rights than serving does, so that a refusal is no error. */
static void tag(struct preparation *p)
{
    char json[2 * CONFIG_TEXT], *text = NULL;
    size_t len = 0;
    struct err err;
    if (p->facts.tagged || p->facts.application[0] != '\0' || strpbrk(p->cfg->rados_pool, "\"\\") != NULL) {
        return;
    }
    snprintf(json, sizeof json, "{\"prefix\": \"osd pool application enable\", \"pool\": \"%s\", \"app\": \"unseen\"}",
             p->cfg->rados_pool);
    if (p->ops->command(p->cluster, json, &text, &len, &err) < 0) {
        char advice[POOL_ADVICE];
        snprintf(advice, sizeof advice,
                 "ceph health will name it, since no application was set: ceph osd pool application enable %s unseen",
                 p->cfg->rados_pool);
        keep(p, advice);
    }
    free(text);
}

/* --- what it does --- */

static int look_for_meta(struct preparation *p, struct err *err)
{
    struct meta meta;
    int found = meta_read(p->ops, p->cluster, &meta, err);
    p->meta = found > 0 ? "there" : "missing";
    return found > 0 ? meta_fits(&meta, p->cfg, err) : found;
}

static int make_meta(struct preparation *p, struct err *err)
{
    int made = rados_store_init(p->cfg, p->ops, err);
    p->meta = made > 0 ? "made" : "there";
    return made < 0 ? made : 0;
}

static int prepare(struct preparation *p, bool check, struct err *err)
{
    int rc = rados_cluster_connect(p->cfg, &p->ops, &p->cluster, err);
    if (rc < 0) {
        return rc;
    }
    rc = look_at_pool(p, err);
    if (rc >= 0) {
        look_at_grace(p);
        rc = check ? look_for_meta(p, err) : make_meta(p, err);
    }
    if (rc == 0 && !check) {
        tag(p);
    }
    p->ops->disconnect(p->cluster);
    return rc;
}

/* --- what it prints --- */

static void print_people(const struct preparation *p)
{
    const struct pool_facts *f = &p->facts;
    printf("pool      %s: size %lld, min_size %lld, %lld placement group%s\n", p->cfg->rados_pool, (long long)f->size,
           (long long)f->min_size, (long long)f->groups, plural((uint64_t)f->groups));
    printf("replicas  each on another %s, of %lld (rule %s); %lld of %lld OSDs run\n", f->domain, (long long)f->domains,
           f->rule, (long long)f->up, (long long)f->in);
    printf("meta      %s\n", strcmp(p->meta, "made") == 0    ? "made: nodes can be started"
                             : strcmp(p->meta, "there") == 0 ? "there already, and it fits the configuration"
                                                             : "missing: unseen rados init makes it");
    for (int i = 0; i < p->n_advice; i++) {
        printf("warning   %s\n", p->advice[i]);
    }
}

static void print_json(const struct preparation *p)
{
    const struct pool_facts *f = &p->facts;
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_text(&j, "pool", p->cfg->rados_pool);
    json_number(&j, "size", f->size);
    json_number(&j, "min_size", f->min_size);
    json_number(&j, "placement_groups", f->groups);
    json_text(&j, "rule", f->rule);
    json_text(&j, "failure_domain", f->domain);
    json_number(&j, "failure_domains", f->domains);
    json_number(&j, "osds_up", f->up);
    json_number(&j, "osds_in", f->in);
    json_text(&j, "meta", p->meta);
    json_open(&j, "warnings", '[');
    for (int i = 0; i < p->n_advice; i++) {
        json_text(&j, NULL, p->advice[i]);
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

int cli_rados(int argc, char **argv)
{
    bool check = false, json = false;
    const char *pool = NULL;
    const struct cli_flag flags[] = {
        {"pool", NULL, &pool}, {"check", &check, NULL}, {"json", &json, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"rados", help, "init", 1, 1, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (strcmp(options.words[0], "init") != 0) {
        return cli_misuse("rados", "unknown word '%s': expected init", options.words[0]);
    }
    if (pool != NULL) {
        if (options.n_overrides == CLI_OVERRIDES_MAX) {
            return cli_misuse("rados", "too many options");
        }
        options.overrides[options.n_overrides++] = (struct cli_override){"rados_pool", pool};
    }
    struct config cfg;
    struct preparation p = {.cfg = &cfg};
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    if (cfg.rados_pool[0] == '\0') {
        return cli_misuse("rados", "which pool? --pool, or rados_pool in the configuration");
    }
    if (prepare(&p, check, &err) < 0) {
        return cli_fail(&err);
    }
    json ? print_json(&p) : print_people(&p);
    return check && (p.n_advice > 0 || strcmp(p.meta, "there") != 0) ? EXIT_FAILED : EXIT_GOOD;
}
