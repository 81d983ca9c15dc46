#include <crypt.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/account/account_edit.h"
#include "cli/account/password_input.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"

static const char help[] =
    "Keeps the file of accounts: who may log in to the server, and what each may do.\n\n"
    "Usage: unseen account add NAME --roles ROLES | passwd NAME | set-roles NAME --roles ROLES | remove NAME | list\n"
    "       [--file FILE] [--password-stdin] [--json] [OPTION ...]\n\n"
    "ROLES are some of these, split by commas:\n"
    "  ask     questions, why, history, scroll sessions\n"
    "  record  plays and deliveries\n"
    "  forget  forget users and items\n"
    "  load    load users of an export\n"
    "  watch   metrics, status, INFO, months, the slow log, the options\n"
    "  admin   backups, the clock, the ring, the migration\n\n"
    "add and passwd ask for the password twice, on the terminal. The file holds only a hash of it. A running server\n"
    "reads the file on SIGHUP (systemctl reload unseen): from then on changed roles hold, and clients of\n"
    "accounts that were removed, or have another password, must log in again.\n\n"
    "Options:\n"
    "      --roles ROLES      what the account may do\n"
    "      --file FILE        the file (default: accounts of the configuration); a missing one is made, for its\n"
    "                         owner alone\n"
    "      --password-stdin   the password is the one line of standard input\n"
    "      --json             list: print JSON\n\n"
    "Examples:\n"
    "  unseen account add recommender --roles ask,record\n"
    "  unseen account add grafana --roles watch --file /etc/unseen/accounts --password-stdin < secret\n"
    "  unseen account set-roles recommender --roles ask\n"
    "  unseen account list\n";

enum { LINE_TEXT = ACCOUNT_NAME_MAX + ACCOUNT_ROLES_TEXT + CRYPT_OUTPUT_SIZE + 8 };

struct account_command {
    struct account_edit edit;
    const char *name, *roles_given, *file;
    unsigned roles;
    bool password_stdin, json;
};

struct action {
    const char *word, *done;
    bool named, takes_roles, takes_password;
    int (*run)(struct account_command *c, struct err *err);
};

static const struct account *find(const struct account_command *c)
{
    return account_set_find(c->edit.set, slice_str(c->name));
}

static int must_be(const struct account_command *c, const struct account **account, struct err *err)
{
    *account = find(c);
    return *account != NULL ? 0
                            : err_set(err, ERR_NOTFOUND, "%s: there is no account %s; unseen account list shows all",
                                      c->edit.path, log_quote_str(c->name));
}

static int put(struct account_command *c, unsigned roles, const char *hash, struct err *err)
{
    char text[ACCOUNT_ROLES_TEXT], line[LINE_TEXT];
    account_roles_write(roles, text);
    snprintf(line, sizeof line, "%s %s %s", c->name, text, hash);
    return account_edit_put(&c->edit, slice_str(c->name), line, err);
}

/* libcrypt's yescrypt, at its own default cost. */
static int make_hash(const char *password, char out[CRYPT_OUTPUT_SIZE], struct err *err)
{
    char setting[CRYPT_GENSALT_OUTPUT_SIZE];
    struct crypt_data *scratch = calloc(1, sizeof *scratch);
    const char *hash = NULL;
    if (scratch != NULL && crypt_gensalt_rn("$y$", 0, NULL, 0, setting, sizeof setting) != NULL) {
        hash = crypt_rn(password, setting, scratch, (int)sizeof *scratch);
    }
    if (hash != NULL) {
        snprintf(out, CRYPT_OUTPUT_SIZE, "%s", hash);
        explicit_bzero(scratch, sizeof *scratch);
    }
    int code = hash != NULL ? 0 : err_set(err, ERR_SYSTEM, "libcrypt can't hash the password: %s", strerror(errno));
    free(scratch);
    return code;
}

static int put_password(struct account_command *c, unsigned roles, struct err *err)
{
    char password[PASSWORD_TEXT], hash[CRYPT_OUTPUT_SIZE];
    int code = password_input(c->name, c->password_stdin, password, err);
    if (code == 0) {
        code = make_hash(password, hash, err);
    }
    explicit_bzero(password, sizeof password);
    return code < 0 ? code : put(c, roles, hash, err);
}

static int add(struct account_command *c, struct err *err)
{
    if (find(c) != NULL) {
        return err_set(err, ERR_INVALID, "%s: the account %s is there already; passwd and set-roles change it",
                       c->edit.path, c->name);
    }
    int code = account_check_name(slice_str(c->name), err);
    return code < 0 ? code : put_password(c, c->roles, err);
}

static int change_password(struct account_command *c, struct err *err)
{
    const struct account *account;
    int code = must_be(c, &account, err);
    return code < 0 ? code : put_password(c, account->roles, err);
}

