#include <stdio.h>
#include <string.h>

#include "archive/cipher.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/config_json.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/serve/serve_config.h"
#include "kafka/message.h"
#include "net/tls.h"
#include "service/account_file.h"

static const char help[] = "Reads a configuration: lists what is wrong with it, or shows the options it results in.\n\n"
                           "Usage: unseen check-config [FILE] [--json] [--sample] [OPTION ...]\n\n"
                           "Without FILE it reads what serve would read. The environment counts as well:\n"
                           "UNSEEN_RETENTION=12 is retention. 'from' says where each value came from.\n\n"
                           "Options:\n"
                           "      --json             print JSON\n"
                           "      --sample           print a file with every option explained\n\n"
                           "Examples:\n"
                           "  unseen check-config /etc/unseen/unseen.conf\n"
                           "  unseen check-config --retention 12\n"
                           "  unseen check-config --sample > unseen.conf\n";

struct problems {
    struct json *json;
    int n;
};

static void problem_found(void *arg, const char *problem)
{
    struct problems *p = arg;
    p->n++;
    if (p->json != NULL) {
        json_text(p->json, NULL, problem);
    } else {
        fprintf(stderr, "%s\n", problem);
    }
}

static void print_people(const struct config *cfg, const char *path)
{
    char value[CONFIG_VALUE_TEXT];
    struct config defaults;
    struct table t;
    config_defaults(&defaults);
    printf("%s: good\n\n", path != NULL ? path : "no file, the defaults");
    table_begin(&t, "|option|value|from");
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        table_cell(&t, config_is_changed(cfg, &defaults, option) ? "*" : " ");
        table_cell(&t, "%s", option->name);
        config_text(cfg, option, value, sizeof value);
        table_cell(&t, "%s", value);
        if (cfg->origin[i] > 0) {
            table_cell(&t, "line %d", cfg->origin[i]);
        } else {
            table_cell(&t, "%s", config_origin_name(cfg->origin[i]));
        }
    }
    table_end(&t, stdout);
    puts("\n* differs from the default");
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        if (option->instead != NULL && config_is_changed(cfg, &defaults, option)) {
            printf("%s is an old name: expected %s in the section [%s]\n", option->name, option->instead,
                   config_section(option->name));
        }
    }
    if (cfg->kafka_properties[0] != '\0') {
        puts("Whether librdkafka takes the properties of [kafka], it says when the service starts.");
    }
}

static int check_certificate(const struct config *cfg, struct err *err)
{
    const struct tls_files files = tls_files_to_listen(cfg);
    struct tls_context *context = NULL;
    if (cfg->tls_cert[0] == '\0' || strcmp(tls_library_version(), "none") == 0) {
        return 0;
    }
    int code = tls_server(&files, &context, err);
    tls_context_free(context);
    return code;
}

static int check_keys(const struct config *cfg, struct err *err)
{
    struct cipher_keys keys;
    int code = cfg->archive_url[0] != '\0' ? cipher_keys_read(cfg, &keys, err) : 0;
    cipher_keys_forget(&keys);
    return code;
}

static int check_messages(const struct config *cfg, struct err *err)
{
    struct message_rules *rules = NULL;
    int code = cfg->kafka_brokers[0] != '\0' ? message_rules_new(cfg, &rules, err) : 0;
    message_rules_free(rules);
    return code;
}

/* Lists every problem it can: those of file and environment, then the first of those that only the whole shows. */
static void read_all(const struct cli_options *options, struct config *cfg, struct problems *problems)
{
    struct err err;
    struct account_set *accounts;
    int rc = serve_config_read(options, NULL, problem_found, problems, cfg, &accounts, &err);
    account_set_free(accounts);
    if (problems->n == 0 && (rc < 0 || check_certificate(cfg, &err) < 0 || check_keys(cfg, &err) < 0 ||
                             check_messages(cfg, &err) < 0 || cli_options_zone(cfg, &err) < 0)) {
        problem_found(problems, err.text);
    }
}

int cli_check_config(int argc, char **argv)
{
    bool json = false, sample = false;
    const struct cli_flag flags[] = {{"json", &json, NULL}, {"sample", &sample, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"check-config", help, "at most one FILE", 0, 1, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (sample) {
        return config_write_sample(stdout) < 0 ? EXIT_FAILED : EXIT_GOOD;
    }
    if (options.n_words == 1) {
        options.config_path = options.words[0];
    }
    const char *path = options.config_path;
    struct config cfg;
    struct json j = {.out = stdout};
    struct problems problems = {.json = json ? &j : NULL};
    if (json) {
        json_open(&j, NULL, '{');
        if (path != NULL) {
            json_text(&j, "file", path);
        }
        json_open(&j, "problems", '[');
    }
    read_all(&options, &cfg, &problems);
    if (json) {
        json_close(&j, ']');
        if (problems.n == 0) {
            config_json(&j, &cfg);
        }
        json_close(&j, '}');
    } else if (problems.n == 0) {
        print_people(&cfg, path);
    } else {
        fprintf(stderr, "%d problem%s\n", problems.n, plural((uint64_t)problems.n));
    }
    return problems.n == 0 ? EXIT_GOOD : EXIT_FAILED;
}
