/* Reading the file. libinih splits lines into names and values. But it tells neither the handler which line it reads
 * nor the caller which lines after the first were bad, it joins indented lines to the one before, and it cuts long
 * lines. So lines reach it through our own reader, which counts them, strips indentation, refuses long ones, and
 * notices when inih made nothing of the line before. */
#include "config/config.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/log.h"
#include "config/archive.h"
#include "config/kafka.h"
#include "config/lock.h"
#include "config/redis_at.h"
#include "config/registry.h"
#include "config/replica.h"

#define MAIN_SECTION "unseen"

static const char policy_section[] = "policy "; /* and its name */

enum { NAME_TEXT = 128 };

struct load {
    FILE *file;
    const char *path;
    struct config cfg;
    char *line; /* of getline() */
    size_t line_size;
    int number;
    int section;  /* the line in which it begins */
    bool pending; /* the line should have given a name and a value, and has not yet */
    int read_errno;
    int set_in[CONFIG_OPTIONS_MAX]; /* line in which each option was set */
    struct policy *policy;          /* whose section it is; NULL: another one */
    struct policy refused;
    char policy_set[NAME_TEXT]; /* which of its lines were given: " plays" */
    struct config properties;   /* holds just the properties that the file has set */
    config_problem_fn *each;
    void *arg;
    struct err first;
};

void config_defaults(struct config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (size_t i = 0; i < config_options_count; i++) {
        struct err err;
        if (config_set(cfg, config_options[i].name, config_options[i].default_text, &err) < 0) {
            log_error("a default is bad", "error=%s", log_quote_str(err.text));
            abort(); /* the table itself is wrong */
        }
    }
}

static void problem(struct load *l, int code, const char *text)
{
    struct err err;
    err_set(&err, code, "%s:%d: %s", l->path, l->number, text);
    if (l->first.code == 0) {
        l->first = err;
    }
    if (l->each != NULL) {
        l->each(l->arg, err.text);
    }
}

static void unreadable(struct load *l, int number)
{
    int code = number == ENOENT ? ERR_NOTFOUND : number == ENOMEM ? ERR_NOMEM : ERR_IO;
    err_set(&l->first, code, "%s: %s", l->path, strerror(number));
    if (l->each != NULL) {
        l->each(l->arg, l->first.text);
    }
}

static void end_line(struct load *l)
{
    if (l->pending) {
        l->pending = false;
        problem(l, ERR_INVALID, "expected name = value");
    }
}

static bool is_section(struct slice name)
{
    bool found = slice_eq(name, slice_str(MAIN_SECTION));
    for (size_t i = 0; config_sections[i] != NULL; i++) {
        found |= slice_eq(name, slice_str(config_sections[i]));
    }
    return found;
}

/* "[unseen], [kafka], [legacy] and [policy NAME]" */
static const char *list_sections(char out[NAME_TEXT])
{
    size_t len = (size_t)snprintf(out, NAME_TEXT, "[" MAIN_SECTION "]");
    for (size_t i = 0; config_sections[i] != NULL && len < NAME_TEXT; i++) {
        len += (size_t)snprintf(out + len, NAME_TEXT - len, ", [%s]", config_sections[i]);
    }
    snprintf(out + len, len < NAME_TEXT ? NAME_TEXT - len : 0, " and [policy NAME]");
    return out;
}

static bool check_section(struct load *l, const char *line)
{
    size_t len = strcspn(line, "]");
    struct slice section = slice_of(line, len);
    if (line[len] != ']') {
        problem(l, ERR_INVALID, "expected ] at the end of the section's name");
        return false;
    }
    struct err err = {0};
    const struct slice name = slice_of(section.data + 1, section.len - 1);
    const size_t word = sizeof policy_section - 1;
    l->policy = NULL;
    if (name.len > word && memcmp(name.data, policy_section, word) == 0) {
        const struct slice its = slice_of(name.data + word, name.len - word);
        if (policy_add(&l->cfg.policies, its, &l->policy, &err) < 0) {
            l->refused = policy_plain; /* its lines are read all the same */
            l->policy = &l->refused;
        }
        l->policy_set[0] = '\0';
    } else if (!is_section(name)) {
        char all[NAME_TEXT];
        err_set(&err, ERR_NOTFOUND, "there is no section %s, only %s", log_quote(slice_of(line, len + 1)),
                list_sections(all));
    }
    l->section = err.code == 0 || l->policy != NULL ? l->number : l->section;
    if (err.code < 0) {
        problem(l, err.code, err.text);
        return false;
    }
    return true;
}

