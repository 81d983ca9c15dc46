/* `unseen policy`: the policies that are in force on a server, or stand in the configuration; what they mean in words,
 * and what each hid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/server.h"

static const char help[] =
    "Shows the policies, which say what hides a candidate, and what each hid; with a NAME, what that one means in\n"
    "words.\n\n"
    "Usage: unseen policy [NAME] [--to ADDRESS] [--json] [OPTION ...]\n\n"
    "Asks the server that serves the data folder for those in force. When none runs, they are those of the\n"
    "configuration (-c), and nothing is known of what they hid. Hidden is what a question with that policy did not\n"
    "answer, whatever hid it: plays, deliveries, a session or EXCLUDE. Today begins at 0:00 UTC, or with the "
    "server.\n\n"
    "Options:\n"
    "      --to ADDRESS       ask the server at host:port, tls://host:port or unix:/path, not the one that\n"
    "                         serves the data folder; its password is requirepass of the configuration,\n"
    "                         or $UNSEEN_PASSWORD; $UNSEEN_USER: its account\n"
    "      --json             print JSON, as GET /v1/policies answers it\n\n"
    "Examples:\n"
    "  unseen policy\n"
    "  unseen policy feed --to 10.0.0.7:7979\n";

struct shown {
    struct policy policy;
    bool counted; /* a server said what it hid: */
    uint64_t questions, candidates, hidden, hidden_today, also[POLICY_ALSO];
};

/* --- where they come from --- */

static int read_also(const struct reply *map, struct shown *out, struct err *err)
{
    const struct reply *list = reply_field(map, "also");
    char text[POLICY_ALSO_TEXT] = "";
    size_t n = list != NULL && list->kind == REPLY_ARRAY ? list->n : 0, len = 0;
    for (size_t i = 0; i < n && i < POLICY_ALSO && len < sizeof text; i++) {
        char user[POLICY_ALSO_TEXT];
        reply_copy(&list->items[i], "user", user, sizeof user);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i > 0 ? " " : "", user);
        out->also[i] = reply_count(&list->items[i], "hidden");
    }
    return n > 0 ? policy_set(&out->policy, "also", text, err) : 0;
}

static int read_one(const struct reply *map, struct policies *names, struct shown *out, struct err *err)
{
    char name[POLICY_NAME], text[POLICY_TEXT];
    struct policy *p;
    reply_copy(map, "policy", name, sizeof name);
    int rc = policy_add(names, slice_str(name), &p, err);
    if (rc == 0) {
        reply_copy(map, "plays", text, sizeof text);
        rc = policy_set(p, "plays", text, err);
    }
    if (rc == 0) {
        reply_copy(map, "item", text, sizeof text);
        rc = policy_set(p, "item", text, err);
    }
    if (rc == 0) {
        reply_copy(map, "group", text, sizeof text);
        const bool none = text[0] == '\0' || strcmp(text, "off") == 0;
        rc = none ? 0 : policy_set(p, "group", text, err);
    }
    if (rc < 0) {
        err_prefix(err, "the server's answer");
        return rc;
    }
    *out = (struct shown){.policy = *p,
                          .counted = true,
                          .questions = reply_count(map, "questions"),
                          .candidates = reply_count(map, "candidates"),
                          .hidden = reply_count(map, "hidden"),
                          .hidden_today = reply_count(map, "hidden_today")};
    rc = read_also(map, out, err);
    if (rc < 0) {
        err_prefix(err, "the server's answer");
    }
    return rc;
}

static int ask(struct client *client, struct shown *out, struct err *err)
{
    const struct slice word = slice_str("POLICIES");
    const struct reply *list;
    struct policies names = {0};
    int rc = server_ask_list(client, &word, 1, "policy", &list, err);
    size_t n = 0;
    for (; rc == 0 && n < list->n && n < POLICIES_MAX; n++) {
        rc = read_one(&list->items[n], &names, &out[n], err);
    }
    return rc < 0 ? rc : (int)n;
}

/* How many there are. */
static int gather(const struct config *cfg, const char *to, struct shown *out, struct err *err)
{
    struct client *client;
    int rc = server_connect(cfg, to, &client, err);
    if (rc == 0) {
        rc = ask(client, out, err);
        client_close(client);
    } else if (rc == ERR_NOTFOUND && to == NULL) {
        for (size_t i = 0; i < cfg->policies.n; i++) {
            out[i] = (struct shown){.policy = cfg->policies.list[i]};
        }
        rc = (int)cfg->policies.n;
    }
    return rc;
}

/* --- what is shown --- */

static void print_table(const struct shown *all, int n)
{
    char text[POLICY_TEXT], count[OUTPUT_TEXT];
    struct table t;
    table_begin(&t, "policy|plays|item|group|also|questions>|hidden today>|hidden>");
    for (int i = 0; i < n; i++) {
        const struct shown *s = &all[i];
        table_cell(&t, "%s", s->policy.name);
        policy_plays_text(&s->policy, text);
        table_cell(&t, "%s", text);
        policy_item_text(&s->policy, text);
        table_cell(&t, "%s", text);
        policy_group_text(&s->policy, text);
        table_cell(&t, "%s", text);
        table_cell(&t, "%s", s->policy.n_also > 0 ? s->policy.also : "-");
        table_cell(&t, "%s", s->counted ? count_text(s->questions, count) : "-");
        table_cell(&t, "%s", s->counted ? count_text(s->hidden_today, count) : "-");
        table_cell(&t, "%s", s->counted ? count_text(s->hidden, count) : "-");
    }
    table_end(&t, stdout);
}