static int set_roles(struct account_command *c, struct err *err)
{
    const struct account *account;
    int code = must_be(c, &account, err);
    return code < 0 ? code : put(c, c->roles, account->hash, err);
}

static int remove_account(struct account_command *c, struct err *err)
{
    const struct account *account;
    int code = must_be(c, &account, err);
    return code < 0 ? code : account_edit_put(&c->edit, slice_str(c->name), NULL, err);
}

static void list_json(const struct account_set *set)
{
    struct json j = {.out = stdout};
    json_open(&j, NULL, '[');
    for (size_t i = 0; i < set->n; i++) {
        json_open(&j, NULL, '{');
        json_text(&j, "name", set->accounts[i].name);
        json_open(&j, "roles", '[');
        for (const struct account_role_name *row = account_roles; row->name != NULL; row++) {
            if ((set->accounts[i].roles & row->role) != 0) {
                json_text(&j, NULL, row->name);
            }
        }
        json_close(&j, ']');
        json_close(&j, '}');
    }
    json_close(&j, ']');
}

static int list(struct account_command *c, struct err *err)
{
    const struct account_set *set = c->edit.set;
    if (!c->edit.exists) {
        return err_set(err, ERR_NOTFOUND, "%s: there is no such file", c->edit.path);
    }
    if (c->json) {
        list_json(set);
        return 0;
    }
    struct table t;
    char roles[ACCOUNT_ROLES_TEXT];
    table_begin(&t, "account|roles");
    for (size_t i = 0; i < set->n; i++) {
        account_roles_write(set->accounts[i].roles, roles);
        table_cell(&t, "%s", set->accounts[i].name);
        table_cell(&t, "%s", roles);
    }
    table_end(&t, stdout);
    return 0;
}

static const struct action actions[] = {
    {"add", "added", true, true, true, add},
    {"passwd", "changed", true, false, true, change_password},
    {"set-roles", "changed", true, true, false, set_roles},
    {"remove", "removed", true, false, false, remove_account},
    {"list", NULL, false, false, false, list},
    {0},
};

/* 0 or an exit code. */
static int check_usage(const struct action *action, struct account_command *c, int n_words)
{
    struct err err;
    if (n_words != 1 + action->named) {
        return cli_misuse("account", "%s expects %s", action->word, action->named ? "NAME" : "no NAME");
    }
    if (action->takes_roles != (c->roles_given != NULL)) {
        return cli_misuse("account",
                          action->takes_roles ? "%s needs --roles, such as ask,record"
                                              : "%s takes no --roles: set-roles does that",
                          action->word);
    }
    if (c->roles_given != NULL && account_roles_read(slice_str(c->roles_given), &c->roles, &err) < 0) {
        return cli_misuse("account", "--roles: %s", err.text);
    }
    if (c->password_stdin && !action->takes_password) {
        return cli_misuse("account", "%s takes no password", action->word);
    }
    if (c->json && action->named) {
        return cli_misuse("account", "%s prints no JSON, list does", action->word);
    }
    return 0;
}

static int run(const struct action *action, struct account_command *c, const struct cli_options *options,
               struct err *err)
{
    struct config cfg;
    int code = cli_options_build(options, &cfg, NULL, NULL, err);
    const char *file = c->file != NULL ? c->file : cfg.accounts;
    if (code == 0 && file[0] == '\0') {
        code = err_set(err, ERR_INVALID, "which file? Give --file, or set accounts in the configuration");
    }
    if (code < 0) {
        return code;
    }
    code = account_edit_open(&c->edit, file, err);
    if (code == 0) {
        code = action->run(c, err);
    }
    if (code == 0 && action->done != NULL) {
        printf("account %s %s in %s; a running server reads it on SIGHUP\n", c->name, action->done, c->edit.path);
    }
    account_edit_close(&c->edit);
    return code;
}

int cli_account(int argc, char **argv)
{
    static struct account_command c;
    const struct cli_flag flags[] = {{"roles", NULL, &c.roles_given},
                                     {"file", NULL, &c.file},
                                     {"password-stdin", &c.password_stdin, NULL},
                                     {"json", &c.json, NULL},
                                     {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"account", help, "add, passwd, set-roles, remove or list, and NAME", 1, 2,
                                      flags,     false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    const struct action *action = actions;
    while (action->word != NULL && strcmp(action->word, options.words[0]) != 0) {
        action++;
    }
    if (action->word == NULL) {
        return cli_misuse("account", "'%s' is none of add, passwd, set-roles, remove and list", options.words[0]);
    }
    c.name = options.n_words > 1 ? options.words[1] : "";
    exit_code = check_usage(action, &c, options.n_words);
    struct err err;
    if (exit_code == 0 && run(action, &c, &options, &err) < 0) {
        exit_code = cli_fail(&err);
    }
    return exit_code;
}