/* Gives inih the next line; like fgets(), but a line always comes whole, or empty when there is nothing for it in it.
 */
static char *next_line(char *out, int size, void *arg)
{
    struct load *l = arg;
    end_line(l);
    ssize_t got = getline(&l->line, &l->line_size, l->file);
    if (got < 0) {
        l->read_errno = feof(l->file) ? 0 : errno;
        return NULL;
    }
    l->number++;
    size_t len = (size_t)got;
    char *line = l->line;
    if (memchr(line, '\0', len) != NULL) {
        problem(l, ERR_INVALID, "the line holds a NUL byte");
        line[0] = '\0';
    }
    if (l->number == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
    }
    line += strspn(line, " \t\r\n\v\f");
    len = strcspn(line, "\r\n");
    line[len] = '\0';

    out[0] = '\0';
    if (line[0] == '[') {
        if (check_section(l, line)) {
            snprintf(out, (size_t)size, "%s", line);
        }
    } else if (line[0] != '\0' && line[0] != '#' && line[0] != ';') {
        size_t limit = size > 3 ? (size_t)size - 3 : 0;
        if (len > limit) {
            struct err err;
            err_set(&err, ERR_RANGE, "the line is %zu bytes long, expected at most %zu", len, limit);
            problem(l, err.code, err.text);
        } else {
            memcpy(out, line, len + 1);
            memmove(l->line, line, len + 1);
            l->pending = true;
        }
    }
    return out;
}

/* A line that is appended to a file falls into its last section, whatever it was meant for. */
static int misplaced(const struct load *l, const char *name, const char *right, const char *section, struct err *err)
{
    if (section[0] == '\0') {
        return err_set(err, ERR_NOTFOUND, "%s belongs in [%s]; here it stands before any section", name, right);
    }
    return err_set(err, ERR_NOTFOUND, "%s belongs in [%s]; here it stands in [%s], which begins in line %d", name,
                   right, section, l->section);
}

/* The option's whole name; in its section it may stand with or without the section's before it. */
static const char *whole_name(const char *section, const char *given, char out[NAME_TEXT])
{
    bool has = strcmp(section, MAIN_SECTION) == 0 || section[0] == '\0' || strcmp(config_section(given), section) == 0;
    return has ? given : (snprintf(out, NAME_TEXT, "%s_%s", section, given), out);
}

/* The section in which there is such an option; NULL: none has it. */
static const char *right_section(const char *given)
{
    char name[NAME_TEXT];
    for (size_t i = 0; config_sections[i] != NULL; i++) {
        if (config_find(whole_name(config_sections[i], given, name)) != NULL) {
            return config_sections[i];
        }
    }
    return config_find(given) != NULL ? MAIN_SECTION : config_is_property(given) ? CONFIG_KAFKA : NULL;
}

static bool is_secret(const char *name, const struct config_option *option)
{
    return option != NULL ? option->type == CONFIG_SECRET
                          : config_is_secret_property(name + strlen(CONFIG_KAFKA_PREFIX));
}

/* name = value, an option or a property. Sets it in l->cfg. */
static int set(struct load *l, const char *name, const struct config_option *option, const char *value, struct err *err)
{
    const struct config_option *row = option != NULL ? option : config_find(CONFIG_PROPERTIES_OPTION);
    size_t index = (size_t)(row - config_options);
    int *set_in = option != NULL ? &l->set_in[index] : NULL;
    if (set_in != NULL && *set_in > 0) {
        return err_set(err, ERR_INVALID, "%s is given twice, first in line %d", name, *set_in);
    }
    if (set_in != NULL) {
        *set_in = l->number;
    }
    if (is_secret(name, option) && strstr(l->line, " ;") != NULL) {
        return err_set(err, ERR_INVALID, "%s can't hold a space before a semicolon: a comment begins there", name);
    }
    if (option == NULL && config_has_property(&l->properties, name + strlen(CONFIG_KAFKA_PREFIX))) {
        return err_set(err, ERR_INVALID, "%s is given twice", name);
    }
    int code = config_set(&l->cfg, name, value, err);
    if (code == 0 && option == NULL) {
        config_set(&l->properties, name, value, NULL);
    }
    l->cfg.origin[index] = code == 0 ? l->number : l->cfg.origin[index];
    return code;
}