static void explain_plays(const struct policy *p)
{
    if (p->plays == POLICY_PLAYS_OFF) {
        puts("  Plays hide nothing.");
    } else if (p->plays == POLICY_PLAYS_WINDOW) {
        puts("  A play hides the item as long as its month is in the window.");
    } else {
        printf("  A play hides the item in its own month and %lld full month%s after that.\n", (long long)p->plays,
               plural((uint64_t)p->plays));
    }
}

static void explain_item(const struct policy *p)
{
    if (p->n_caps == 0) {
        puts("  What was sent hides nothing.");
    }
    for (int64_t i = 0; i < p->n_caps; i++) {
        const struct policy_cap *cap = &p->caps[i];
        char within[32] = "", times[32] = "once";
        if (cap->times > 1) {
            snprintf(times, sizeof times, "%lld times", (long long)cap->times);
        }
        config_print_duration(cap->within_ms, within, sizeof within);
        printf(cap->within_ms > 0 ? "  An item is hidden while it was sent %s within the last %s.\n"
                                  : "  An item is hidden while it is remembered that it was sent %s.\n",
               times, within);
    }
}

static void explain_group(const struct policy *p)
{
    for (int64_t i = 0; i < p->n_group_caps; i++) {
        const struct policy_cap *cap = &p->group_caps[i];
        char within[32] = "", items[48] = "another item";
        if (cap->times > 1) {
            snprintf(items, sizeof items, "%lld items", (long long)cap->times);
        }
        config_print_duration(cap->within_ms, within, sizeof within);
        printf(cap->within_ms > 0 ? "  An item is hidden while %s of its group %s sent within the last %s.\n"
                                  : "  An item is hidden while it is remembered that %s of its group %s sent.\n",
               items, cap->times > 1 ? "were" : "was", within);
    }
}

static void explain_also(const struct shown *s)
{
    char count[OUTPUT_TEXT];
    for (size_t i = 0; i < s->policy.n_also; i++) {
        const struct slice user = policy_also(&s->policy, i);
        printf("  Hidden is also what it hides from %.*s", (int)user.len, user.data);
        printf(s->counted ? ", which added %s.\n" : ".\n", count_text(s->also[i], count));
    }
}

static void explain(const struct shown *s)
{
    char count[OUTPUT_TEXT];
    puts(s->policy.name);
    explain_plays(&s->policy);
    explain_item(&s->policy);
    explain_group(&s->policy);
    explain_also(s);
    if (strcmp(s->policy.name, POLICY_DEFAULT) == 0) {
        puts("  It holds for questions that name no policy.");
    }
    if (s->counted) {
        printf("  %s candidates", count_text(s->candidates, count));
        printf(" in %s questions;", count_text(s->questions, count));
        printf(" %s were hidden,", count_text(s->hidden, count));
        printf(" %s of them today.\n", count_text(s->hidden_today, count));
    }
}

static void print_json(const struct shown *all, int n)
{
    char text[POLICY_TEXT];
    struct json j = {.out = stdout};
    json_open(&j, NULL, '{');
    json_open(&j, "policies", '[');
    for (int i = 0; i < n; i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "policy", all[i].policy.name);
        policy_plays_text(&all[i].policy, text);
        json_text(&j, "plays", text);
        policy_item_text(&all[i].policy, text);
        json_text(&j, "item", text);
        policy_group_text(&all[i].policy, text);
        json_text(&j, "group", text);
        if (all[i].counted) {
            json_number(&j, "questions", (int64_t)all[i].questions);
            json_number(&j, "candidates", (int64_t)all[i].candidates);
            json_number(&j, "hidden", (int64_t)all[i].hidden);
            json_number(&j, "hidden_today", (int64_t)all[i].hidden_today);
        }
        json_open(&j, "also", '[');
        for (size_t k = 0; k < all[i].policy.n_also; k++) {
            json_open(&j, NULL, '{');
            json_id(&j, "user", policy_also(&all[i].policy, k));
            if (all[i].counted) {
                json_number(&j, "hidden", (int64_t)all[i].also[k]);
            }
            json_close(&j, '}');
        }
        json_close(&j, ']');
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

/* The one of that name alone. */
static int pick(struct shown *all, int n, const char *name, struct err *err)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(all[i].policy.name, name) == 0) {
            all[0] = all[i];
            return 1;
        }
    }
    return err_set(err, ERR_NOTFOUND, "there is no policy \"%.64s\"", name);
}

int cli_policy(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"to", NULL, &to}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"policy", help, "[NAME]", 0, 1, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct config cfg;
    struct err err = {0};
    struct shown *all = calloc(POLICIES_MAX, sizeof *all);
    const char *name = options.n_words > 0 ? options.words[0] : NULL;
    int n = all == NULL ? err_set(&err, ERR_NOMEM, "out of memory") : cli_options_config(&options, &cfg, &err);
    n = n < 0 ? n : gather(&cfg, to, all, &err);
    n = n < 0 || name == NULL ? n : pick(all, n, name, &err);
    if (n < 0) {
        cli_fail(&err);
    } else if (json) {
        print_json(all, n);
    } else if (name != NULL) {
        explain(&all[0]);
    } else if (n == 0) {
        puts("there are no policies: an item is hidden while a play is in the window, or while it is remembered as "
             "sent");
    } else {
        print_table(all, n);
    }
    free(all);
    return n < 0 ? EXIT_FAILED : EXIT_GOOD;
}