static int take_of_policy(struct load *l, const char *given, const char *value, struct err *err)
{
    char word[sizeof l->policy_set], section[POLICY_NAME + sizeof policy_section];
    int code = policy_set(l->policy, given, value, err);
    const char *right = code == ERR_NOTFOUND ? right_section(given) : NULL;
    if (right != NULL && strcmp(right, MAIN_SECTION) == 0) { /* as of a line that was appended to the file */
        snprintf(section, sizeof section, "%s%s", policy_section, l->policy->name);
        return misplaced(l, given, right, section, err);
    }
    if (code < 0) {
        return code;
    }
    snprintf(word, sizeof word, " %s", given);
    if (strstr(l->policy_set, word) != NULL) {
        return err_set(err, ERR_INVALID, "%s is given twice in [policy %s]", given, l->policy->name);
    }
    const size_t len = strlen(l->policy_set);
    snprintf(l->policy_set + len, sizeof l->policy_set - len, "%s", word);
    return 0;
}

static int take(void *arg, const char *section, const char *given, const char *value)
{
    struct load *l = arg;
    char whole[NAME_TEXT];
    l->pending = false;
    struct err err = {0};
    if (l->policy != NULL) {
        if (take_of_policy(l, given, value != NULL ? value : "", &err) < 0) {
            problem(l, err.code, err.text);
        }
        return 1;
    }
    const char *name = whole_name(section, given, whole);
    const struct config_option *option = config_find(name);
    bool property = option == NULL && strcmp(section, CONFIG_KAFKA) == 0 && strchr(name, '.') != NULL;
    const char *right = option != NULL || property ? NULL : right_section(given);
    if (right != NULL) {
        misplaced(l, given, right, section, &err);
    } else if (option == NULL && !property) {
        config_set(&l->cfg, name, "", &err); /* says what is wrong with the name */
    } else {
        set(l, name, option, value != NULL ? value : "", &err);
    }
    if (err.code < 0) {
        problem(l, err.code, err.text);
    }
    return 1;
}

int config_load(struct config *cfg, const char *path, config_problem_fn *each, void *arg, struct err *err)
{
    struct load l = {.path = path, .cfg = *cfg, .each = each, .arg = arg};
    l.file = fopen(path, "re");
    if (l.file == NULL) {
        unreadable(&l, errno);
    } else {
        if (ini_parse_stream(next_line, &l, take, &l) == -2) {
            l.read_errno = ENOMEM;
        }
        if (l.read_errno != 0) {
            unreadable(&l, l.read_errno);
        }
        fclose(l.file);
        free(l.line);
    }
    if (l.first.code < 0) {
        return err_set(err, l.first.code, "%s", l.first.text);
    }
    *cfg = l.cfg;
    return 0;
}

int config_validate_tls(const char *option, const char *value, struct err *err)
{
#ifdef WITH_OPENSSL
    (void)option;
    (void)value;
    (void)err;
    return 0;
#else
    return err_set(err, ERR_INVALID, "%s is %s, but this unseen was built without OpenSSL", option, value);
#endif
}

/* An address that others can reach must not be open to all of them. */
static int validate_addresses(const struct config *cfg, const char *option, const char *addresses, struct err *err)
{
    const char *at = addresses;
    struct config_address a;
    int code;
    while ((code = config_next_address(&at, &a)) > 0) {
        if (!config_is_loopback(a.host) && !config_wants_login(cfg)) {
            return err_set(err, ERR_INVALID,
                           "%s is %s, which other machines may reach, and there is no password; set requirepass, "
                           "requirepass_file or "
                           "accounts, or listen on 127.0.0.1:%d",
                           option, addresses, a.port);
        }
        if (a.tls && cfg->tls_cert[0] == '\0') {
            return err_set(err, ERR_INVALID, "%s is %s, and TLS needs a certificate: set tls_cert and tls_key", option,
                           addresses);
        }
        if (a.tls && config_validate_tls(option, addresses, err) < 0) {
            return ERR_INVALID;
        }
    }
    return code == 0 ? 0
                     : err_set(err, ERR_INVALID, "%s is %s, expected an IP address and a port, or none", option,
                               log_quote_str(addresses));
}

/* A key needs a place for the user, and just one, so that users can be told from keys. */
static int validate_key(const char *option, const char *key, struct err *err)
{
    const char *user = strstr(key, CONFIG_USER);
    if (user == NULL || strstr(user + 1, CONFIG_USER) != NULL) {
        return err_set(err, ERR_INVALID, "%s is %s, expected a key that holds " CONFIG_USER " once", option,
                       log_quote_str(key));
    }
    return 0;
}

static int validate_legacy(const struct config *cfg, struct err *err)
{
    int code = validate_key("legacy_played_key", cfg->legacy_played_key, err);
    if (code == 0 && cfg->legacy_delivered_key[0] != '\0') {
        code = validate_key("legacy_delivered_key", cfg->legacy_delivered_key, err);
    }
    if (code == 0 && strcmp(cfg->legacy_played_key, cfg->legacy_delivered_key) == 0) {
        code = err_set(err, ERR_INVALID, "legacy_played_key and legacy_delivered_key are both %s, expected two keys",
                       log_quote_str(cfg->legacy_played_key));
    }
    if (code == 0 && cfg->legacy_mirror && config_legacy(cfg)[0] == '\0') {
        code = err_set(err, ERR_INVALID, "legacy_mirror needs a Redis: set redis in the section [legacy]");
    }
    if (code == 0 && cfg->legacy_read_through && config_legacy(cfg)[0] == '\0') {
        code = err_set(err, ERR_INVALID, "legacy_read_through needs a Redis: set redis in the section [legacy]");
    }
#ifndef WITH_HIREDIS
    if (code == 0 && config_legacy(cfg)[0] != '\0') {
        code = err_set(err, ERR_INVALID, "%s is set, but this unseen was built without hiredis",
                       cfg->legacy_redis[0] != '\0' ? "legacy_redis" : "legacy_sentinel");
    }
#endif
    return code;
}

static int validate_expect_data(const struct config *cfg, struct err *err)
{
    const char *expect = cfg->expect_data;
    size_t len = strlen(cfg->data);
    if (strcmp(expect, "no") == 0 || strcmp(expect, "yes") == 0) {
        return 0;
    }
    if (expect[0] != '/') {
        return err_set(err, ERR_INVALID, "expect_data is %s, expected no, yes, or the whole path of a file",
                       log_quote_str(expect));
    }
    return strncmp(expect, cfg->data, len) == 0 && expect[len] == '/'
               ? err_set(err, ERR_INVALID, "expect_data is %s, expected a file outside of the data folder, %s",
                         log_quote_str(expect), cfg->data)
               : 0;
}

/* What [front] and [legacy] say of a Redis. */
static int read_redises(struct config *cfg, struct err *err)
{
    const struct redis_at_options front = {"front", cfg->front_redis,   cfg->front_sentinel, CLUSTER_NO,
                                           false,   cfg->front_database},
                                  legacy = {"legacy",
                                            cfg->legacy_redis,
                                            cfg->legacy_sentinel,
                                            (enum config_cluster)cfg->legacy_cluster,
                                            true,
                                            cfg->legacy_database};
    int rc = redis_at_read(&front, &cfg->front_at, err);
    return rc < 0 ? rc : redis_at_read(&legacy, &cfg->legacy_at, err);
}

int config_validate(struct config *cfg, struct err *err)
{
    if (cfg->window > cfg->retention) {
        return err_set(err, ERR_INVALID,
                       "window is %d months, but retention keeps only %d; make retention at least as long as window",
                       (int)cfg->window, (int)cfg->retention);
    }
    if (strcmp(cfg->listen, "none") == 0 && cfg->unix_socket[0] == '\0') {
        return err_set(err, ERR_INVALID, "no client could connect: listen is none and unix_socket is empty; set one");
    }
    int code = validate_addresses(cfg, "listen", cfg->listen, err);
    if (code == 0) {
        code = validate_addresses(cfg, "http", cfg->http, err);
    }
    if (code == 0) {
        code = validate_addresses(cfg, "grpc", cfg->grpc, err);
    }
#ifndef WITH_NGHTTP2
    if (code == 0 && strcmp(cfg->grpc, "none") != 0) {
        code = err_set(err, ERR_INVALID, "grpc is %s, but this unseen was built without nghttp2: expected none",
                       log_quote_str(cfg->grpc));
    }
#endif
    code = code < 0 ? code : validate_expect_data(cfg, err);
    code = code < 0 ? code : config_validate_kafka(cfg, err);
    code = code < 0 ? code : config_validate_registry(cfg, err);
    code = code < 0 ? code : read_redises(cfg, err);
    code = code < 0 ? code : config_validate_lock(cfg, err);
    code = code < 0 ? code : config_validate_replica(cfg, err);
    code = code < 0 ? code : config_validate_archive(cfg, err);
    code = code < 0 ? code : policies_validate(&cfg->policies, cfg->window, err);
    return code < 0 ? code : validate_legacy(cfg, err);
}
